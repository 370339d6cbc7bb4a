"""All attacks, in the order in which they run."""

from tests.attack import body_attacks, http_attacks
from tests.attack.target import Attack

ATTACKS: tuple[Attack, ...] = (*http_attacks.ATTACKS, *body_attacks.ATTACKS)
