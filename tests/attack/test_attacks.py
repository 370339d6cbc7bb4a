"""Every attack in a small size, in every run of the tests; `make attack` has them in full."""

import pathlib
import re

import pytest

from tests.attack.attacks import ATTACKS
from tests.attack.target import Measure, started_target


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with started_target(tmp_path_factory.mktemp("models"), long=False) as target:
        yield target


# Attacks that take minutes, which `make attack` has alone, and where a small one is.
IN_FULL_ALONE = {
    "every_signature": "tests/attack/test_attacks.py",  # every_method
    "frame_floods": "tests/serving/test_memory.py",
    "grpc_shutdowns": "tests/serving/test_grpc_shutdown.py",
    "health_watchers": "tests/serving/test_grpc_arrivals.py",
    "long_texts": "tests/transforms/test_text.py",
    "many_separators": "tests/transforms/test_ragged.py",
    "many_slow_clients": "tests/serving/test_http_protocol.py",
    "slow_trailers": "tests/serving/test_http_protocol.py",
    "many_users": "tests/pipeline/test_retrieve.py",
    "past_the_default_deadline": "tests/attack/test_attacks.py",
    "reload_from_network": "tests/contract/test_reload.py",
    "reload_outside_the_roots": "tests/contract/test_reload.py",
    "sigterm": "tests/serving/test_serve.py",
    "padded_lengths": "tests/serving/test_grpc_parsing.py",
    "padded_tags": "tests/serving/test_grpc_messages.py",
    "unread_ends": "tests/serving/test_http_protocol.py",
    "swaps_under_load": "tests/serving/test_hot_swap.py",
    "unfinished_messages": "tests/serving/test_grpc_arrivals.py",
}


# Small, but with a server of their own or seconds of work each. Every run of the tests has what bounds them elsewhere.
IN_TEST_ALL = {
    "bodies_in_advance": "tests/serving/test_rest_memory.py",
    "broken_base64": "tests/serving/test_server_parsing.py",
    "contexts": "tests/serving/test_admission.py",
    "filled_strings": "tests/serving/test_grpc_tensors.py",
    "idle_connections": "tests/serving/test_grpc_arrivals.py",  # of REST: tests/serving/test_http_protocol.py
    "held_headers": "tests/serving/test_http_protocol.py",
    "infinities": "tests/attack/test_attacks.py",  # not_a_number
    "large_examples": "tests/serving/test_json_examples.py",
    "many_filters": "tests/serving/test_grpc_messages.py",
    "many_sizes": "tests/serving/test_grpc_tensors.py",
    "packed_numbers": "tests/serving/test_rest_memory.py",
    "packed_strings": "tests/serving/test_rest_memory.py",
    "packed_white_space": "tests/serving/test_rest_memory.py",
    "past_the_deadline": "tests/serving/test_http_protocol.py",  # of gRPC: tests/contract/test_grpc.py
    "rapid_resets": "tests/attack/test_attacks.py",  # unsent_messages
    "long_floats": "tests/attack/test_attacks.py",  # small_floats
    "repeated_names": "tests/serving/test_server_parsing.py",
    "spoiled_batches": "tests/contract/test_batching.py",
    "strings_in_content": "tests/serving/test_grpc_tensors.py",
    "strings_of_no_utf8": "tests/serving/test_grpc_tensors.py",
    "unfinished_bodies": "tests/serving/test_rest_memory.py",
    "unread_answers": "tests/serving/test_unread.py",
    "unread_calls": "tests/serving/test_unread.py",
}
SMALL = [
    pytest.param(attack, id=attack.__name__, marks=[pytest.mark.large] * (attack.__name__ in IN_TEST_ALL))
    for attack in ATTACKS
    if attack.__name__ not in IN_FULL_ALONE
]


@pytest.mark.slow
@pytest.mark.parametrize("attack", SMALL)
def test_an_attack_keeps_its_bounds(target, attack):
    measures = attack(target)
    assert measures and [str(measure) for measure in measures if not measure.met] == []
    target.server.check()


def test_attacks_that_are_not_run_here_have_small_ones_elsewhere():
    elsewhere = IN_FULL_ALONE | IN_TEST_ALL
    assert set(elsewhere) < {attack.__name__ for attack in ATTACKS}
    assert all((pathlib.Path(__file__).parents[2] / file).is_file() for file in elsewhere.values())


@pytest.mark.parametrize(("value", "met"), [(1.0, True), (2.0, True), (2.1, False)])
def test_a_figure_above_its_bound_is_not_met(value, met):
    assert Measure("it", value, 2.0).met == met


def test_the_page_of_limits_names_every_attack():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "limits.md").read_text()
    tables = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    assert {attack.__name__ for attack in ATTACKS} <= set(re.findall(r"`(\w+)`", tables))
