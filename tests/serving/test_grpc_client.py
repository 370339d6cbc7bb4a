"""The gRPC client against servers that are busy, slow or gone, and with requests and answers of every size."""

import concurrent.futures
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.config import model_server_config_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import GrpcClient, LabelSplit, VersionStatus
from tests.contract.servers import free_port
from tests.serving.small_servers import GrpcServer, floats, grpc_server

BUSY, GONE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
HALF = {"ctr": floats(0.5)}


def ask(address: str, **options) -> list[float]:
    with GrpcClient(address, "ctr", **options) as client:
        return client.predict({"n": [1.0]})["ctr"].tolist()


def test_a_busy_server_is_asked_again_with_the_same_rows_and_later():
    servicer = GrpcServer(BUSY, GONE, HALF)
    with grpc_server(servicer) as address:
        start = time.monotonic()
        assert ask(address) == [0.5]
        assert time.monotonic() - start > 0.8 * (0.1 + 0.2)
    assert len(servicer.requests) == 3 and servicer.requests[0] == servicer.requests[2]


def test_it_is_not_asked_for_ever():
    servicer = GrpcServer(BUSY)
    with grpc_server(servicer) as address:
        with pytest.raises(InputError, match=f"^{address}: the server answers RESOURCE_EXHAUSTED: as the test says$"):
            ask(address, retries=2)
        assert len(servicer.requests) == 3
        with pytest.raises(InputError, match="RESOURCE_EXHAUSTED"):
            ask(address, retries=0)
    assert len(servicer.requests) == 4


@pytest.mark.parametrize("code", ["NOT_FOUND", "INVALID_ARGUMENT", "INTERNAL", "ABORTED", "FAILED_PRECONDITION"])
def test_other_answers_are_final(code):
    servicer = GrpcServer(grpc.StatusCode[code])
    with grpc_server(servicer) as address:
        with pytest.raises(InputError, match=f"the server answers {code}: as the test says"):
            ask(address)
    assert len(servicer.requests) == 1


def test_a_reload_is_never_asked_for_twice():
    servicer = GrpcServer(GONE)
    with grpc_server(servicer) as address, GrpcClient(address, "ctr") as client:
        with pytest.raises(InputError, match="UNAVAILABLE"):
            client.reload(model_server_config_pb2.ModelServerConfig())
    assert len(servicer.requests) == 1


def test_the_timeout_is_for_all_tries():
    released = threading.Event()
    servicer = GrpcServer(BUSY, lambda context: released.wait(10))
    with grpc_server(servicer) as address:
        start = time.monotonic()
        with pytest.raises(InputError, match="no answer in 0.5 s"):
            ask(address, timeout=0.5)
        assert 0.4 < time.monotonic() - start < 2
        released.set()
    assert len(servicer.requests) == 2


def test_a_large_request_is_sent_again_and_a_large_answer_is_read():
    texts = ["x" * 1000 + str(row) for row in range(6000)]  # 6 MB, above both of gRPC's own limits
    servicer = GrpcServer(BUSY, {"s": np.array(texts, object)})
    with grpc_server(servicer) as address, GrpcClient(address, "ctr") as client:
        found = client.predict({"s": texts})["s"]
    assert found.tolist() == [text.encode() for text in texts] and len(servicer.requests) == 2


@pytest.mark.slow
def test_a_server_that_comes_back_is_found():
    port = free_port()
    with GrpcClient(f"127.0.0.1:{port}", "ctr") as client:
        with pytest.raises(InputError, match="UNAVAILABLE: .*; is the server running, and not too busy?"):
            client.predict({"n": [1.0]})
        for _ in range(2):
            with grpc_server(GrpcServer(HALF), port):
                assert client.predict({"n": [1.0]})["ctr"].tolist() == [0.5]


def test_tensors_travel_as_they_are():
    servicer = GrpcServer(HALF)
    inputs = {
        "n": floats(0.1, np.nan),
        "c": np.array([b"\xff", b""], object),
        "ids": np.arange(12, dtype=np.int32).reshape(2, 6)[:, ::2],
        "none": np.zeros((0, 3), np.float32),
    }
    with grpc_server(servicer) as address, GrpcClient(address, "ctr") as client:
        client.predict(inputs, "some_signature")
    [request] = servicer.requests
    assert request.model_spec.signature_name == "some_signature" and set(request.inputs) == set(inputs)
    for name, values in inputs.items():
        found = tf.make_ndarray(request.inputs[name])
        assert found.dtype == values.dtype and found.shape == values.shape
        np.testing.assert_array_equal(found, values)


def test_version_label_and_split():
    split = LabelSplit({"stable": 1, "canary": 1})
    servicer = GrpcServer(HALF)
    with grpc_server(servicer) as address:
        with GrpcClient(address, "ctr", version=3) as client:
            found = [client.ask({"n": [1.0]}), client.ask({"n": [1.0]}, label="a")]
        with GrpcClient(address, "ctr", split=split) as client:
            found += [client.ask({"n": [1.0]}, key=user) for user in range(10)]
    specs = [request.model_spec for request in servicer.requests]
    assert specs[0].version.value == 3 and specs[0].version_label == "" and specs[1].version_label == "a"
    assert [spec.version_label for spec in specs[2:]] == [split.choose(user) for user in range(10)]
    assert [answer.label for answer in found[1:]] == [spec.version_label for spec in specs[1:]]
    assert {answer.version for answer in found} == {7}  # what the server says, whatever was asked


def test_threads_share_a_client():
    servicer = GrpcServer(HALF)
    with grpc_server(servicer) as address, GrpcClient(address, "ctr") as client:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda number: client.predict({"n": [float(number)]})["ctr"][0], range(200)))
    assert found == [0.5] * 200
    sent = sorted(tf.make_ndarray(request.inputs["n"]).tolist() for request in servicer.requests)
    assert sent == [[float(number)] for number in range(200)]


def test_status():
    servicer = GrpcServer(BUSY, None, states=((13, "LOADING"), (12, "AVAILABLE")))
    with grpc_server(servicer) as address, GrpcClient(address, "ctr") as client:
        assert client.status() == [VersionStatus(13, "LOADING"), VersionStatus(12, "AVAILABLE")]


@pytest.mark.parametrize("address", ["", "127.0.0.1", "http://127.0.0.1:8500"])
def test_what_is_no_address_is_one_line(address):
    with pytest.raises(InputError, match="not an address like"):
        GrpcClient(address, "ctr")
