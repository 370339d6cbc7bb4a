"""Preprocesses a log by TFX's own components, as TFX's tutorials do.

    python -m benchmarks.harness.stock_preprocess \
        '{"files": <folder with train/, valid/, test/>, "folder": ..., "top_k": 5000}'

The folders hold CSV with a header line; `folder` receives what TFX writes. Prints {"transform_graph": folder}.
"""

import json
import pathlib
import sys
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tfx import v1 as tfx
from tfx.proto import example_gen_pb2, transform_pb2

from ctrpipe.pipeline.run.artifacts import Artifacts

NAME = "stock"
NUMBERS = [f"I{index}" for index in range(1, 14)]
VALUES = [f"C{index}" for index in range(1, 27)]
SPLITS = ("train", "valid", "test")


def preprocessing_fn(inputs: dict[str, Any], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Returns the label, ids by frequency (-1 beyond `top_k`, -2 if missing), and logarithmic buckets of numbers."""
    outputs = {"label": inputs["label"]}
    for name in NUMBERS:
        outputs[name] = log_bucket(tf.cast(dense(inputs[name], -1), tf.float32))
    for name in VALUES:
        ids = tft.compute_and_apply_vocabulary(inputs[name], top_k=custom_config["top_k"], vocab_filename=name)
        outputs[name] = dense(ids, -2)
    return outputs


def dense(values: tf.Tensor | tf.SparseTensor, default: int) -> tf.Tensor:
    """Returns a column as a dense tensor [N, 1]; the input is sparse if values are missing."""
    if isinstance(values, tf.SparseTensor):
        shape = [values.dense_shape[0], 1]
        return tf.sparse.to_dense(tf.SparseTensor(values.indices, values.values, shape), default)
    return values


def log_bucket(values: tf.Tensor) -> tf.Tensor:
    """Returns 2 + floor(ln x) for x >= 1, and two buckets below 1."""
    return tf.cast(tf.where(values >= 1, 2 + tf.math.floor(tf.math.log(values)), tf.sign(values + 0.5)), tf.int64)


def main(request: dict[str, Any]) -> dict[str, str]:
    splits = [example_gen_pb2.Input.Split(name=name, pattern=f"{name}/*.csv") for name in SPLITS]
    files = example_gen_pb2.Input(splits=splits)
    examples = tfx.components.CsvExampleGen(input_base=request["files"], input_config=files)
    statistics = tfx.components.StatisticsGen(examples=examples.outputs["examples"])
    schema = tfx.components.SchemaGen(statistics=statistics.outputs["statistics"])
    transform = tfx.components.Transform(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn="benchmarks.harness.stock_preprocess.preprocessing_fn",
        splits_config=transform_pb2.SplitsConfig(analyze=["train"], transform=SPLITS),
        custom_config={"top_k": request["top_k"]},
    )
    folder = pathlib.Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "metadata.sqlite"
    pipeline = tfx.dsl.Pipeline(
        pipeline_name=NAME,
        pipeline_root=str(folder / "artifacts"),
        components=[examples, statistics, schema, transform],
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(str(database)),
        beam_pipeline_args=["--direct_running_mode=in_memory", "--direct_num_workers=1"],
    )
    tfx.orchestration.LocalDagRunner().run(pipeline)
    return {"transform_graph": str(Artifacts(database, NAME).folder("Transform", "transform_graph"))}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
