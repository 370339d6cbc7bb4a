"""What is pushed, as which version, and what is not pushed again."""

import pathlib

import pytest
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts
from tfx.types import standard_component_specs as specs
from tfx.utils import proto_utils

from ctrpipe.pipeline.components import SERVABLE
from ctrpipe.pipeline.components.atomic_pusher import Executor


class Push:
    """A trained model, and pushes of it."""

    def __init__(self, folder: pathlib.Path):
        self.models = folder / "out" / "models" / "ctr"
        self.servable = folder / "model" / SERVABLE
        (self.servable / "variables").mkdir(parents=True)
        (self.servable / "saved_model.pb").write_bytes(b"graph")
        (self.servable / "variables" / "weights").write_bytes(b"weights")
        self._folder, self._pushes = folder, 0

    def __call__(self, blessed: bool = True, custom_config: str = "null") -> standard_artifacts.PushedModel:
        self._pushes += 1
        model, blessing = standard_artifacts.Model(), standard_artifacts.ModelBlessing()
        pushed = standard_artifacts.PushedModel()
        model.uri, pushed.uri = str(self._folder / "model"), str(self._folder / f"pushed-{self._pushes}")
        blessing.set_int_custom_property("blessed", int(blessed))
        to = pusher_pb2.PushDestination.Filesystem(base_directory=str(self.models))
        destination = proto_utils.proto_to_json(pusher_pb2.PushDestination(filesystem=to))
        Executor().Do(
            {specs.MODEL_KEY: [model], specs.MODEL_BLESSING_KEY: [blessing]},
            {specs.PUSHED_MODEL_KEY: [pushed]},
            {specs.PUSH_DESTINATION_KEY: destination, specs.CUSTOM_CONFIG_KEY: custom_config},
        )
        return pushed

    def versions(self) -> list[int]:
        return sorted(int(path.name) for path in self.models.iterdir())


@pytest.fixture
def push(tmp_path) -> Push:
    return Push(tmp_path)


def version_of(pushed: standard_artifacts.PushedModel) -> int:
    assert pushed.get_int_custom_property("pushed") == 1
    return int(pushed.get_string_custom_property("pushed_version"))


def test_a_model_is_pushed_whole(push):
    pushed = push()
    [version] = push.versions()
    assert version_of(pushed) == version
    assert pushed.get_string_custom_property("pushed_destination") == str(push.models / str(version))
    assert (push.models / str(version) / "variables" / "weights").read_bytes() == b"weights"
    assert [path.name for path in push.models.parents[1].iterdir()] == ["models"]  # nothing beside it is left


def test_the_newest_version_is_not_pushed_again(push, capfd):
    version = version_of(push())
    again = push()
    assert version_of(again) == version and push.versions() == [version]
    assert f"{push.models}/{version}: has this model already; not pushed again" in capfd.readouterr().err
    assert (pathlib.Path(again.uri) / "variables" / "weights").read_bytes() == b"weights"


def test_it_is_pushed_again_where_the_user_asks(push):
    version = version_of(push())
    assert version_of(push(custom_config='{"push_again": false}')) == version
    assert version_of(push(custom_config='{"push_again": true}')) > version and len(push.versions()) == 2


@pytest.mark.parametrize("name", ["variables/weights", "variables/more"])
def test_another_model_is_pushed_and_so_is_the_one_before_it_after_that(push, name):
    first = version_of(push())
    (push.servable / name).write_bytes(b"changed")
    second = version_of(push())
    (push.servable / "variables" / "more").unlink(missing_ok=True)
    (push.servable / "variables" / "weights").write_bytes(b"weights")
    third = version_of(push())
    assert first < second < third and push.versions() == [first, second, third]


def test_a_damaged_version_does_not_keep_the_model_from_being_pushed(push):
    version = version_of(push())
    (push.models / str(version) / "saved_model.pb").write_bytes(b"grap")
    assert version_of(push()) > version


def test_a_model_that_is_not_blessed_is_not_pushed(push):
    version = version_of(push())
    assert push(blessed=False).get_int_custom_property("pushed") == 0
    assert push.versions() == [version]
