import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import httpx
import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.common import processes
from ctrpipe.common.errors import InputError
from ctrpipe.common.stores import UnreachableError
from ctrpipe.serving.server import ServerOptions, parse_flags, running_server, serve
from ctrpipe.serving.server import run as server_run
from ctrpipe.serving.server.model_config import policy, single_model
from ctrpipe.serving.server.options import set_environment, with_found_folder
from ctrpipe.serving.server.run import GRACE_SECONDS, when_there
from ctrpipe.serving.server.versions import Policy
from ctrpipe.serving.stored import split_version
from tests.contract import models, servers
from tests.contract.rpc import Rpc
from tests.e2e.small_run import call, one_line, start
from tests.warm_processes import start_warm


@pytest.fixture
def taken():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"rest_api_port": "taken"}, "choose another --rest_api_port"),
        ({"port": "taken"}, "choose another --port"),
        ({"port": 0}, "--port and --rest_api_port are both 0"),
        (
            {"host": "256.0.0.1", "rest_api_port": 1},
            "Cannot listen on 256.0.0.1:1: Name or service not known; choose another --host",
        ),
        ({"host": "192.0.2.1", "rest_api_port": 1}, "choose another --host"),
        ({"host": "127.1"}, "Cannot listen on 127.1:8500 for gRPC; choose another --port or --host"),
        ({"model_base_path": None}, "nothing to serve; give --model_base_path"),
        ({"model_config_file": pathlib.Path("absent")}, "absent: cannot be read"),
        ({"ssl_config_file": pathlib.Path("absent")}, "absent: cannot be read"),
        ({"grpc_channel_arguments": "a=1,b"}, "b is not KEY=VALUE"),
        ({"rest_api_busy_poll_micros": -1}, "it must be 0 or more"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path, taken, flags, message):
    flags = {name: taken if value == "taken" else value for name, value in flags.items()}
    with pytest.raises(InputError) as error:
        serve(ServerOptions(**{"model_base_path": tmp_path, "model_name": "m", **flags}))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_too_few_files_are_one_line(small_model, free_port, monkeypatch):
    """With 64 files, one of 160 connections was reset: the server's own files and its connections did not fit."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 64))
    with pytest.raises(InputError, match="may have 64 files open, and a server needs 128"):
        serve(ServerOptions(small_model, "m", port=free_port), lambda _: os.kill(os.getpid(), signal.SIGTERM))


@pytest.mark.slow
def test_a_port_of_grpc_that_is_taken_is_one_line_of_the_process(tmp_path, taken):
    with start("serve", f"--model_base_path={tmp_path}", f"--port={taken}", stderr=subprocess.PIPE) as process:
        _, said = process.communicate()
    assert process.returncode == 2 and said.count("\n") == 1 and "choose another --port" in said, said


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_another_thread_takes_ends_the_server(small_model, free_port, number):
    def ready(addresses):
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), number)).start()

    before = signal.signal(number, signal.SIG_DFL)  # it is ignored where the tests run under nohup
    try:
        serve(ServerOptions(small_model, "m", port=free_port), ready)
    finally:
        signal.signal(number, before)


@pytest.mark.timeout(60)
def test_a_terminal_that_is_closed_does_not_end_a_server_under_nohup(small_model, free_port):
    """nohup has SIGHUP ignored, which stays so."""
    handlers = []

    def ready(addresses):
        handlers.append(signal.getsignal(signal.SIGHUP))
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        serve(ServerOptions(small_model, "m", port=free_port), ready)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert handlers == [signal.SIG_IGN]


@pytest.mark.slow
def test_requests_under_way_are_answered_after_sigterm(tmp_path, free_port, unused_port):
    """One long request per protocol, one that waits behind another, and one that is half sent."""
    models.save(tmp_path / "1")
    slow = {"signature_name": "slow"}
    answers = []

    def ask_rest(url, seconds):
        body = {**slow, "instances": [{"seconds": seconds}]}
        answers.append(httpx.post(f"{url}/v1/models/m:predict", json=body, trust_env=False, timeout=60).status_code)

    def ask_grpc(address, seconds):
        with Rpc(address) as rpc:
            answers.append(rpc.predict({"seconds": np.float32([seconds])}, signature="slow")[1].version.value)

    def ask_in_halves(url):
        def request(seconds):
            body = json.dumps({**slow, "instances": [{"seconds": seconds}]}).encode()
            return b"POST /v1/models/m:predict HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as connection:
            pieces = request(2), request(0.1), request(0.1)
            connection.sendall(pieces[0] + pieces[1] + pieces[2][:-20])
            time.sleep(4)  # the server was told to end by now
            connection.sendall(pieces[2][-20:])
            received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        answers.extend(int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", received))

    def ready(addresses):
        tasks = [(ask_rest, addresses.rest, 11), (ask_rest, addresses.rest, 5), (ask_in_halves, addresses.rest)]
        tasks += [(ask_grpc, addresses.grpc, 11), (ask_grpc, addresses.grpc, 6)]
        threads.extend(threading.Thread(target=work, args=arguments) for work, *arguments in tasks)
        for thread in threads:
            thread.start()
        threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()

    threads = []
    began = time.monotonic()
    serve(ServerOptions(tmp_path, "m", rest_api_port=free_port, port=unused_port), ready)
    for thread in threads:
        thread.join()
    assert sorted(answers) == [1, 1, 200, 200, 200, 200, 200]
    assert time.monotonic() - began < GRACE_SECONDS
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{free_port}/v1/models/m", trust_env=False)


@pytest.mark.slow
def test_a_base_path_that_is_not_there_is_waited_for_until_a_signal(tmp_path):
    flags = [f"--model_base_path={tmp_path}/absent", "--wait", "--port=0", f"--grpc_socket_path={tmp_path}/s"]
    with start_warm("serve", *flags, stderr=subprocess.PIPE) as process:
        assert "absent: nothing to serve is there yet; waiting for it" in process.stderr.readline()
        assert process.poll() is None
        process.terminate()
        assert process.wait(timeout=30) == 0


@pytest.mark.slow
def test_a_first_load_that_fails_ends_the_process_with_one_line(tmp_path):
    (tmp_path / "3").mkdir()
    flags = [f"--model_base_path={tmp_path}", "--model_name=m", "--port=0", f"--grpc_socket_path={tmp_path}/s"]
    with start_warm("serve", *flags, "--max_num_load_retries=0", stderr=subprocess.PIPE) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    last = said.splitlines()[-1]
    assert "1 servable(s) did not become available: {{{name: m version: 3} due to error: NOT_FOUND: " in last


def test_a_folder_that_is_not_there_is_said_after_one_look(tmp_path):
    absent = tmp_path / "modles" / "ctr"
    one_line(*call("serve", f"--model_base_path={absent}"), f"{absent}: there is no such folder; give a run, or RUN/")
    assert with_found_folder(parse_flags([f"--model_base_path={absent}", "--wait"])).model_base_path == absent
    (tmp_path / "empty").mkdir()  # a run may push its first version here
    assert with_found_folder(ServerOptions(tmp_path / "empty")).model_base_path == tmp_path / "empty"


@pytest.mark.parametrize("first", ["tfx", "data"])
def test_what_is_waited_for_may_be_a_run(first, tmp_path, monkeypatch):
    run = tmp_path / "run"
    found, told = [], []
    monkeypatch.setattr(server_run.log, "warning", lambda text, *values: told.append(text % values))
    waiting = threading.Thread(target=lambda: found.append(when_there(ServerOptions(run, "ads", wait=True))))
    waiting.start()
    while not told:  # the thread may not have looked yet
        time.sleep(0.01)
    (run / first).mkdir(parents=True)
    one_line(
        *call("serve", f"--model_base_path={run}"), f"{run}: its run has not finished; wait for it, or give --wait"
    )
    assert waiting.is_alive() and not found
    (run / "models" / "ads" / "3").mkdir(parents=True)
    (run / "metrics.json").write_text("{}")
    waiting.join(30)
    assert [options.model_base_path for options in found] == [run / "models" / "ads"]
    assert told == [f"{run}: nothing to serve is there yet; waiting for it"]


def test_a_store_that_is_away_is_waited_for_too(monkeypatch):
    answers = [UnreachableError("s3://b/m: the store does not answer"), True, False]

    def asked(base):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(server_run, "is_awaited", asked)
    monkeypatch.setattr(server_run, "_LOOK_SECONDS", 0)
    monkeypatch.setattr(server_run, "with_found_folder", lambda options: options)
    options = ServerOptions("s3://b/m", "ads", wait=True)
    assert when_there(options) is options and not answers


def test_a_run_is_served_by_the_folder_of_its_versions_and_a_version_alone(tmp_path):
    version = tmp_path / "run" / "models" / "ads" / "3"
    version.mkdir(parents=True)
    (tmp_path / "run" / "metrics.json").write_text("{}")
    assert with_found_folder(ServerOptions(tmp_path / "run", "ads")).model_base_path == version.parent
    (version / "saved_model.pb").touch()
    (version.parent / "4").mkdir()
    assert with_found_folder(ServerOptions(version)).model_base_path == version
    [model] = single_model("ads", version).model_config_list.config
    assert model.base_path == str(version.parent) and policy(model) == Policy(specific=frozenset([3]))
    [model] = single_model("ads", version.parent).model_config_list.config
    assert model.base_path == str(version.parent) and policy(model) == Policy()
    (tmp_path / "latest").symlink_to(version)
    assert split_version(tmp_path / "latest") == (version.parent, 3)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "5").symlink_to(version)
    assert split_version(tmp_path / "linked" / "5") == (tmp_path / "linked", 5)
    shutil.move(version, tmp_path / "007")
    with pytest.raises(InputError, match=f"^{tmp_path}/007: the folder of a version, but its name is not its number"):
        split_version(tmp_path / "007")
    shutil.rmtree(version.parent / "4")
    with pytest.raises(InputError, match="this run pushed no model"):
        with_found_folder(ServerOptions(tmp_path / "run"))


def test_R15_rest_is_skipped_on_the_port_of_grpc(small_model, free_port, caplog):
    found = []

    def ready(addresses):
        found.append(addresses)
        raise KeyboardInterrupt

    serve(ServerOptions(small_model, "m", rest_api_port=free_port, port=free_port), ready)
    assert found[0].rest is None and found[0].grpc == f"127.0.0.1:{free_port}"
    assert "--rest_api_port cannot be same as --port" in caplog.text


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    base = tmp_path_factory.mktemp("small")
    double = tf.function(lambda x: {"y": x * 2}, [tf.TensorSpec([None], tf.float32, name="x")])
    tf.saved_model.save(tf.Module(), str(base / "1"), {"serving_default": double})
    return base


@pytest.fixture
def free_port():
    return servers.free_port()


@pytest.fixture
def unused_port():
    return servers.free_port()


def test_a_server_that_is_told_nothing_listens_on_this_machine_only(small_model):
    with running_server(ServerOptions(small_model, "m")) as addresses:
        assert addresses.rest.startswith("http://127.0.0.1:") and addresses.grpc.startswith("127.0.0.1:")


def test_the_defaults_are_those_of_tensorflow_model_server():
    options = parse_flags([])
    assert (options.port, options.rest_api_port, options.model_name) == (8500, 0, "default")
    assert (options.max_num_load_retries, options.load_retry_interval_micros) == (5, 60_000_000)
    assert options.enable_model_warmup and not options.enable_batching


def test_flags_are_read_with_and_without_an_equals_sign():
    options = parse_flags(["--port=1", "--model_name", "m", "--enable_batching", "--enable_model_warmup=false"])
    assert (options.port, options.model_name) == (1, "m")
    assert options.enable_batching and not options.enable_model_warmup
    assert parse_flags(["--model_config_file="]).model_config_file is None


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        (["--enable_batching"], True),
        (["--enable_batching=1"], True),
        (["--enable_batching=TRUE"], True),
        (["--enable_batching=true", "--enable_batching=0"], False),
        (["--enable_batching", "--enable_batching=False"], False),
        (["--enable_batching", "false"], True),  # the second word is an argument of its own, and unknown
        (["--enable_batchings=1"], False),
    ],
)
def test_booleans_are_what_tensorflow_takes(flags, value):
    """xla/tsl/util/command_line_flags.cc, ParseBoolFlag."""
    assert parse_flags(flags).enable_batching is value


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port=many"], "invalid int value: 'many'"),
        (["--port=70000"], "a port is a number from 0 to 65535"),
        (["--enable_batching=maybe"], "maybe: true or false"),
        (["--enable_batching=t"], "t: true or false"),
        (["--enable_batching=yes"], "yes: true or false"),
        (["--enable_batching="], ": true or false"),
        (["--ssl_config_file=s3://bucket/ssl.config"], "s3://bucket/ssl.config: the flag takes a path of this"),
        (["--use_alts_credentials"], "use --ssl_config_file"),
        (["--batching_parameters_file=x"], "add that flag"),
        (["--tensorflow_session_parallelism=1", "--tensorflow_intra_op_parallelism=1"], "give the first or the others"),
    ],
)
def test_wrong_flags_are_one_line(flags, message):
    with pytest.raises(InputError) as error:
        parse_flags(flags)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_unknown_flags_are_named_and_ignored(caplog):
    """main.cc, "unknown argument: "."""
    options = parse_flags(["--prot=1", "word", "--port=2", "--force_allow_any_version_labels_for_unavailable_models"])
    assert options.port == 2
    for argument in ("--prot=1", "word", "--force_allow_any_version_labels_for_unavailable_models"):
        assert f"unknown argument: {argument} is ignored" in caplog.text
    assert "--prot=1 is ignored; did you mean --port?" in caplog.text
    assert "word is ignored; ctrpipe serve --help lists the flags" in caplog.text


@pytest.mark.parametrize(
    ("processor", "flags", "before", "after"),
    [
        ("AuthenticAMD", {}, None, "0"),
        ("GenuineIntel", {}, None, None),  # TensorFlow's default: on
        (None, {}, None, "0"),  # a system that does not say
        ("AuthenticAMD", {}, "1", "1"),
        ("GenuineIntel", {}, "0", "0"),
        ("AuthenticAMD", {"mixed_precision": "bfloat16"}, None, None),
    ],
)
def test_onednn_is_off_where_the_processor_is_not_intels(tmp_path, monkeypatch, processor, flags, before, after):
    cpuinfo = tmp_path / "cpuinfo"
    if processor:
        cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {processor}\n")
    monkeypatch.setattr(processes, "CPUINFO", cpuinfo)
    monkeypatch.setattr(os, "environ", {"TF_ENABLE_ONEDNN_OPTS": before} if before else {})
    set_environment(ServerOptions(**flags))
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == after


@pytest.mark.parametrize("flag", ["--version", "--version=true"])
def test_the_versions_are_printed(flag, capsys):
    with pytest.raises(SystemExit) as end:
        parse_flags([flag, "--port=2"])
    assert end.value.code == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("TensorFlow ModelServer: ") and second == f"TensorFlow Library: {tf.__version__}"


def test_flags_without_an_effect_here_say_so(caplog):
    parse_flags(["--flush_filesystem_caches=false", "--num_tflite_pools=2"])
    assert "--flush_filesystem_caches has no effect" in caplog.text
    assert "--num_tflite_pools has no effect" in caplog.text


@pytest.mark.parametrize(("flags", "status"), [({}, 500), ({"xla_cpu_compilation_enabled": True}, 200)])
def test_a_flag_says_whether_xla_compiles(tmp_path, free_port, flags, status):
    compiled = tf.function(lambda x: {"y": x * 2}, [tf.TensorSpec([None], tf.float32, name="x")], jit_compile=True)
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"), {"serving_default": compiled})
    found = []

    def ready(addresses):
        url = f"{addresses.rest}/v1/models/m:predict"
        found.append(httpx.post(url, content='{"instances": [1.0]}', trust_env=False, timeout=60))
        raise KeyboardInterrupt

    serve(ServerOptions(tmp_path, "m", rest_api_port=free_port, port=0, **flags), ready)
    assert found[0].status_code == status
    assert tf.function(lambda x: x * 2, jit_compile=True)(3) == 6  # the process is as it was
