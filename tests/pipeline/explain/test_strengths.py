"""Learned strengths of pairs against the logits themselves, whose second-order term is taken by double centring."""

import itertools

import numpy as np
import pytest

from ctrpipe.models import create
from ctrpipe.pipeline.explain.strengths import covariances, learned_strengths
from tests.models.small_models import batch, feature_map, randomised

ROWS = 4


def exchanged(rows: dict, first: str, second: str) -> dict:
    """All rows in which two columns have the values of any two of the rows, and the others the first row's values."""
    grid = {key: np.repeat(value[:1], ROWS * ROWS, axis=0) for key, value in rows.items()}
    for name, of in ((first, np.repeat(np.arange(ROWS), ROWS)), (second, np.tile(np.arange(ROWS), ROWS))):
        if name in feature_map().dense:
            place = feature_map().dense.index(name)
            grid["dense"][:, place] = rows["dense"][of, place]
        else:
            slots = feature_map().slots_of(name)
            grid["ids"][:, slots] = rows["ids"][of][:, slots]
    return grid


def together(values: np.ndarray) -> float:
    """The root mean square of what two columns make together, of values [ROWS, ROWS, ...], summed over the rest."""
    values = values.reshape(ROWS, ROWS, -1).astype(np.float64)
    both = values - values.mean(0) - values.mean(1)[:, None] + values.mean((0, 1))
    return float(np.sqrt((both**2).mean((0, 1)).sum()))


def built(name: str, **options):
    model = create(name, feature_map(), embedding_dim=3, embedding_stddev=0.5, **options)
    model(batch(2))
    random = np.random.default_rng(6)
    for variable in model.variables:
        if "seed" not in variable.name:
            variable.assign(random.normal(size=variable.shape) * 0.5)
    return model


PAIRS = list(itertools.combinations([*(field.name for field in feature_map().fields), *feature_map().dense], 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fm", {}),
        ("ffm", {}),
        ("cin", {"maps": (4,)}),
        ("xdeepfm", {"maps": (5,), "rank": 2, "hidden_units": ()}),
    ],
)
def test_a_strength_is_the_deviation_of_what_two_columns_add_to_the_logit_together(name, options):
    model, rows = built(name, **options), batch(ROWS)
    found = learned_strengths(
        model, [{key: value[:3] for key, value in rows.items()}, {k: v[3:] for k, v in rows.items()}]
    )
    assert len(found) == len(PAIRS)
    for pair in PAIRS:
        logits = np.asarray(model(exchanged(rows, *pair)))[:, 0]
        assert found[frozenset(pair)] == pytest.approx(together(logits), rel=1e-3, abs=1e-5), pair
    assert min(found.values()) > 0


@pytest.mark.parametrize("rank", [None, 2])
def test_dcn_v2s_strength_is_that_of_the_first_cross_layer(rank):
    model, rows = built("dcn_v2", rank=rank, hidden_units=(4,)), batch(ROWS)
    found = learned_strengths(model, [rows])
    for pair in PAIRS:
        grid = exchanged(rows, *pair)
        x0 = model.flatten(model.rows(grid), grid)
        assert found[frozenset(pair)] == pytest.approx(
            together(np.asarray(model.crosses[0](x0, x0))), rel=1e-3, abs=1e-5
        )


def test_layers_that_pass_maps_on_without_pooling_them_have_no_part():
    model = built("cin", maps=(4, 3), split_half=True)
    kernel, weights = model.cin.kernel_of(0), np.asarray(model.logit.kernel)[:, 0]
    factor = sum(weights[h] * (kernel[0, 1, h] + kernel[1, 0, h]) for h in (0, 1))  # of four maps two are pooled
    spread = covariances(model, [batch(ROWS)])
    expected = abs(factor) * np.sqrt(np.trace(spread[0] @ spread[1]))
    assert learned_strengths(model, [batch(ROWS)])[frozenset(("f0", "f1"))] == pytest.approx(expected, rel=1e-4)


def test_the_covariance_is_that_of_numpy():
    rows = batch(7)
    looked_up = np.asarray(randomised("fm").rows(rows))
    for field, spread in enumerate(covariances(randomised("fm"), [rows])):
        np.testing.assert_allclose(spread, np.cov(looked_up[:, field].T, bias=True), atol=1e-6)
