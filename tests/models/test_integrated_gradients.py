"""Integrated gradients: the trapezoidal rule on functions whose integral is known, and every model's completeness."""

import os
import pathlib
import subprocess
from collections.abc import Iterable

import numpy as np
import pytest

from ctrpipe.models.explain.integrated_gradients import MOST_STEPS, integrate
from ctrpipe.models.text.cascading import CascadingNNGBDT
from ctrpipe.pipeline.explain.gradients import RowGradients
from tests.models.small_models import (
    SMALL,
    batch_of,
    cases_of,
    dense_layers,
    embed,
    feature_map,
    linear,
    map_of,
    unchanged,
)
from tests.warm_python import python

ROW, BASELINE = 1, 4


def test_a_smooth_function_has_its_integral():
    # F = x^2 y + y with x from 1 to 3 and y from 0 to 2: the integrals of dF/dx dx and dF/dy dy on the straight line.
    def way(places):
        x, y = 1 + 2 * places, 2 * places
        return x**2 * y + y, np.stack([2 * (2 * x * y), 2 * (x**2 + 1)], axis=1)

    found = integrate(way, tolerance=1e-4)
    expected = [np.trapezoid(4 * (1 + 2 * t) * 2 * t, t) for t in [np.linspace(0, 1, 200_001)]]
    assert found.units[0] == pytest.approx(expected[0], abs=1e-4)
    assert found.units.sum() == pytest.approx(20, abs=1e-9) and (found.start, found.end) == (0, 20)
    assert abs(found.jumps) <= 1e-4 and 32 < found.steps < MOST_STEPS


def test_a_jump_is_dealt_to_the_units_that_move_there():
    def way(places):
        jump = np.where(places > 0.3, 5.0, 0.0)
        return jump + 3 * places, np.stack([np.full_like(places, 1.0), np.full_like(places, 2.0)], axis=1)

    found = integrate(way)
    np.testing.assert_allclose(found.units, [1 + 5 / 3, 2 + 10 / 3])
    assert found.jumps == pytest.approx(5) and found.steps == MOST_STEPS


def one(name: str, row: int) -> dict[str, np.ndarray]:
    return {key: value[row : row + 1] for key, value in batch_of(name).items()}


def columns_of(name: str) -> list[str]:
    return [field.name for field in map_of(name).fields for _ in range(field.slots)]


@pytest.mark.slow
def test_a_factorisation_machine_and_an_mlp_have_the_integrals_that_numpy_finds():
    for name, logits in (("wide_deep", wide_deep), ("fm", fm)):
        model = unchanged(name)
        start, end = one(name, BASELINE), one(name, ROW)
        start["ids"][0, 5:], end["ids"][0, 5:] = (38, 39, 42), (41, 43, 40)  # nothing discrete differs
        found, _, _ = RowGradients(model, columns_of(name)).between(start, end)
        for column, value in numeric_integral(model, logits, start, end).items():
            assert found[column] == pytest.approx(value, abs=2e-3), (name, column)


Parts = dict[str, np.ndarray]


def parts_of(model, inputs) -> Parts:
    """The inputs of each column, (1, width): a field's pooled embedding and weight, or a dense feature's number."""
    rows, weights = (embed(table.table.numpy(), inputs["ids"]) for table in (model.table, model.linear))
    joined = np.concatenate([rows, weights], axis=2)
    fields = {f.name: joined[:, n] for n, f in enumerate(feature_map().fields)}
    return {**fields, **{name: inputs["dense"][:, [n]] for n, name in enumerate(feature_map().dense)}}


def split(parts: Parts, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors, (rows, fields, dim), weights, (rows, fields), and numbers, (rows, dense features)."""
    fields = np.stack([part for part in parts.values() if part.shape[1] > 1], axis=1)
    dense = np.concatenate([part for part in parts.values() if part.shape[1] == 1], axis=1)
    return fields[..., :dim], fields[..., dim], dense


def linear_of(model, weights, dense) -> np.ndarray:
    of_dense = dense @ model.linear_dense.kernel.numpy()[:, 0] + model.linear_dense.bias.numpy()[0]
    return weights.sum(axis=1) + of_dense


def wide_deep(model, parts: Parts) -> np.ndarray:
    rows, weights, dense = split(parts, model.table.dim)
    deep = dense_layers(model, np.concatenate([rows.reshape(len(rows), -1), dense], axis=1))[:, 0]
    return deep + linear_of(model, weights, dense)


def fm(model, parts: Parts) -> np.ndarray:
    rows, weights, dense = split(parts, model.table.dim)
    vectors = np.concatenate([rows, dense[..., None] * model.dense_table.vectors.numpy()], axis=1)
    number = vectors.shape[1]
    pairs = sum((vectors[:, i] * vectors[:, j]).sum(axis=1) for i in range(number) for j in range(i))
    return pairs + linear_of(model, weights, dense)


def numeric_integral(model, logits, start, end, steps=400) -> dict[str, float]:
    """Each column's integral of the logit's partial change along the path, by finite differences."""
    first, last = (
        {name: part.astype(np.float64) for name, part in parts_of(model, inputs).items()} for inputs in (start, end)
    )
    places, step = (np.arange(steps)[:, None] + 0.5) / steps, 1e-4
    here = {name: first[name] + places * (last[name] - first[name]) for name in first}

    def beside(name: str, sign: int) -> np.ndarray:
        return logits(model, {**here, name: here[name] + sign * step * (last[name] - first[name])})

    return {name: float(np.mean(beside(name, 1) - beside(name, -1))) / (2 * step) for name in first}


def test_the_reference_is_the_model():
    for name, logits in (("wide_deep", wide_deep), ("fm", fm)):
        model, inputs = unchanged(name), one(name, ROW)
        np.testing.assert_allclose(logits(model, parts_of(model, inputs)), model(inputs)[:, 0], atol=1e-4)
        weights, dense = split(parts_of(model, inputs), model.table.dim)[1:]
        np.testing.assert_allclose(linear_of(model, weights, dense), linear(model, inputs)[:, 0], atol=1e-4)


EVERY_INPUT = ("xdeepfm", "dien", "bert4ctr", "cascading_nn_gbdt")  # columns, histories, a text, trees


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(EVERY_INPUT))
def test_the_columns_of_every_model_add_up_to_the_difference_of_the_logits(name):
    model = unchanged(name)
    if isinstance(model, CascadingNNGBDT):
        pytest.skip("trees have no gradients")
    start, end = one(name, BASELINE), one(name, ROW)
    gradients = RowGradients(model, columns_of(name))  # which compiles what it calls
    columns, tokens, integral = gradients.between(start, end)
    difference = float(model(end)[0, 0]) - float(model(start)[0, 0])
    assert abs(difference) > 0.001
    assert sum(columns.values()) == pytest.approx(difference, abs=1e-3)
    assert integral.end - integral.start == pytest.approx(difference, abs=1e-4)
    if "tokens" in end:
        assert len(tokens) == 8 and np.abs(tokens).max() > 0 and not tokens[end["tokens"][0] == 0].any()
    nothing, _, _ = gradients.between(end, end)
    assert max(map(abs, nothing.values())) < 1e-5


@pytest.mark.parametrize("name", cases_of(SMALL, ("deepfm", "bert4ctr", "din"), quick=("deepfm",)))
def test_the_average_of_embeddings_is_a_baseline(name):
    model = unchanged(name)
    columns, _, integral = RowGradients(model, columns_of(name)).from_average(batch_of(name), one(name, ROW))
    assert sum(columns.values()) == pytest.approx(integral.end - integral.start, abs=1e-3)
    assert integral.end == pytest.approx(float(model(one(name, ROW))[0, 0]), abs=1e-4)


ON_JAX = """
import sys
import numpy as np
from ctrpipe.common.libraries import import_keras
import_keras()
from tests.models.jax_drawing import draw_zeros
from tests.models.test_integrated_gradients import attributions
draw_zeros()
np.savez(sys.argv[1], **attributions(sys.argv[2:]))
"""
ON_BOTH = [("deepfm",), pytest.param(("attention_net", "bert4ctr"), marks=pytest.mark.large)]


def attributions(names: Iterable[str]) -> dict[str, np.ndarray]:
    found = {}
    for name in names:
        gradients = RowGradients(unchanged(name), columns_of(name))
        columns, tokens, _ = gradients.between(one(name, BASELINE), one(name, ROW))
        found[name] = np.array([*columns.values(), *tokens])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("names", ON_BOTH)
def test_jax_finds_what_tensorflow_finds(tmp_path, names):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    command = [*python("jax"), "-c", ON_JAX, str(tmp_path / "jax.npz"), *names]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-2000:]
    of_jax = np.load(tmp_path / "jax.npz")
    for name, expected in attributions(names).items():
        assert np.abs(expected).max() > 0.01, name
        np.testing.assert_allclose(of_jax[name], expected, atol=2e-3, err_msg=name)
