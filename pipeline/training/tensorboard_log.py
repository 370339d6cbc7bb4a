"""Writes the evaluations of a training run for TensorBoard."""

import os
import pathlib
import time
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


class TensorBoardLog:
    """A TensorBoard event file of the evaluations, written without TensorFlow, which a JAX process does not load."""

    def __init__(self, folder: pathlib.Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"

    def write(self, numbers: dict[str, Any]) -> None:
        """Appends the metrics of an evaluation at its `step`. Metrics that are None are left out."""
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in numbers.items()
            if name != "step" and value is not None
        ]
        event = Event(wall_time=time.time(), step=numbers["step"], summary=Summary(value=values))
        with self._path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())
