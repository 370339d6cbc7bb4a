"""Version labels (V7, V8)."""

import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2

from ctrpipe.common.errors import InputError
from tests.contract import models, servers
from tests.contract.rpc import POLL, Rpc, add_version, label, model_config, refusal, wait_for

BOTH = "model_version_policy { specific { versions: 1 versions: 2 } }"


@pytest.fixture(scope="module")
def base(model_folder, tmp_path_factory):
    base = tmp_path_factory.mktemp("labelled")
    for number in (1, 2):
        add_version(model_folder / models.FOLDER, base, number)
    return base


@pytest.fixture
def config(base, tmp_path):
    file = tmp_path / "models.config"
    file.write_text(model_config(m=(base, BOTH)))
    return file


def reload(rpc, text):
    request = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(text, request.config)
    return rpc.model.HandleReloadConfigRequest(request, timeout=60)


def not_available(version):
    message = f"Request to assign label to version {version} of model m, which is not currently available for inference"
    return "FAILED_PRECONDITION", message


def test_V7_V8_labels_are_assigned_moved_and_removed(base, config):
    with servers.start([f"--model_config_file={config}", POLL]) as addresses, Rpc(addresses.grpc) as rpc:
        wait_for(lambda: set(rpc.states().values()) == {"AVAILABLE"})
        unknown = ("INVALID_ARGUMENT", "Unrecognized servable version label: stable")
        assert rpc.answering(label="stable") == unknown
        reload(rpc, model_config(m=(base, BOTH, label("stable", 1), label("canary", 2))))
        assert (rpc.answering(label="stable"), rpc.answering(label="canary"), rpc.answering()) == (1, 2, 2)
        reload(rpc, model_config(m=(base, BOTH, label("stable", 2))))
        assert rpc.answering(label="stable") == 2
        assert rpc.answering(label="canary") == ("INVALID_ARGUMENT", "Unrecognized servable version label: canary")


def test_V7_a_label_points_at_an_available_version(base, config):
    with servers.start([f"--model_config_file={config}", POLL]) as addresses, Rpc(addresses.grpc) as rpc:
        wait_for(lambda: set(rpc.states().values()) == {"AVAILABLE"})
        reload(rpc, model_config(m=(base, BOTH, label("stable", 1))))
        moved = model_config(m=(base, BOTH, label("stable", 3)))
        assert refusal(reload, rpc, moved) == not_available(3)
        assert rpc.answering(label="stable") == 1


def test_V7_labels_in_the_first_config_need_the_flag(base, config):
    config.write_text(model_config(m=(base, BOTH, label("stable", 1))))
    flag = "--allow_version_labels_for_unavailable_models=true"
    with servers.start([f"--model_config_file={config}", POLL, flag]) as addresses, Rpc(addresses.grpc) as rpc:
        wait_for(lambda: rpc.answering(label="stable") == 1)
        reload(rpc, model_config(m=(base, BOTH, label("stable", 1), label("canary", 9))))
        assert rpc.answering(label="canary") == ("NOT_FOUND", "Servable not found for request: Specific(m, 9)")
        assert refusal(reload, rpc, model_config(m=(base, BOTH, label("stable", 9)))) == not_available(9)
    if servers.IS_OURS:
        with (
            pytest.raises(InputError, match="not currently available"),
            servers.start([f"--model_config_file={config}"]),
        ):
            pass
