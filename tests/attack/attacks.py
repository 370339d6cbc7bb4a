"""All attacks, in the order in which they run."""

from tests.attack import (
    body_attacks,
    grpc_attacks,
    http_attacks,
    load_attacks,
    metrics_attacks,
    rest_memory_attacks,
    server_attacks,
    signature_attacks,
)
from tests.attack.target import Attack

ATTACKS: tuple[Attack, ...] = (
    *http_attacks.ATTACKS,
    *grpc_attacks.ATTACKS,
    *metrics_attacks.ATTACKS,
    *server_attacks.ATTACKS,
    *body_attacks.ATTACKS,
    *rest_memory_attacks.ATTACKS,
    *load_attacks.ATTACKS,
    *signature_attacks.ATTACKS,
)
