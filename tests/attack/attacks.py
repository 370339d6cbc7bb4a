"""All attacks, in the order in which they run."""

from tests.attack import http_attacks
from tests.attack.target import Attack

ATTACKS: tuple[Attack, ...] = http_attacks.ATTACKS
