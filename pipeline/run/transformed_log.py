"""A transformed log, for training outside a pipeline."""

import dataclasses
import json
import pathlib

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.run.inputs import RunInputs
from ctrpipe.transforms.features.start_vectors import start_vectors_of
from ctrpipe.transforms.log.files import FileState


@dataclasses.dataclass(frozen=True)
class TransformedLog:
    """The outputs of a pipeline up to Transform.

    Attributes:
        train, validation, test: Glob patterns of each split's packed files.
        feature_map: The description of the packed tensors.
        payload: Folder of the checked log, with `Split-train` and so on.
        inputs: The run's inputs, for fingerprints.
        graph: Folder of the transform graph.
    """

    train: list[str]
    validation: list[str]
    test: list[str]
    feature_map: FeatureMap
    payload: pathlib.Path
    inputs: RunInputs
    graph: pathlib.Path

    @property
    def start_vectors(self) -> str:
        """The file with the initial vectors of embeddings; "" for none."""
        return start_vectors_of(self.graph)

    def to_json(self) -> str:
        """Returns the log's paths and fingerprints as JSON, for a process on another machine that sees its files."""
        inputs = self.inputs
        return json.dumps(
            {
                **{name: getattr(self, name) for name in ("train", "validation", "test")},
                "feature_map": self.feature_map.to_json(),
                "payload": str(self.payload),
                "graph": str(self.graph),
                "files": inputs.files,
                "data_fingerprint": inputs.data_fingerprint,
                "states": inputs.states,
                "output": str(inputs.output),
                "checkpoints": inputs.checkpoints,
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> "TransformedLog":
        """Returns the log from the result of `to_json`."""
        values = json.loads(text)
        inputs = RunInputs(
            tuple(values["files"]),
            values["data_fingerprint"],
            {path: FileState(*state) for path, state in values["states"].items()},
            pathlib.Path(values["output"]),
            baseline_version="",
            checkpoints=values["checkpoints"],
        )
        return cls(
            values["train"],
            values["validation"],
            values["test"],
            FeatureMap.from_json(values["feature_map"]),
            pathlib.Path(values["payload"]),
            inputs,
            pathlib.Path(values["graph"]),
        )
