"""Reloads that cannot end keep nobody from the server, nor from later reloads."""

import concurrent.futures
import pathlib
import time
from collections.abc import Iterator

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc, predict_pb2
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from ctrpipe.serving.server import ServerOptions, core, running_server
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.warmup import read_records
from tests.contract.rpc import wait_for


class Double(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(self, x):
        return {"y": 2 * x}


@pytest.fixture(scope="module", name="base")
def base_path(tmp_path_factory) -> pathlib.Path:
    folder, model = tmp_path_factory.mktemp("model"), Double()
    tf.saved_model.save(model, str(folder / "1"), {"serving_default": model.serve})
    return folder


@pytest.fixture(scope="module", name="channel")
def grpc_channel(base) -> Iterator[grpc.Channel]:
    options = ServerOptions(base, "m", grpc_max_threads=2, file_system_poll_wait_seconds=0.1)
    with running_server(options) as addresses, grpc.insecure_channel(addresses.grpc) as channel:
        yield channel


def reload(channel: grpc.Channel, timeout: float, **models: pathlib.Path) -> str:
    """Returns the status."""
    request = model_management_pb2.ReloadConfigRequest()
    for name, path in models.items():
        request.config.model_config_list.config.add(name=name, base_path=str(path), model_platform="tensorflow")
    try:
        model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(request, timeout=timeout)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "OK"


def answers(channel: grpc.Channel) -> bool:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0, 3.0]))
    response = PredictionServiceStub(channel).Predict(request, timeout=20)
    return list(tf.make_ndarray(response.outputs["y"])) == [2.0, 6.0]


def test_a_folder_that_is_not_there_is_refused_and_changes_nothing(channel, base, tmp_path):
    began = time.monotonic()
    for missing in (tmp_path / "none", tmp_path / "a\nb", base / "1" / "saved_model.pb", pathlib.Path("/proc/none")):
        expected = f"NOT_FOUND: Could not find base path {missing} for servable other"
        assert reload(channel, 20, m=base, other=missing) == expected
    assert reload(channel, 20, m=tmp_path / "none").startswith("NOT_FOUND")
    assert time.monotonic() - began < 10
    assert answers(channel)
    assert reload(channel, 20, m=base) == "OK"


def test_nine_reloads_of_a_folder_without_versions_keep_nobody_out(channel, base, tmp_path):
    """More than the server has threads. Each ends at its client's deadline, or at once if too many wait or run."""
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(reload, channel, 2, m=base, empty=tmp_path) for _ in range(9)]
        time.sleep(0.3)
        assert answers(channel)
        found = [future.result() for future in asked]
    assert time.monotonic() - began < 10
    assert {text.partition(":")[0] for text in found} <= {
        "DEADLINE_EXCEEDED",
        "UNAVAILABLE",
        "RESOURCE_EXHAUSTED",
        "OK",
    }
    assert any("4 reloads are under way" in text for text in found)
    # A call whose client has given up may hold its thread for a moment longer.
    wait_for(lambda: reload(channel, 20, m=base) == "OK", 10)
    assert answers(channel)


def test_a_reload_without_a_deadline_gives_up_a_folder_without_versions(channel, base, tmp_path, monkeypatch):
    monkeypatch.setattr(core, "_EMPTY_SECONDS", 0.3)
    # Not `empty`: a reload of the test above, whose client has left, may still make it a model that is known.
    assert reload(channel, 1000, m=base, bare=tmp_path) == "DEADLINE_EXCEEDED: No version of bare was found to load"
    assert reload(channel, 20, m=base) == "OK"


def test_a_version_that_comes_in_time_ends_the_wait(channel, base, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(reload, channel, 20, m=base, late=tmp_path / "late")
        assert asked.result().startswith("NOT_FOUND")
        (tmp_path / "late").mkdir()
        asked = pool.submit(reload, channel, 20, m=base, late=tmp_path / "late")
        time.sleep(0.2)
        (tmp_path / "late" / "1").symlink_to(base / "1")
        assert asked.result() == "OK"
    assert reload(channel, 20, m=base) == "OK"


@pytest.mark.slow
def test_a_config_file_that_stays_wrong_is_logged_once(base, tmp_path, caplog):
    """It was logged at each look, every second for as long as nobody mended it."""
    file = tmp_path / "models.config"
    right = f"model_config_list {{ config {{ name: 'm' base_path: '{base}' model_platform: 'tensorflow' }} }}"
    file.write_text(right)
    options = ServerOptions(model_config_file=file, model_config_file_poll_wait_seconds=0.05)
    with running_server(options):
        for text in (right[:30], "\0", right, right[:30], right):
            replacement = tmp_path / "next"
            replacement.write_text(text)
            replacement.rename(file)
            time.sleep(0.3)
    refused = [record.getMessage() for record in caplog.records if "was not taken over" in record.getMessage()]
    assert len(refused) == 3 and refused[0] == refused[2] != refused[1]


def test_the_message_of_a_warmup_record_that_is_none_is_short(tmp_path):
    """The version's status has it, and every client may ask for that."""
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        writer.write(b"\xff" * 1_000_000)
    with pytest.raises(ServingError, match="Failed to parse warmup record") as error:
        list(read_records(tmp_path / "records"))
    assert len(error.value.message) < 5000 and error.value.message.endswith(f"from {tmp_path}/records")


def test_a_config_file_that_has_not_changed_is_not_parsed_again(base, tmp_path, monkeypatch):
    """Of 3,000 models, each poll took 0.2 s of the interpreter."""
    file, parsed = tmp_path / "models.config", []
    file.write_text("# none yet")
    served = core.ServerCore(ServerOptions(model_config_file=file, file_system_poll_wait_seconds=0))
    read = core.model_config.read_model_config
    monkeypatch.setattr(core.model_config, "read_model_config", lambda path: parsed.append(path) or read(path))
    for text in ("# none", f'model_config_list {{ config {{ name: "m" base_path: "{base}" }} }}', "broken {", "# none"):
        file.write_text(text)
        parsed.clear()
        for _ in range(3):
            served._poll_config()
        assert len(parsed) == (3 if text == "broken {" else 1)  # a mistake is no config that could be kept
    file.unlink()
    served._poll_config()
    assert "cannot be read" in served._refusal
