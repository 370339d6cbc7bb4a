"""TensorBoard's "capture profile" against the port of gRPC (G11).

tensorflow_model_server_test.py, test_profiler_service_with_valid_trace_request, sends requests while it traces.
"""

import threading

import grpc
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import models, servers
from tests.contract.rpc import Rpc


@pytest.fixture
def serving(model_folder):
    def start(*flags):
        return servers.start([f"--model_base_path={model_folder}", f"--model_name={models.NAME}", *flags])

    return start


@pytest.mark.slow
def test_G11_a_trace_of_the_server_is_written(serving, tmp_path):
    done = threading.Event()

    def ask(address):
        with Rpc(address) as rpc:
            while not done.is_set():
                rpc.predict({"x": np.float32([1])})

    with serving() as addresses:
        thread = threading.Thread(target=ask, args=[addresses.grpc])
        thread.start()
        try:
            tf.profiler.experimental.client.trace(f"grpc://{addresses.grpc}", str(tmp_path), 500)
        finally:
            done.set()
            thread.join()
    [trace] = tmp_path.rglob("*.xplane.pb")
    assert b"truediv" in trace.read_bytes()  # the signature's operation, x / 2


HOST = pytest.param("--host=0.0.0.0", marks=servers.ours_alone("TF Serving has it on every port"))


@pytest.mark.parametrize("flag", ["--enable_profiler=false", HOST])
def test_G11_the_profiler_can_be_turned_off(serving, flag):
    with serving(flag) as addresses, grpc.insecure_channel(addresses.grpc) as channel:
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary("/tensorflow.ProfilerService/Monitor")(b"", timeout=10)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
