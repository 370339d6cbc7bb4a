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


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_keeps_its_bounds(target, attack):
    assert [str(measure) for measure in attack(target) if not measure.met] == []
    target.server.check()


@pytest.mark.parametrize(("value", "met"), [(1.0, True), (2.0, True), (2.1, False)])
def test_a_figure_above_its_bound_is_not_met(value, met):
    assert Measure("it", value, 2.0).met == met


def test_the_page_of_limits_names_every_attack():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "limits.md").read_text()
    tables = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    assert {attack.__name__ for attack in ATTACKS} <= set(re.findall(r"`(\w+)`", tables))
