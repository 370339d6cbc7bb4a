"""Writes a split of the payload for TFX's BulkInferrer, as tf.Examples in a gzip TFRecord."""

import json
import pathlib

import tensorflow as tf
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples

from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.payload import payload_files, read_payload


@component
def ExamplesForInference(
    payload: InputArtifact[Examples],
    examples: OutputArtifact[Examples],
    split: Parameter[str],
    code_version: Parameter[str],
) -> None:
    """Writes the rows of a split, including labels. For `code_version` see ctrpipe.pipeline.components."""
    folder = f"Split-{split}"
    examples.split_names = json.dumps([split])
    write_examples(pathlib.Path(payload.uri) / folder, pathlib.Path(examples.uri) / folder)


def write_examples(payload: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the rows of a split's payload, in their order, to one file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    options = tf.io.TFRecordOptions(compression_type="GZIP", compression_level=1)
    with tf.io.TFRecordWriter(str(folder / "data_tfrecord-00000-of-00001.gz"), options) as writer:
        for rows in read_payload(payload_files(payload)):
            for example in to_examples(rows):
                writer.write(example)
