"""Our cross and dot interaction against TensorFlow Recommenders' own layers, with the same weights.

tensorflow-recommenders is Keras 2 code: it runs in a separate process, under TF_USE_LEGACY_KERAS=1.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.models.small_models import batch, randomised

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_recommenders") is None,
    reason="tensorflow-recommenders is not installed (extra `tfrs`)",
)

LAYERS = """
import sys
import numpy as np
import tensorflow as tf
import tf_keras
import tensorflow_recommenders as tfrs
Cross, DotInteraction = tfrs.layers.dcn.Cross, tfrs.layers.feature_interaction.DotInteraction
assert issubclass(Cross, tf_keras.layers.Layer) and "keras" not in sys.modules  # Keras 2, without Keras 3
given, found = dict(np.load(sys.argv[1])), {}
if "vectors" in given:
    vectors = [tf.constant(vector) for vector in np.moveaxis(given["vectors"], 1, 0)]
    found["dots"] = DotInteraction()(vectors).numpy()
else:
    x0 = x = tf.constant(given["x0"])
    for index in range(int(given["layers"])):
        weights = [given[f"{index}/{part}"] for part in ("u", "v", "bias") if f"{index}/{part}" in given]
        layer = Cross(projection_dim=weights[0].shape[1] if len(weights) == 3 else None)
        layer(x0, x)
        layer.set_weights(weights)
        x = layer(x0, x)
        found[f"x{index + 1}"] = x.numpy()
np.savez(sys.argv[2], **found)
"""


def reference(folder: pathlib.Path, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    np.savez(folder / "given.npz", **arrays)
    command = [sys.executable, "-c", LAYERS, str(folder / "given.npz"), str(folder / "found.npz")]
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    with np.load(folder / "found.npz") as found:
        return dict(found)


@pytest.mark.slow
@pytest.mark.large(like="tests/models/test_equations.py::test_dcn_v2")
@pytest.mark.parametrize("rank", [None, 5])
def test_the_crosses_of_dcn_v2(tmp_path, rank):
    model, inputs = randomised("dcn_v2", layers=3, rank=rank), batch(64)
    x0 = x = model.flatten(model.rows(inputs), inputs)
    given, expected = {}, {}
    for index, layer in enumerate(model.crosses):
        if rank:
            given[f"{index}/u"] = layer.down_proj_dense.kernel.numpy()
        given[f"{index}/v"], given[f"{index}/bias"] = layer.dense.kernel.numpy(), layer.dense.bias.numpy()
        x = layer(x0, x)
        expected[f"x{index + 1}"] = np.asarray(x)
    found = reference(tmp_path, x0=np.asarray(x0), layers=np.array(3), **given)
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        assert np.abs(value - np.asarray(x0)).max() > 0.1
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5 * np.abs(value).max(), err_msg=name)


@pytest.mark.large(like="tests/models/test_equations.py::test_dlrm")
@pytest.mark.slow
def test_the_dot_interaction_of_dlrm(tmp_path):
    model, inputs = randomised("dlrm"), batch(64)
    rows = np.asarray(model.rows(inputs))
    vectors = np.concatenate([np.asarray(model.bottom(inputs["dense"]))[:, None], rows], axis=1)
    ours = np.asarray(model.dot([vectors[:, index] for index in range(vectors.shape[1])]))
    assert ours.shape == (64, 21) and np.abs(ours).max() > 0.1
    np.testing.assert_allclose(reference(tmp_path, vectors=vectors)["dots"], ours, rtol=1e-5, atol=1e-5)
