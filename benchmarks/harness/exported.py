"""Reads and analyses a log in a temporary folder, for the export of a model with random weights."""

import pathlib
from typing import Any, NamedTuple

import pyarrow as pa

from ctrpipe.common.processes import Workers
from ctrpipe.models import FeatureMap
from ctrpipe.transforms.features.transform import analyze
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.payload import payload_files
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS


class Analysed(NamedTuple):
    """A log whose training rows have been analysed.

    Attributes:
        transform: tft.TFTransformOutput. The transform graph.
        fields: The description of the packed tensors.
        rows: The log's first rows.
    """

    transform: Any
    fields: FeatureMap
    rows: pa.RecordBatch


def analysed(spec: LogSpec, log: pathlib.Path, seed: int, folder: pathlib.Path) -> Analysed:
    """Reads a log, computes its transform graph in this process, and returns what an export needs.

    Args:
        spec: The description of the log.
        log: The log file.
        seed: Seed of the split.
        folder: A folder that is empty or contains only the log.
    """
    # Imported here: TensorFlow takes 4 s of CPU time, which --help and option errors should not pay.
    import tensorflow_transform as tft

    from ctrpipe.transforms.features.preprocessing import feature_map

    payload = {name: folder / "payload" / name for name in SPLITS}
    for path in payload.values():
        path.mkdir(parents=True)
    here = Workers(processes=1)
    ingest(spec, [str(log)], seed, payload, folder / "dead_letter", here)
    analyze(spec, payload_files(payload["train"]), folder / "graph", here)
    transform = tft.TFTransformOutput(str(folder / "graph"))
    return Analysed(transform, feature_map(spec, transform), next(LogReader(spec).read(str(log))).rows)
