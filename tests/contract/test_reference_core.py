"""What TF Serving's server_core_test.cc asks of a server's life, and what it expects; a docstring names the tests.

Each runs there twice, with base paths as they are and as file:// URIs; so it does here.
"""

import contextlib
import threading
import time

import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.serving.server.core import ServerCore
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.options import parse_flags
from ctrpipe.serving.server.versions import VersionManager
from tests.contract import models, servers
from tests.contract.rpc import POLL, Rpc, add_version, label, model_config, refusal, wait_for

BOTH = "model_version_policy { all {} }"


@pytest.fixture(scope="module")
def bases(model_folder, tmp_path_factory):
    """Base paths: `one` with the version 123, `two` with 123 and 124."""
    folder = tmp_path_factory.mktemp("core")
    for name, number in (("one", 123), ("two", 123), ("two", 124)):
        add_version(model_folder / models.FOLDER, folder / name, number)
    return folder


@pytest.fixture(scope="module", params=["", "file://"])
def prefix(request):
    return request.param


@pytest.fixture(scope="module")
def rpc(prefix, tmp_path_factory):
    """A server that starts with a config file without models, and new labels may point anywhere."""
    config = tmp_path_factory.mktemp("config") / "models.config"
    config.write_text("# no models yet")
    flags = [f"--model_config_file={config}", POLL, "--allow_version_labels_for_unavailable_models"]
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
        yield rpc


@pytest.fixture
def one(prefix, bases):
    return f"{prefix}{bases / 'one'}"


@pytest.fixture
def two(prefix, bases):
    return f"{prefix}{bases / 'two'}"


def reload(rpc, text):
    request = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(text, request.config)
    return rpc.model.HandleReloadConfigRequest(request, timeout=60)


def gone(name):
    return "NOT_FOUND", f"Servable not found for request: Latest({name})"


def unavailable(version):
    message = f"Request to assign label to version {version} of model m, which is not currently available for inference"
    return "FAILED_PRECONDITION", message


def test_V6_a_reload_waits_until_models_are_available(rpc, one):
    """ReloadConfigWaitsTillModelsAvailable; CreateWaitsTillModelsAvailable, after a start with no model at all."""
    reload(rpc, model_config(m=(one,)))
    assert rpc.states() == {123: "AVAILABLE"} and rpc.answering(version=123) == 123


def test_V6_S2_a_reload_unloads_models_and_loads_them_again(rpc, one):
    """ReloadConfigUnloadsModels, ReloadConfigHandlesLoadingAPreviouslyUnloadedModel."""
    reload(rpc, model_config(m=(one,)))
    reload(rpc, "model_config_list {}")
    wait_for(lambda: set(rpc.states().values()) == {"END"})
    reload(rpc, model_config(m=(one,)))
    assert rpc.answering() == 123


def test_V6_a_reload_changes_the_base_path(rpc, one, two):
    """ReloadConfigChangeModelBasePath."""
    reload(rpc, model_config(m=(one,)))
    assert rpc.answering() == 123
    reload(rpc, model_config(m=(two, BOTH)))
    wait_for(lambda: rpc.answering() == 124)
    reload(rpc, model_config(m=(one,)))
    wait_for(lambda: rpc.answering() == 123 and rpc.states()[124] == "END")


def test_V6_relative_paths_are_refused(rpc, one, two):
    """AbsolutePathSucceeds, RelativePathFails, MixedAbsoluteRelativeFails."""
    reload(rpc, model_config(m=(one,)))
    for entries in ({"m_relative": ("one",)}, {"m": (one,), "m_relative": ("one",)}):
        code, message = refusal(reload, rpc, model_config(**entries))
        assert code == "INVALID_ARGUMENT" and "to have an absolute path or URI; got base_path()=one" in message
    assert rpc.answering() == 123


def test_V6_models_that_are_refused(rpc, one):
    """IllegalConfigModelTypeAndPlatformSet, DuplicateModelNameInConfig, UnknownModelPlatform and
    IllegalToChangeModelPlatform.
    """
    reload(rpc, model_config(m=(one,)))
    for text, message in (
        (model_config(m=(one, "model_type: TENSORFLOW")), "Illegal setting both"),
        (model_config(m=(one,), x=(one,)).replace('"x"', '"m"'), "multiple times in config list"),
        (model_config(m=(one,)).replace('"tensorflow"', '"platform_1"'), "Illegal to change a model's platform"),
        (model_config(x=(one,)).replace('"tensorflow"', '"not_a_known_platform"'), "requests unsupported platform"),
    ):
        code, found = refusal(reload, rpc, text)
        assert code == "INVALID_ARGUMENT" and message in found
    assert rpc.answering() == 123


def test_V6_the_deprecated_type_of_a_model(rpc, one):
    """DeprecatedModelTypeConfig."""
    text = model_config(typed=(one,)).replace('model_platform: "tensorflow"', "model_type: TENSORFLOW")
    reload(rpc, text)
    assert rpc.answering("typed", version=123) == 123


def test_V6_some_models_stay_some_go_and_some_come(rpc, one):
    """MultiplePlatforms and MultiplePlatformsWithConfigChange, with models of the one platform that there is."""
    reload(rpc, model_config(a=(one,), b=(one,)))
    assert (rpc.answering("a"), rpc.answering("b"), rpc.answering("c")) == (123, 123, gone("c"))
    reload(rpc, model_config(b=(one,), c=(one,)))
    wait_for(lambda: rpc.answering("a") == gone("a"))
    assert (rpc.answering("b"), rpc.answering("c")) == (123, 123)


def test_V3_V7_P4_versions_and_labels(rpc, two):
    """ModelSpecMultipleVersionsAvailable."""
    reload(rpc, model_config(m=(two, BOTH)))
    wait_for(lambda: rpc.states() == {123: "AVAILABLE", 124: "AVAILABLE"})
    assert (rpc.answering(), rpc.answering(version=123)) == (124, 123)
    reload(rpc, model_config(m=(two, BOTH, label("A", 123), label("B", 124))))
    assert (rpc.answering(label="A"), rpc.answering(label="B")) == (123, 124)
    unknown = "INVALID_ARGUMENT", "Unrecognized servable version label: nonexistent label"
    assert rpc.answering(label="nonexistent label") == unknown


def test_V7_labels_of_versions_that_are_not_available(rpc, two):
    """AssignLabelToUnavailableVersionAllowed, AssignExistingLabelToUnavailableVersionDisallowed."""
    reload(rpc, model_config(m=(two, BOTH)))
    wait_for(lambda: rpc.states() == {123: "AVAILABLE", 124: "AVAILABLE"})
    reload(rpc, model_config(m=(two, BOTH, label("nice try", 999))))
    reload(rpc, model_config(m=(two, BOTH, label("A", 123), label("B", 124))))
    assert refusal(reload, rpc, model_config(m=(two, BOTH, label("A", 999)))) == unavailable(999)
    assert rpc.answering(label="A") == 123


@contextlib.contextmanager
def core(tmp_path, text):
    """The models of a config file, without ports."""
    if not servers.IS_OURS:
        pytest.skip(f"{servers.OURS_ALONE}: a binary has no port for such a config")
    (tmp_path / "models.config").write_text(text)
    found = ServerCore(parse_flags([f"--model_config_file={tmp_path / 'models.config'}", POLL]))
    found.start()
    try:
        yield found
    finally:
        found.stop()


def test_V7_a_label_of_a_version_that_is_not_available(tmp_path, two):
    """AssignLabelToUnavailableVersion, without the flag."""
    with core(tmp_path, model_config(m=(two, BOTH))) as found:
        config = text_format.Parse(model_config(m=(two, BOTH, label("nice try", 999))), type(found._config)())
        with pytest.raises(ServingError) as error:
            found.reload(config)
        assert (error.value.code, error.value.message) == unavailable(999)


def test_V6_a_list_of_models_stays_one(tmp_path, one):
    """IllegalReconfigurationToCustomConfig."""
    with core(tmp_path, model_config(m=(one,))) as found:
        with pytest.raises(ServingError, match="Cannot transition to requested config"):
            found.reload(text_format.Parse("custom_model_config {}", type(found._config)()))


def test_V6_a_model_that_a_reload_removes_while_folders_are_read_stays_removed(tmp_path, one, monkeypatch):
    read, reloaded = VersionManager.scan, threading.Event()
    with core(tmp_path, model_config(m=(one,))) as found:

        def scan(manager):
            present = read(manager)
            if not reloaded.is_set():
                found.reload(text_format.Parse("model_config_list {}", type(found._config)()))
                reloaded.set()
            return present

        monkeypatch.setattr(VersionManager, "scan", scan)  # the next to call it is the thread that polls
        assert reloaded.wait(10)
        wait_for(lambda: [version.state for version in found.status("m")] == ["END"])
        time.sleep(0.3)  # three polls
        assert [version.state for version in found.status("m")] == ["END"]


def test_V6_a_config_of_another_kind_does_not_start(tmp_path):
    """Of IllegalReconfigurationFromCustomConfig what the binary does: its loader of such a config is an error."""
    with pytest.raises(InputError, match="ModelServer does not yet support custom model config"):
        with core(tmp_path, "custom_model_config {}"):
            pass


def test_V12_a_model_that_cannot_be_loaded(tmp_path, prefix):
    """ErroringModel."""
    (tmp_path / "m" / "123").mkdir(parents=True)
    (tmp_path / "models.config").write_text(model_config(m=(f"{prefix}{tmp_path / 'm'}",)))
    found = ServerCore(
        parse_flags([f"--model_config_file={tmp_path / 'models.config'}", "--max_num_load_retries=0", POLL])
    )
    with pytest.raises(InputError, match=r"1 servable\(s\) did not become available"):
        found.start()
    [version] = found.status("m")
    assert (version.number, version.state, version.error_code) == (123, "END", "NOT_FOUND")
    found.stop()
