"""Kills pushes of one model, in a process of its own, which forks itself for each push.

A moment is a share of the time that a push takes here, or `before:N` and `after:N`: the Nth rename of a folder.
Each is killed in a copy of this process, in a separate folder, and then done again. Writes, as JSON, by moment how
it ended, the versions that were there before the second try and after it, and the one that ML Metadata has recorded.
"""

import json
import os
import pathlib
import signal
import threading
import time

from ctrpipe.common.libraries import load_tensorflow

load_tensorflow()

from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter  # noqa: E402
from tfx.dsl.component.experimental.decorators import component  # noqa: E402
from tfx.orchestration import metadata  # noqa: E402
from tfx.orchestration.pipeline import Pipeline  # noqa: E402
from tfx.proto import pusher_pb2  # noqa: E402
from tfx.types.standard_artifacts import Model, ModelBlessing  # noqa: E402

from ctrpipe.pipeline.components.atomic_pusher import AtomicPusher  # noqa: E402
from ctrpipe.pipeline.run.artifacts import Artifacts  # noqa: E402
from ctrpipe.pipeline.run.local_runner import _AnnouncingRunner  # noqa: E402
from ctrpipe.serving.layout import versions  # noqa: E402

FOUND = "found.json"


@component
def BlessedModel(model: OutputArtifact[Model], blessing: OutputArtifact[ModelBlessing], size: Parameter[int]) -> None:
    """Writes a model of some files and blesses it."""
    folder = pathlib.Path(model.uri) / "Format-Serving" / "variables"
    folder.mkdir(parents=True)
    (folder.parent / "saved_model.pb").write_bytes(b"graph")
    for number in range(20):
        (folder / f"variables.{number}").write_bytes(os.urandom(size))
    blessing.set_int_custom_property("blessed", 1)


def push(output: pathlib.Path) -> None:
    made = BlessedModel(size=100_000)
    destination = pusher_pb2.PushDestination.Filesystem(base_directory=str(output / "models" / "ctr"))
    pusher = AtomicPusher(
        model=made.outputs["model"],
        model_blessing=made.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(filesystem=destination),
    )
    database = str(output / "metadata.sqlite")
    graph = Pipeline(
        pipeline_name="push",
        pipeline_root=str(output / "artifacts"),
        components=[made, pusher],
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(database),
    )
    _AnnouncingRunner().run(graph)


def die(moment: str, push_seconds: float) -> None:
    """Kills this process at the moment."""
    if ":" not in moment:
        seconds = float(moment) * push_seconds
        threading.Thread(
            target=lambda: (time.sleep(seconds), os.kill(os.getpid(), signal.SIGKILL)), daemon=True
        ).start()
        return
    when, number = moment.split(":")
    rename, seen = os.rename, [0]

    def killing(*arguments):
        seen[0] += 1
        if when == "after":
            rename(*arguments)
        if seen[0] == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        if when == "before":
            rename(*arguments)

    os.rename = killing  # as pathlib calls it


def in_copy(output: pathlib.Path, moment: str | None, push_seconds: float = 0.0) -> int:
    copy = os.fork()
    if not copy:
        try:
            if moment:
                die(moment, push_seconds)
            push(output)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])


def whole_push(output: pathlib.Path) -> float:
    """Returns the seconds of a push that is not killed."""
    output.mkdir()
    began = time.monotonic()
    assert in_copy(output, None) == 0
    return time.monotonic() - began


def main(folder: pathlib.Path, moments: list[str]) -> None:
    push_seconds = 0.0
    if not all(":" in moment for moment in moments):
        push_seconds = min(whole_push(folder / f"whole{number}") for number in range(3))  # the first reads cold files
    found = []
    for number, moment in enumerate(moments):
        output = folder / str(number)
        output.mkdir()
        base = output / "models" / "ctr"
        ended = in_copy(output, moment, push_seconds)
        between = [path.name for path in versions(base)]
        assert in_copy(output, None) == 0
        after = [path.name for path in versions(base)]
        recorded = Artifacts(output / "metadata.sqlite", "push").property(
            "AtomicPusher", "pushed_model", "pushed_version"
        )
        found.append([moment, ended, between, after, recorded, sorted(path.name for path in output.glob(".*"))])
    (folder / FOUND).write_text(json.dumps(found))
