"""Every attack in a small size, in every run of the tests; `make attack` has them in full."""

import pytest

from tests.attack.attacks import ATTACKS
from tests.attack.target import Measure, Target
from tests.fuzz.servable import NAME, record_warmup, save
from tests.fuzz.server import started


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    record_warmup(save(models / NAME / "1"))
    with started(models) as server:
        yield Target(server, long=False)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_keeps_its_bounds(target, attack):
    assert [str(measure) for measure in attack(target) if not measure.met] == []
    target.server.check()


@pytest.mark.parametrize(("value", "met"), [(1.0, True), (2.0, True), (2.1, False)])
def test_a_figure_above_its_bound_is_not_met(value, met):
    assert Measure("it", value, 2.0).met == met
