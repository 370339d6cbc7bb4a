"""A canary from push to rollback on our server: `ctrpipe canary` moves labels, and both clients split requests."""

import contextlib
import dataclasses
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest
import tensorflow as tf

from ctrpipe.serving.client import LabelSplit, ModelClient, RestClient, VersionStatus
from ctrpipe.serving.client.grpc_client import GrpcClient
from ctrpipe.serving.server import ServerOptions, running_server
from tests.e2e.small_run import call, one_line

USERS = range(200)
ROW = {"n": [1.0]}


def push(base: pathlib.Path, version: int) -> None:
    """A model whose answer is its version in percent, in one rename, as the pipeline pushes."""
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="n")])
    def serving_raw(n):
        return {"ctr": 0 * n + version / 100}

    tf.saved_model.save(module, str(base / "unfinished"), {"serving_raw": serving_raw})
    (base / "unfinished").rename(base / str(version))


@dataclasses.dataclass
class Service:
    """A server of the model `ctr` with version 12."""

    base: pathlib.Path
    file: pathlib.Path
    rest: str
    grpc: str

    def label(self, *arguments) -> tuple[int, str]:
        return call("canary", "ctr", "--model_config_file", self.file, "--wait", 30, *arguments)

    def clients(self, weights: str | None = None) -> list[ModelClient]:
        split = LabelSplit.parse(weights) if weights else None
        return [RestClient(f"{self.rest}/v1/models/ctr", split=split), GrpcClient(self.grpc, "ctr", split=split)]

    def answers(self, weights: str) -> list[int]:
        """The version that answers each user, which is the same over REST and gRPC."""
        by_protocol = []
        for client in self.clients(weights):
            with client:
                found = [client.ask(ROW, key=user) for user in USERS]
            versions = [round(100 * answer.outputs["ctr"].item()) for answer in found]
            assert {answer.version for answer in found} <= {None, *versions}
            by_protocol.append(versions)
        assert by_protocol[0] == by_protocol[1]
        return by_protocol[0]


@contextlib.contextmanager
def service(folder: pathlib.Path, **options) -> Iterator[Service]:
    base = folder / "ctr"
    base.mkdir()
    push(base, 12)
    file = folder / "models.config"
    file.write_text(
        f'model_config_list {{ config {{ name: "ctr" base_path: "{base}" model_platform: "tensorflow" }} }}'
    )
    with running_server(
        ServerOptions(model_config_file=file, file_system_poll_wait_seconds=0.05, **options)
    ) as addresses:
        yield Service(base, file, addresses.rest, addresses.grpc)


@contextlib.contextmanager
def steady_requests(client: ModelClient) -> Iterator[list[int]]:
    """Asks `stable` again and again meanwhile; a request that fails fails the test."""
    versions: list[int] = []
    failures: list[Exception] = []
    stop = threading.Event()

    def ask():
        try:
            while not stop.is_set():
                versions.append(round(100 * client.predict(ROW, label="stable")["ctr"].item()))
                time.sleep(0.01)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield versions
    finally:
        stop.set()
        thread.join()
    assert not failures and versions


@pytest.mark.slow
def test_push_label_shift_and_roll_back(tmp_path):
    with service(tmp_path) as server:
        assert server.label("stable=12", "--grpc", server.grpc)[0] == 0
        rest, grpc = server.clients()
        with rest, grpc, steady_requests(rest) as by_rest, steady_requests(grpc) as by_grpc:
            push(server.base, 13)
            time.sleep(0.3)  # several looks at the folder
            assert rest.status() == grpc.status() == [VersionStatus(12, "AVAILABLE")]

            code, output = server.label("canary=13", "--grpc", server.grpc)
            assert code == 0 and output.startswith("canary\t13\tAVAILABLE\nstable\t12\tAVAILABLE\n")
            shares = []
            seen: set[int] = set()
            for weights in ("stable=95,canary=5", "stable=50,canary=50", "stable=0,canary=100"):
                answers = server.answers(weights)
                new = {user for user, version in zip(USERS, answers, strict=True) if version == 13}
                assert set(answers) <= {12, 13} and seen <= new  # nobody goes back to the old model
                seen = new
                shares.append(len(new) / len(USERS))
            assert shares == [pytest.approx(0.05, abs=0.04), pytest.approx(0.5, abs=0.1), 1.0]
            assert set(by_rest) == set(by_grpc) == {12}

            assert server.label("stable=13", "--grpc", server.grpc)[0] == 0
            assert rest.version_of("stable") == grpc.version_of("stable") == 13
            code, output = server.label("--rollback", "--grpc", server.grpc)
            assert code == 0 and "stable\t12\tAVAILABLE" in output
            assert rest.version_of("stable") == grpc.version_of("stable") == 12

            before = server.file.read_text()
            one_line(*server.label("canary=14", "--grpc", server.grpc), "version 14 of model ctr is not here")
            assert server.file.read_text() == before and rest.version_of("canary") == 13
        assert set(by_rest) | set(by_grpc) == {12, 13}


def test_a_server_that_looks_at_its_file(tmp_path):
    with service(tmp_path, model_config_file_poll_wait_seconds=0.1) as server:
        assert server.label("stable=12", "--url", server.rest)[0] == 0
        push(server.base, 13)
        code, output = server.label("canary=13", "--url", server.rest)
        assert code == 0 and output.startswith("canary\t13\tAVAILABLE\nstable\t12\tAVAILABLE\n")
        assert set(server.answers("stable=1,canary=1")) == {12, 13}
        assert server.label("--rollback", "--url", server.rest)[0] == 0
        client, other = server.clients()
        with client, other:
            deadline = time.monotonic() + 10
            while "canary" in labels(client, other) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert labels(client, other) == {"stable"}


def labels(*clients: ModelClient) -> set[str]:
    """The labels of the server, as a client sees them."""
    found = set()
    for client in clients:
        for label in ("stable", "canary"):
            with contextlib.suppress(Exception):
                client.version_of(label)
                found.add(label)
    return found


def test_a_version_that_does_not_load_gets_no_label(tmp_path):
    with service(tmp_path, max_num_load_retries=0) as server:
        assert server.label("stable=12", "--grpc", server.grpc)[0] == 0
        (server.base / "13").mkdir()
        (server.base / "13" / "saved_model.pb").write_bytes(b"no model")
        before = server.file.read_text()
        one_line(*server.label("stable=13", "--grpc", server.grpc), "version 13 of model ctr did not load")
        assert server.file.read_text() == before
        for client in server.clients():
            with client:
                assert client.version_of("stable") == 12
                assert round(100 * client.predict(ROW, label="stable")["ctr"].item()) == 12
