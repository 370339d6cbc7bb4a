"""The list of models and its reloads (V6, V9, V14)."""

import contextlib

import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2

from ctrpipe.common.errors import InputError
from tests.contract import models, servers
from tests.contract.rpc import POLL, Rpc, add_version, label, model_config, refusal, wait_for


@pytest.fixture(scope="module")
def bases(model_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    for name, number in (("a", 1), ("b", 2)):
        add_version(model_folder / models.FOLDER, folder / name, number)
    return folder


@pytest.fixture(scope="module")
def config(bases, tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "models.config"
    file.write_text(model_config(a=(bases / "a",)))
    return file


@pytest.fixture(scope="module")
def rpc(config):
    flags = [f"--model_config_file={config}", POLL, "--max_num_load_retries=2", "--load_retry_interval_micros=-1"]
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
        yield rpc


def reload(rpc, text, *metrics):
    request = model_management_pb2.ReloadConfigRequest(metric_names=metrics)
    text_format.Parse(text, request.config)
    return rpc.model.HandleReloadConfigRequest(request, timeout=60)


def test_G2_a_reload_says_how_much_the_named_metrics_have_grown(rpc, bases):
    reload(rpc, model_config(a=(bases / "a",)))
    names = ["/tensorflow/serving/model_warmup_records_read", "/tensorflow/serving/request_latency", "/none"]
    answer = reload(rpc, model_config(a=(bases / "a",)), *names)
    assert {one.name: one.int64_value_increase for one in answer.metric} == dict.fromkeys(names, 0)


def test_V6_V9_a_reload_replaces_the_whole_list(rpc, bases):
    assert rpc.answering("a") == 1
    answer = reload(rpc, model_config(a=(bases / "a",), b=(bases / "b",)))
    assert answer.status.error_code == 0
    assert (rpc.answering("a"), rpc.answering("b")) == (1, 2)
    reload(rpc, model_config(b=(bases / "b",)))
    wait_for(lambda: rpc.answering("a") == ("NOT_FOUND", "Servable not found for request: Latest(a)"))
    assert rpc.answering("b") == 2
    reload(rpc, model_config(a=(bases / "a",)))
    wait_for(lambda: rpc.answering("a") == 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            model_config(a=("/x",), b=("/y",)).replace('"b"', '"a"'),
            "Illegal to list model a multiple times in config list",
        ),
        (model_config(c=("relative",)), "Expected model c to have an absolute path or URI; got base_path()=relative"),
        (
            model_config(a=("/x",)).replace('"tensorflow"', '"other"'),
            "Illegal to change a model's platform. For model a platform was tensorflow and new platform requested is "
            "other",
        ),
        ("custom_model_config {}", "Only ModelConfigList is currently supported"),
        ("", "Only ModelConfigList is currently supported"),
    ],
)
def test_V6_what_is_refused_changes_nothing(rpc, text, message):
    code, found = refusal(reload, rpc, text)
    assert code == "INVALID_ARGUMENT" and message in found
    assert rpc.answering("a") == 1


BASE = "<a folder with versions>"
OTHER = model_config(c=(BASE,)).replace('"tensorflow"', '"other"')
NEITHER = f'model_config_list {{ config {{ name: "c" base_path: "{BASE}" }} }}'
BOTH = model_config(c=(BASE, "model_type: TENSORFLOW"))
NEITHER_TEXT = (
    "Illegal setting neither ModelServerConfig::model_type (deprecated) nor ModelServerConfig::model_platform, "
    "model name is c"
)
BOTH_TEXT = NEITHER_TEXT.replace("neither", "both").replace("nor", "and")
CHANGED = (
    "Illegal to change a model's platform. For model c platform was other and new platform requested is tensorflow"
)


@pytest.mark.parametrize(
    ("stored", "first", "later", "second"),
    [
        (OTHER, "Model c requests unsupported platform other", model_config(c=(BASE,)), CHANGED),
        # Whatever comes later, the platform of the stored list's models is asked for.
        (NEITHER, NEITHER_TEXT, model_config(b=(BASE,)), NEITHER_TEXT),
        (BOTH, BOTH_TEXT, model_config(b=(BASE,)), BOTH_TEXT),
    ],
)
def test_V6_what_fails_after_it_is_stored_is_compared_with_later_ones(config, bases, stored, first, later, second):
    with servers.start([f"--model_config_file={config}", POLL]) as addresses, Rpc(addresses.grpc) as rpc:
        assert refusal(reload, rpc, stored.replace(BASE, str(bases / "b"))) == ("INVALID_ARGUMENT", first)
        assert rpc.answering("a") == 1
        assert refusal(reload, rpc, later.replace(BASE, str(bases / "b"))) == ("INVALID_ARGUMENT", second)
        assert rpc.answering("a") == 1


def test_V6_a_platform_that_is_not_known_can_be_left_out_again(config, bases):
    with servers.start([f"--model_config_file={config}", POLL]) as addresses, Rpc(addresses.grpc) as rpc:
        assert refusal(reload, rpc, OTHER.replace(BASE, str(bases / "b")))[0] == "INVALID_ARGUMENT"
        reload(rpc, model_config(b=(bases / "b",)))
        assert rpc.answering("b") == 2
        wait_for(lambda: rpc.answering("a")[0] == "NOT_FOUND")


def test_V6_the_labels_of_a_config_count_before_its_platforms(config, bases):
    """Labels are taken over, then the platform of the new model is refused."""
    with servers.start([f"--model_config_file={config}", POLL]) as addresses, Rpc(addresses.grpc) as rpc:
        labelled = model_config(a=(bases / "a", label("stable", 1)))
        both = labelled[:-2] + OTHER.replace(BASE, str(bases / "b")).removeprefix("model_config_list {\n")
        assert refusal(reload, rpc, both) == ("INVALID_ARGUMENT", "Model c requests unsupported platform other")
        assert rpc.answering("a", label="stable") == 1


def test_V6_a_comment_is_a_config_without_models_and_an_empty_file_is_none(bases, tmp_path):
    file = tmp_path / "models.config"
    file.write_text("# nothing yet\n")
    with servers.start([f"--model_config_file={file}", POLL]) as addresses, Rpc(addresses.grpc) as rpc:
        assert rpc.states("a") == {}
        reload(rpc, model_config(a=(bases / "a",)))
        assert rpc.answering("a") == 1
    file.write_text("")
    if servers.IS_OURS:
        with pytest.raises(InputError, match="an empty file"), servers.start([f"--model_config_file={file}"]):
            pass


def test_V6_a_new_model_that_does_not_load_is_told(rpc, bases, tmp_path):
    (tmp_path / "1").mkdir()
    code, message = refusal(reload, rpc, model_config(a=(bases / "a",), broken=(tmp_path,)))
    assert code == "UNKNOWN" and message.startswith("1 model(s) did not become available: {{{name: broken version: 1}")
    assert rpc.answering("a") == 1
    reload(rpc, model_config(a=(bases / "a",)))


def test_V14_a_log_of_requests_is_refused_when_the_models_are_loaded(rpc, bases):
    logged = "logging_config { sampling_config { sampling_rate: 1 } }"
    text = model_config(a=(bases / "a",), b=(bases / "b", logged))
    assert refusal(reload, rpc, text) == ("INVALID_ARGUMENT", "No request-logger-creator provided.")
    assert rpc.answering("b") == 2
    reload(rpc, model_config(a=(bases / "a",)))


def test_V9_the_config_file_is_polled(bases, tmp_path):
    file = tmp_path / "models.config"
    file.write_text(model_config(a=(bases / "a",)))
    flags = [f"--model_config_file={file}", "--model_config_file_poll_wait_seconds=1", POLL]
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
        file.write_text("model_config_list { config {")  # a mistake is logged
        file.write_text(model_config(a=(bases / "a",), b=(bases / "b",)))
        wait_for(lambda: rpc.answering("b") == 2)
        assert rpc.answering("a") == 1


def test_V9_without_the_flag_it_is_read_once(rpc, config, bases):
    config.write_text(model_config(a=(bases / "a",), b=(bases / "b",)))
    assert rpc.answering("b")[0] == "NOT_FOUND"


@servers.ours_alone("a binary ends with its own words")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model_config_list { config { nome: 'a' } }",
            "models.config: Error parsing text-format tensorflow.serving.ModelServerConfig: line 1:30",
        ),
        (model_config(a=("relative",)), "models.config: Expected model a to have an absolute path"),
        (model_config(a=("/x", "logging_config {}")), "models.config: No request-logger-creator provided."),
    ],
)
def test_V6_a_mistake_in_the_file_is_one_line(tmp_path, text, message):
    file = tmp_path / "models.config"
    file.write_text(text)
    with pytest.raises(InputError) as error, servers.start([f"--model_config_file={file}"]):
        pass
    assert message in str(error.value) and "\n" not in str(error.value)


# Ours alone: TF Serving lets any client load any folder ---------------------------------------------------------------


@contextlib.contextmanager
def serving(base, *flags):
    if not servers.IS_OURS:
        pytest.skip(f"{servers.OURS_ALONE}: TF Serving lets any client load any folder")
    with servers.start([f"--model_base_path={base}", "--model_name=a", POLL, *flags]) as addresses:
        with Rpc(addresses.grpc) as rpc:
            yield rpc


def test_a_port_of_the_network_takes_no_reload(bases):
    with serving(bases / "a", "--host=0.0.0.0") as rpc:
        code, message = refusal(reload, rpc, model_config(a=(bases / "a",)))
        assert code == "PERMISSION_DENIED" and "--allow_reload_from_network" in message
        assert rpc.answering("a") == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_reload_adds_only_what_lies_below_the_roots(bases, tmp_path, host):
    for root in ("inside", "outside"):
        add_version(bases / "b" / "2", tmp_path / root, 1)
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside")
    flags = [
        f"--host={host}",
        "--allow_reload_from_network",
        f"--allowed_model_roots={tmp_path}/none,{tmp_path}/inside",
    ]
    with serving(bases / "a", *flags) as rpc:
        for path in (tmp_path / "outside", tmp_path / "inside" / ".." / "outside", tmp_path / "inside" / "link", "/"):
            code, message = refusal(reload, rpc, model_config(a=(bases / "a",), c=(path,)))
            assert code == "PERMISSION_DENIED" and "Model c" in message and "--allowed_model_roots" in message
        assert rpc.answering("a") == 1
        reload(rpc, model_config(a=(bases / "a",), c=(f"file://{tmp_path}/inside",)))
        assert (rpc.answering("a"), rpc.answering("c")) == (1, 1)


def test_without_roots_the_network_may_only_change_what_is_served(bases):
    with serving(bases / "a", "--host=0.0.0.0", "--allow_reload_from_network") as rpc:
        assert refusal(reload, rpc, model_config(b=(bases / "b",)))[0] == "PERMISSION_DENIED"
        reload(rpc, model_config(a=(bases / "a", label("stable", 1))))
        assert rpc.answering("a", label="stable") == 1
