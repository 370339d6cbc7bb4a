"""From training on JAX to the SavedModel."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import tensorflow_transform as tft

from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from ctrpipe.serving.export.export import export
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.xla import xla_node
from ctrpipe.transforms.features.packed_files import PackedReader, packed_files
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze, transform
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from tests.serving.packed_servable import SPEC, rows
from tests.warm_python import python

pytestmark = pytest.mark.slow

MODEL = Model(name="mlp", use_linear=True, embedding_dim=4, hidden_units=[8], embedding_stddev=0.1)

PREDICT = """
import pathlib, sys
import numpy as np
from ctrpipe.common.arrays import read_arrays
from ctrpipe.pipeline.training.data import packed_batches
from ctrpipe.pipeline.training.job import TrainingJob
work = pathlib.Path(sys.argv[1])
job = TrainingJob.from_json((work / "task.json").read_text())
learner = job.learner()
learner.load_weights(read_arrays(work / "weights.npz"))
np.save(work / "predictions.npy", learner.predict(packed_batches(job.validation_files, job.feature_map, 64))[1])
"""


@pytest.mark.large(like="tests/pipeline/test_jax_devices.py::test_several_devices_learn_the_model_of_one")
def test_what_jax_learned_on_several_devices_is_what_tensorflow_serves(tmp_path, monkeypatch):
    splits = {"train": rows(2000, 1), "validation": rows(300, 2)}
    for name, batch in splits.items():
        (tmp_path / name).mkdir()
        with PayloadWriter(tmp_path / name, name, payload_schema(SPEC)) as writer:
            writer.write(batch)
    workers, packed = Workers(processes=1), tmp_path / "packed"
    analyze(SPEC, payload_files(tmp_path / "train"), tmp_path / "graph", workers)
    transform(SPEC, tmp_path / "graph", {name: (tmp_path / name, packed / name) for name in splits}, 1, workers)
    graph = tft.TFTransformOutput(str(tmp_path / "graph"))
    fields = feature_map(SPEC, graph)

    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    settings = {"backend": "jax", "distribution": "mirrored", "shard_tables": True, "optimizer": "lazy_adam"}
    training = Training(batch_size=64, epochs=2, learning_rate=0.01, **settings)
    files = [[str(packed / name / "*")] for name in splits]
    result = train(TrainingJob(MODEL, training, fields, *files, 1), tmp_path / "work")
    environment = os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    command = [*python("jax"), "-c", PREDICT, str(tmp_path / "work")]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    expected = np.load(tmp_path / "work" / "predictions.npy")
    assert np.ptp(expected, axis=0).min() > 0.01

    export(result.model, graph, SPEC, fields, splits["train"].slice(0, 3), tmp_path / "1", {})
    [(inputs, _)] = PackedReader(packed_files(packed / "validation"), 300)
    servable = Servable(tmp_path / "1")
    try:
        found = servable.run("serving_packed", inputs)
    finally:
        servable.close()
    assert xla_node(tmp_path / "1") is None
    np.testing.assert_allclose(np.stack([found["ctr"], found["cvr"]], axis=1), expected, atol=1e-6)
