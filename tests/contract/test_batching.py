"""Requests joined into batches (B1 to B7)."""

import concurrent.futures
import functools
import json
import os
import threading
import time
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.types_pb2 import DT_STRING
from tensorflow_serving.apis import predict_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.serving.layout import Asset, asset_path, make_assets_folder
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server.batching import Batching, BatchingServable, BatchScheduler
from ctrpipe.serving.server.batching_parameters import BatchingParameters, read_parameters, write_parameters
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.options import ServerOptions, parse_flags
from ctrpipe.serving.server.run import running_server
from tests.contract import servers
from tests.contract.conftest import caller
from tests.contract.rpc import Rpc, refusal

PATH = "/v1/models/m:predict"
LONG = 10_000_000  # microseconds: a test that has to wait for it is over its time
WIDTH = 1024


class Batched(tf.Module):
    def __init__(self):
        super().__init__()
        self.weights = [tf.Variable(tf.eye(WIDTH), name=f"w{index}") for index in range(8)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def rows(self, x):
        """Each row's own value, and how many rows it was run with."""
        return {"y": x / 2 + 2, "rows": tf.ones_like(x) * tf.cast(tf.size(x), tf.float32)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="s")])
    def text(self, s):
        return {"s": tf.identity(s)}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
    def width(self, x):
        """The sum of a row's values."""
        return {"y": tf.reduce_sum(x, 1)}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name=name) for name in ("x", "z")])
    def widths(self, x, z):
        """The sums of a row's values, and how many rows they were run with."""
        return {"x": tf.reduce_sum(x, 1), "z": tf.reduce_sum(z, 1), "rows": tf.fill(tf.shape(x)[:1], tf.shape(x)[0])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def failing(self, x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="not positive")]):
            return {"y": tf.identity(x)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def distinct(self, x):
        """Fewer values than rows, where one is there twice."""
        return {"y": tf.unique(x).y}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def endless(self, x):
        return {"y": tf.while_loop(lambda x: tf.reduce_all(x < np.inf), lambda x: [tf.sin(x)], [x])[0]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def scalar(self, x):
        return {"y": tf.reduce_sum(x)}

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, name="x")])
    def heavy(self, x):
        """Reads megabytes of weights, however many rows there are."""
        for weights in self.weights:
            x = tf.matmul(x, weights)
        return {"y": x[:, 0]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def in_graph(self, x):
        @tf.nondifferentiable_batch_function(
            num_batch_threads=1, max_batch_size=4, batch_timeout_micros=LONG, allowed_batch_sizes=[4]
        )
        def joined(x):
            return tf.ones_like(x) * tf.cast(tf.size(x), tf.float32)

        return {"rows": joined(x)}


class Gather(tf.Module):
    def __init__(self):
        super().__init__()
        self.table = tf.Variable(tf.range(21.0))

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.int32, name="ids")])
    def serving_packed(self, ids):
        return {"ctr": tf.gather(self.table, ids)}


@pytest.fixture(scope="module")
def base_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batched") / "m"
    model = Batched()
    names = ("rows", "text", "width", "widths", "failing", "distinct", "endless", "scalar", "heavy", "in_graph")
    tf.saved_model.save(model, str(folder / "1"), {name: getattr(model, name) for name in names})
    return folder


@pytest.fixture
def serve(base_path, tmp_path):
    """serve(parameters as text, flags) -> call(signature, columns) -> (status, outputs or error)."""
    contexts = []

    def serve(text=None, *flags):
        if text is not None:
            (tmp_path / "batching.config").write_text(text)
            flags = (*flags, "--enable_batching", f"--batching_parameters_file={tmp_path / 'batching.config'}")
        context = servers.start([f"--model_base_path={base_path}", "--model_name=m", *flags])
        contexts.append(context)
        call, client = caller(context.__enter__().rest)
        contexts.append(client)

        def ask(signature, **columns):
            status, answer = call("POST", PATH, json.dumps({"signature_name": signature, "inputs": columns}))
            return status, answer.get("outputs", answer.get("error"))

        return ask

    yield serve
    for context in reversed(contexts):
        context.__exit__(None, None, None)


def together(*calls):
    """The answers to calls that are sent at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(30) for future in [pool.submit(call) for call in calls]]


# Over REST --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_B1_requests_that_arrive_together_run_together(serve):
    ask = serve(f"max_batch_size {{ value: 4 }} batch_timeout_micros {{ value: {LONG} }}")
    answers = together(*[lambda x=x: ask("rows", x=[float(x)]) for x in range(4)])
    assert answers == [(200, {"y": [x / 2 + 2], "rows": [4.0]}) for x in range(4)]


def test_B1_without_the_flag_requests_run_alone(serve):
    ask = serve()
    answers = together(*[lambda: ask("rows", x=[0.0]) for _ in range(4)])
    assert answers == [(200, {"y": [2.0], "rows": [1.0]})] * 4


def test_B1_every_parameter_is_read(tmp_path):
    file = tmp_path / "parameters"
    file.write_text(
        "max_batch_size { value: 128 } batch_timeout_micros { value: 5 } max_enqueued_batches { value: 1000000 } "
        'num_batch_threads { value: 8 } thread_pool_name { value: "pool" } pad_variable_length_inputs: true '
        "allowed_batch_sizes: 32 allowed_batch_sizes: 128 enable_large_batch_splitting { value: true } "
        "max_execution_batch_size { value: 64 }"
    )
    found = read_parameters(file)
    assert found == BatchingParameters(128, 5, 1_000_000, 8, "pool", (32, 128), True, True, 64)
    file.write_text(write_parameters(found))
    assert read_parameters(file) == found


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("max_batch_size: 4", "max_batch_size"),
        ("max_batch_sise { value: 4 }", "max_batch_sise"),
        ("num_batch_threads { value: 0 }", "num_batch_threads must be positive; was 0"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros must be non-negative; was -1"),
        (
            "max_batch_size { value: 8 } allowed_batch_sizes: 4",
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4; expected 8",
        ),
        ("allowed_batch_sizes: 4", "last entry was 4; expected 1000"),
        (
            "max_batch_size { value: 8 } enable_large_batch_splitting { value: true } "
            "max_execution_batch_size { value: 4 } allowed_batch_sizes: 2 allowed_batch_sizes: 4",
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4; expected 8",
        ),
    ],
)
def test_B1_B2_a_mistake_in_the_file_ends_the_start_in_one_line(base_path, tmp_path, text, error):
    (tmp_path / "parameters").write_text(text)
    flags = parse_flags(
        [f"--model_base_path={base_path}", "--enable_batching", f"--batching_parameters_file={tmp_path / 'parameters'}"]
    )
    with pytest.raises(InputError, match=error) as caught:
        with running_server(flags):
            pass
    assert "\n" not in str(caught.value)


def test_B1_the_file_without_the_flag_is_an_error(base_path, tmp_path):
    (tmp_path / "parameters").write_text("max_batch_size { value: 8 }")
    with pytest.raises(InputError, match="enable_batching"):
        parse_flags([f"--model_base_path={base_path}", f"--batching_parameters_file={tmp_path / 'parameters'}"])


def test_B2_padding_rows_are_run_and_dropped(serve):
    ask = serve("max_batch_size { value: 8 } allowed_batch_sizes: 2 allowed_batch_sizes: 8")
    assert ask("rows", x=[0.0, 1.0, 2.0]) == (200, {"y": [2.0, 2.5, 3.0], "rows": [8.0] * 3})
    assert ask("rows", x=[4.0]) == (200, {"y": [4.0], "rows": [2.0]})


def test_B3_a_request_larger_than_a_batch_is_refused(serve):
    ask = serve("max_batch_size { value: 2 }")
    status, error = ask("rows", x=[0.0, 1.0, 2.0])
    assert status == 400 and "Task size 3 is larger than maximum input batch size 2" in error


def test_B3_a_large_request_is_split(serve):
    ask = serve(
        "max_batch_size { value: 8 } enable_large_batch_splitting { value: true } "
        "max_execution_batch_size { value: 2 } allowed_batch_sizes: 1 allowed_batch_sizes: 8"
    )
    rows = [float(x) for x in range(5)]
    # Batches of two rows are padded to the next allowed size, which exceeds the size of a batch.
    assert ask("rows", x=rows) == (200, {"y": [x / 2 + 2 for x in rows], "rows": [8.0, 8.0, 8.0, 8.0, 1.0]})


def test_B2_the_first_size_that_is_large_enough_is_taken(serve):
    ask = serve("max_batch_size { value: 8 } allowed_batch_sizes: 4 allowed_batch_sizes: 2 allowed_batch_sizes: 8")
    assert ask("rows", x=[0.0]) == (200, {"y": [2.0], "rows": [4.0]})


def test_B3_a_full_queue_is_unavailable(serve):
    ask = serve(
        "max_batch_size { value: 2 } max_enqueued_batches { value: 1 } "
        f"num_batch_threads {{ value: 1 }} batch_timeout_micros {{ value: {LONG} }}"
    )
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(ask, "rows", x=[0.0])
        status, error = 200, ""
        while status == 200 and not waiting.done():  # until the first is in the queue, two rows make a batch
            status, error = ask("rows", x=[0.0, 1.0])
        assert status == 503 and "The batch scheduling queue to which this task was submitted is full" in error
        assert ask("rows", x=[1.0]) == (200, {"y": [2.5], "rows": [2.0]})  # and takes the first along
        assert waiting.result(30) == (200, {"y": [2.0], "rows": [2.0]})


def test_B4_rows_of_different_width_need_padding(serve):
    wide, narrow = [[1.0, 2.0, 3.0]], [[1.0, 2.0]]
    text = f"max_batch_size {{ value: 2 }} batch_timeout_micros {{ value: {LONG} }}"
    if not servers.IS_OURS:  # which fills no batch with what differs, and lets no request fail for another's shape
        ask = serve(text)
        for status, error in together(lambda: ask("width", x=wide), lambda: ask("width", x=narrow)):
            assert status == 400 and "Tensors with name 'width_x:0' from different tasks have different shapes" in error
    ask = serve(text + " pad_variable_length_inputs: true")
    # a row is filled up with its tensor's first value
    assert together(lambda: ask("width", x=wide), lambda: ask("width", x=narrow)) == [(200, [6.0]), (200, [4.0])]


def test_B4_what_has_no_rows_cannot_be_batched(serve):
    ask = serve("max_batch_size { value: 2 }")
    status, error = ask("rows", x=1.0)
    assert status == 400 and "Batching Run() input tensors must have at least one dimension" in error
    status, error = ask("scalar", x=[1.0])
    assert status == 400 and "Batched output tensor has 0 dimensions" in error


def test_B5_a_model_brings_its_own_parameters(serve, base_path):
    file = base_path / "1" / "batching_params.pbtxt"
    file.write_text("max_batch_size { value: 4 } allowed_batch_sizes: 4")
    try:
        ask = serve("max_batch_size { value: 2 }", "--enable_per_model_batching_parameters")
        assert ask("rows", x=[0.0, 1.0, 2.0]) == (200, {"y": [2.0, 2.5, 3.0], "rows": [4.0] * 3})
    finally:
        file.unlink()
    ask = serve("max_batch_size { value: 2 }", "--enable_per_model_batching_parameters")
    assert ask("rows", x=[0.0, 1.0, 2.0])[1]["rows"] == [3.0] * 3  # without the file it is not batched


@pytest.mark.timeout(20)
def test_B5_parameters_that_never_end_are_not_overlooked(tmp_path):
    os.mkfifo(tmp_path / "batching_params.pbtxt")
    batching = Batching(ServerOptions(enable_batching=True, enable_per_model_batching_parameters=True))
    with pytest.raises(InputError, match="batching_params.pbtxt: a named pipe, which may never end"):
        batching.wrap(types.SimpleNamespace(path=tmp_path))
    batching.close()


def test_B6_a_lone_request_does_not_wait(serve):
    ask = serve("max_batch_size { value: 1000 } batch_timeout_micros { value: 0 }")
    assert ask("rows", x=[0.0]) == (200, {"y": [2.0], "rows": [1.0]})


def test_B7_a_graph_may_batch_by_itself(serve):
    ask = serve()
    assert together(*[lambda: ask("in_graph", x=[0.0]) for _ in range(4)]) == [(200, [4.0])] * 4


# Within the process -----------------------------------------------------------------------------------------------


@pytest.fixture
def batched(base_path):
    """batched(parameters) -> BatchingServable; all are closed at the end."""
    schedulers = []

    def batched(metrics=None, **parameters):
        chosen = BatchingParameters(**parameters)
        scheduler = BatchScheduler(chosen.num_batch_threads, chosen.thread_pool_name, metrics)
        servable = BatchingServable(Servable(base_path / "1", threads=1), chosen, scheduler)
        schedulers.append((servable, scheduler))
        return servable

    yield batched
    for servable, scheduler in schedulers:
        servable.close()
        scheduler.close()


def x(*values):
    return {"x": np.array(values, np.float32)}


def test_B3_time_that_runs_out_in_the_queue_is_the_requests_own(batched):
    servable = batched(max_batch_size=2, batch_timeout_micros=LONG)
    began = time.monotonic()
    with pytest.raises(ServingError, match=r"Run\(\) timeout exceeded while waiting in batching queue") as caught:
        servable.run("rows", x(1), timeout_seconds=0.05)
    assert caught.value.code == "RESOURCE_EXHAUSTED" and time.monotonic() - began < 5
    answers = together(*[lambda: servable.run("rows", x(1), timeout_seconds=20)["rows"] for _ in range(2)])
    assert answers == [2, 2]  # the one that gave up takes no room


def test_a_batch_runs_until_the_last_of_its_deadlines(batched):
    servable = batched(max_batch_size=2, batch_timeout_micros=LONG)
    began = time.monotonic()

    def ask(seconds):
        try:
            return servable.run("endless", x(1), timeout_seconds=seconds)
        except ServingError as error:
            return error.code

    assert together(lambda: ask(0.3), lambda: ask(1.0)) == ["DEADLINE_EXCEEDED"] * 2
    assert 1.0 <= time.monotonic() - began < 10


def test_a_batch_that_fails_is_run_again_request_by_request(batched):
    servable = batched(max_batch_size=3, batch_timeout_micros=LONG)

    def ask(value):
        try:
            return servable.run("failing", x(value))["y"].tolist()
        except ServingError as error:
            return error.code

    assert together(lambda: ask(1), lambda: ask(-1), lambda: ask(2)) == [[1], "INVALID_ARGUMENT", [2]]
    assert together(lambda: ask(1), lambda: ask(2), lambda: ask(3)) == [[1], [2], [3]]


def test_requests_of_different_shapes_do_not_fail_each_other(batched, monkeypatch):
    servable = batched(max_batch_size=5, batch_timeout_micros=LONG)
    widths, run = [], servable._servable.run

    def recorded(signature, inputs, *rest):
        widths.append(inputs["x"].shape)
        return run(signature, inputs, *rest)

    monkeypatch.setattr(servable._servable, "run", recorded)

    def ask(*row):
        return servable.run("width", {"x": np.array([row], np.float32)})["y"].tolist()

    asked = [(1, 2, 3), (1, 2), (4, 5, 6), (3, 4), (1,)]
    assert together(*[functools.partial(ask, *row) for row in asked]) == [[6], [3], [15], [7], [1]]
    assert sorted(widths) == [(1, 1), (2, 2), (2, 3)]  # what is alike runs as one


@pytest.mark.parametrize(("other", "rows"), [({"z": 3, "x": 2}, 2), ({"z": 2, "x": 3}, 1)])
def test_requests_are_alike_by_the_names_of_their_inputs_in_any_order(batched, other, rows):
    servable = batched(max_batch_size=2, batch_timeout_micros=LONG)

    def ask(widths):
        found = servable.run("widths", {name: np.ones((1, width), np.float32) for name, width in widths.items()})
        return {name: values.item() for name, values in found.items()}

    first = {"x": 2, "z": 3}
    expected = [{**first, "rows": rows}, {**other, "rows": rows}]
    assert together(lambda: ask(first), lambda: ask(other)) == expected


def test_what_cannot_be_filled_up_runs_apart(batched):
    servable = batched(max_batch_size=2, batch_timeout_micros=LONG, pad_variable_length_inputs=True)

    def ask(*row):
        return servable.run("width", {"x": np.array([row], np.float32)})["y"].tolist()

    assert together(lambda: ask(), lambda: ask(1, 2)) == [[0], [3]]  # an empty row has no value to be filled up with
    assert together(lambda: ask(5), lambda: ask(1, 2)) == [[10], [3]]


def test_a_batch_whose_output_has_too_few_rows_is_run_again_request_by_request(batched):
    servable = batched(max_batch_size=2, batch_timeout_micros=LONG)

    def ask(value):
        return servable.run("distinct", x(value))["y"].tolist()

    assert together(lambda: ask(1), lambda: ask(1)) == [[1], [1]]
    assert together(lambda: ask(1), lambda: ask(2)) == [[1], [2]]


def test_a_scalar_string_in_the_content_is_refused_in_a_batch(base_path):
    request = predict_pb2.PredictRequest(model_spec={"name": "m", "signature_name": "text"})
    request.inputs["s"].CopyFrom(TensorProto(dtype=DT_STRING, tensor_content=b"\2ab"))
    flags = [f"--model_base_path={base_path}", "--model_name=m", "--enable_batching"]
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
        code, message = refusal(rpc.prediction.Predict, request, timeout=30)
    assert (code, message) == ("INVALID_ARGUMENT", "Batching Run() input tensors must have at least one dimension")


def test_a_request_of_ids_that_there_are_not_is_run_alone(tmp_path, monkeypatch):
    """4 fields' ids and the padding's: 0 to 20."""
    version = tmp_path / "1"
    model = Gather()
    tf.saved_model.save(model, str(version), {"serving_packed": model.serving_packed})
    make_assets_folder(version)
    feature_map = FeatureMap.from_sizes([(name, "categorical", 3) for name in "abcd"])
    assert feature_map.total_ids == 21
    feature_map.save(asset_path(version, Asset.FEATURE_MAP))
    scheduler = BatchScheduler(1)
    parameters = BatchingParameters(max_batch_size=5, batch_timeout_micros=LONG)
    servable = BatchingServable(Servable(version, threads=1), parameters, scheduler)
    runs, run = [], servable._servable.run

    def recorded(signature, inputs, *rest):
        runs.append(sorted(inputs["ids"].ravel().tolist()))
        return run(signature, inputs, *rest)

    monkeypatch.setattr(servable._servable, "run", recorded)

    def ask(value):
        try:
            return servable.run("serving_packed", {"ids": np.array([[value]], np.int32)})["ctr"].tolist()
        except ServingError as error:
            return error.code

    values = (21, -1, 2**31 - 1, 20, 0)
    answers = together(*[lambda value=value: ask(value) for value in values])
    assert answers == ["INVALID_ARGUMENT"] * 3 + [[[20.0]], [[0.0]]]
    assert sorted(runs) == [[-1], [0, 20], [21], [2**31 - 1]]
    servable.close()
    scheduler.close()


def test_a_request_of_another_type_does_not_spoil_a_batch(batched):
    servable = batched(max_batch_size=2, batch_timeout_micros=LONG)
    with pytest.raises(tf.errors.InvalidArgumentError, match="int64"):
        servable.run("rows", {"x": np.array([1], np.int64)})
    assert together(*[lambda: servable.run("rows", x(1))["rows"] for _ in range(2)]) == [2, 2]


def test_a_request_of_another_rank_does_not_spoil_a_batch(batched):
    servable = batched(max_batch_size=2, batch_timeout_micros=LONG)

    def alone():
        return servable.run("rows", {"x": np.float32([[1, 2]])})["y"].tolist()

    right = [lambda: servable.run("rows", x(1))["rows"] for _ in range(2)]
    assert together(alone, *right) == [[[2.5, 3]], 2, 2]


def test_closing_answers_what_is_queued(base_path):
    scheduler = BatchScheduler(1)
    parameters = BatchingParameters(max_batch_size=10, batch_timeout_micros=LONG)
    servable = BatchingServable(Servable(base_path / "1", threads=1), parameters, scheduler)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(servable.run, "rows", x(value)) for value in range(3)]
        while len(servable._queues) == 0 or servable._queues["rows",].batches[0].rows < 3:
            time.sleep(0.001)
        servable.close()
        assert [future.result(5)["y"].tolist() for future in waiting] == [[2], [2.5], [3]]
    scheduler.close()
    with pytest.raises(ServingError, match="unloaded"):
        servable.run("rows", x(1))


def test_only_num_batch_threads_batches_run_at_a_time(batched, monkeypatch):
    servable = batched(max_batch_size=1, num_batch_threads=2, max_enqueued_batches=100)
    running, most, lock = 0, 0, threading.Lock()
    run = servable._servable.run

    def counted(*arguments):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1
        return run(*arguments)

    monkeypatch.setattr(servable._servable, "run", counted)
    answers = together(*[lambda value=value: servable.run("rows", x(value))["y"] for value in range(12)])
    assert answers == [value / 2 + 2 for value in range(12)] and most == 2


def test_waiting_takes_no_processor_time(batched):
    servable = batched(max_batch_size=100, batch_timeout_micros=500_000, num_batch_threads=8)
    servable.run("rows", x(1))
    began, cpu = time.monotonic(), time.process_time()
    assert together(*[lambda: servable.run("rows", x(1))["rows"] for _ in range(8)]) == [8] * 8
    assert time.monotonic() - began > 0.4 and time.process_time() - cpu < 0.2


def test_X2_batches_are_counted(batched):
    metrics = Metrics()
    servable = batched(metrics, max_batch_size=2, batch_timeout_micros=LONG, thread_pool_name="pool")
    together(*[lambda: servable.run("rows", x(1)) for _ in range(4)])
    page = metrics.page().decode()
    assert ":tensorflow:serving:batching_session:wrapped_run_count{} 2" in page
    assert ":tensorflow:serving:batching_session:processed_batch_size_sum{} 4\n" in page
    assert ":tensorflow:serving:batching_session:processed_batch_size_count{} 2\n" in page
    assert ':tensorflow:serving:batching_session:queuing_latency_count{thread_pool_name="pool"} 4' in page


@pytest.mark.large(like="tests/contract/test_batching.py::test_B1_requests_that_arrive_together_run_together")
@pytest.mark.slow
def test_batches_of_32_clients_answer_more_rows_a_second(batched):
    """The graph reads 32 MB of weights a run: one run for 16 rows costs little more than one for a row."""
    servable = batched(max_batch_size=32, num_batch_threads=2, max_enqueued_batches=100)
    row = {"x": np.ones([1, WIDTH], np.float32)}

    def rate(model, seconds=0.6):
        end = time.perf_counter() + seconds

        def client():
            done = 0
            while time.perf_counter() < end:
                assert model.run("heavy", row)["y"] == 1
                done += 1
            return done

        return sum(together(*[client] * 32)) / seconds

    rounds = [(rate(servable._servable), rate(servable)) for _ in range(3)]
    assert np.median([with_ / without for without, with_ in rounds]) > 1, rounds
