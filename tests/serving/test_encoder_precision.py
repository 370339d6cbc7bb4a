"""A text's encoder that is served in fewer bits."""

import numpy as np
import pytest

from serving.check import check_servable
from serving.loader import Servable
from tests.serving.text_servable import SPEC, rows, save
from transforms.errors import InputError
from transforms.raw import raw_arrays


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    servable = Servable(save(tmp_path_factory.mktemp("float32")))
    yield servable
    servable.close()


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int8_weights"])
def test_an_export_in_fewer_bits_is_smaller_and_near_the_exact_one(exact, precision, tmp_path):
    version = save(tmp_path, encoder_precision=precision)
    assert 1e-6 < check_servable(version) < 0.05
    raw = raw_arrays(rows(50, 4), SPEC)
    servable = Servable(version)
    try:
        found, expected = (model.run("serving_raw", raw)["ctr"] for model in (servable, exact))
        packed = servable.run("serving_packed", servable.run("transform_raw", raw))["ctr"]
    finally:
        servable.close()
    assert found.dtype == np.float32 and 1e-6 < np.abs(found - expected).max() < 0.05
    np.testing.assert_allclose(packed, found, atol=1e-5)


def test_an_export_that_is_further_away_than_its_precision_explains_is_refused(tmp_path):
    version = save(tmp_path, "text_only", encoder_precision="bfloat16")
    path = version / "assets.extra" / "golden.npz"
    with np.load(path) as golden:
        values = dict(golden)
    np.savez(path, **{**values, "probabilities": values["probabilities"] + 0.06})
    with pytest.raises(InputError, match="the export and Keras differ by .*, more than 5e-02"):
        check_servable(version)
