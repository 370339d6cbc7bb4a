"""TFX's Pusher with an atomic rename: a version appears in the push folder complete or not at all.

A model that is already the newest version is not pushed again. This happens if a changed gate or baseline evaluates the
same model again, or if a process was killed after the rename and before ML Metadata recorded the push.
"""

import filecmp
import json
import pathlib
import shutil
from typing import Any

from tfx import types
from tfx.components.pusher import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.proto import pusher_pb2
from tfx.types import standard_component_specs as specs
from tfx.utils import proto_utils

from ctrpipe.common.progress import announce
from ctrpipe.common.store_folders import MANIFEST
from ctrpipe.serving.layout import newest_version

PUSH_AGAIN = "push_again"  # key of custom_config: push even if the newest version is the same model


class Executor(executor.Executor):
    """Pushes a blessed model, unless the newest version is the same model and PUSH_AGAIN is not set."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        destination = pusher_pb2.PushDestination()
        proto_utils.json_to_proto(exec_properties[specs.PUSH_DESTINATION_KEY], destination)
        base = pathlib.Path(destination.filesystem.base_directory)
        staging = base.parent.parent / ".push-staging"  # next to models/, because a rename needs one file system
        shutil.rmtree(staging, ignore_errors=True)
        newest = newest_version(base)
        push_again = (json.loads(exec_properties[specs.CUSTOM_CONFIG_KEY]) or {}).get(PUSH_AGAIN)
        if newest and not push_again and self.CheckBlessing(input_dict):
            model, pushed = pathlib.Path(self.GetModelPath(input_dict)), output_dict[specs.PUSHED_MODEL_KEY][0]
            if _are_alike(model, newest):
                announce(f"{newest}: has this model already; not pushed again (serving.push_again)")
                shutil.copytree(model, pushed.uri, dirs_exist_ok=True)
                self._MarkPushed(pushed, str(newest), newest.name)
                return
        destination.filesystem.base_directory = str(staging)
        staged = {**exec_properties, specs.PUSH_DESTINATION_KEY: proto_utils.proto_to_json(destination)}
        super().Do(input_dict, output_dict, staged)
        for written in staging.iterdir() if staging.exists() else ():
            version = max(int(written.name), int(newest.name) + 1 if newest else 0)
            base.mkdir(parents=True, exist_ok=True)
            final = written.rename(base / str(version))
            self._MarkPushed(output_dict[specs.PUSHED_MODEL_KEY][0], str(final), str(version))
        shutil.rmtree(staging, ignore_errors=True)


def _are_alike(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Returns whether two folders hold the same files with the same contents."""
    ours, theirs = (
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST}
        for folder in (one, other)
    )
    # Small files first: different models already differ in them.
    names = sorted(ours, key=lambda name: (one / name).stat().st_size)
    return ours == theirs and all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


class AtomicPusher(component.Pusher):
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
