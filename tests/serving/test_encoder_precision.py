"""Serving a text encoder in fewer bits."""

import pathlib
import shutil
import typing

import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.models.text.precision import PRECISIONS
from ctrpipe.pipeline.config import Serving as ServingConfig
from ctrpipe.serving.export.export import TOLERANCES
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server.check import check_servable
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from tests.serving.text_servable import SPEC, VERSION, copied, rows, save, shared_servable

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(shared_folder, tmp_path_factory) -> pathlib.Path:
    return shutil.copytree(shared_servable(shared_folder), tmp_path_factory.mktemp("precision") / "copy")


@pytest.fixture(scope="module")
def exact(folder) -> np.ndarray:
    """The model's float32 answers."""
    return answers(folder / VERSION)["serving_raw"]


@pytest.fixture(scope="module", params=[pytest.param("bfloat16", marks=pytest.mark.large), "int8"])
def lower(request, folder) -> tuple[str, pathlib.Path]:
    return request.param, save(folder, encoder_precision=request.param)


def answers(version: pathlib.Path) -> dict[str, np.ndarray]:
    servable = Servable(version)
    try:
        raw = raw_arrays(rows(50, 4), SPEC)
        packed = servable.run("transform_raw", raw)
        return {
            "serving_raw": servable.run("serving_raw", raw)["ctr"],
            "serving_packed": servable.run("serving_packed", packed)["ctr"],
        }
    finally:
        servable.close()


def test_the_precisions_of_the_configuration_the_model_and_the_export_are_the_same():
    names = typing.get_args(ServingConfig.model_fields["encoder_precision"].annotation)
    assert names == PRECISIONS == tuple(TOLERANCES)


def test_fewer_bits_answer_about_the_same_in_every_signature(exact, lower):
    precision, version = lower
    assert 1e-6 < check_servable(version) < TOLERANCES[precision]
    found = answers(version)
    assert found["serving_raw"].dtype == np.float32
    assert 1e-6 < np.abs(found["serving_raw"] - exact).max() < TOLERANCES[precision]
    np.testing.assert_allclose(found["serving_packed"], found["serving_raw"], atol=1e-5)


def test_an_export_further_away_than_its_precision_explains_is_refused(lower, tmp_path):
    precision, version = lower
    other = copied(version, tmp_path)
    path = other / "assets.extra" / "golden.npz"
    with np.load(path) as golden:
        values = dict(golden)
    np.savez(path, **{**values, "probabilities": values["probabilities"] + 1.5 * TOLERANCES[precision]})
    with pytest.raises(InputError, match=f"the export and Keras differ by .*, more than {TOLERANCES[precision]:.0e}"):
        check_servable(other)
