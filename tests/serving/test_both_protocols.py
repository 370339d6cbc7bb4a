"""The REST and gRPC clients return the same answers from our server, for every kind of input."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import ModelClient, RestClient, VersionStatus
from ctrpipe.serving.client.grpc_client import GrpcClient
from ctrpipe.serving.server import ServerOptions, running_server

NAN = float("nan")


class Model(tf.Module):
    """A servable for raw rows, packed tensors and tf.Examples, whose probabilities can be computed by hand."""

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="n"), tf.TensorSpec([None], tf.string, name="c")]
    )
    def serving_raw(self, n, c):
        number = tf.where(tf.math.is_nan(n), -1.0, n)
        return {"ctr": number / 8, "cvr": tf.cast(tf.strings.length(c), tf.float32), "seen": c}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.int32, name="ids")])
    def serving_packed(self, ids):
        return {"ctr": tf.cast(tf.reduce_sum(ids, 1), tf.float32) / 8}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serving_default(self, examples):
        parsed = tf.io.parse_example(examples, {"n": tf.io.FixedLenFeature([], tf.float32, NAN)})
        return {"ctr": parsed["n"] / 8}


@pytest.fixture(scope="module")
def clients(tmp_path_factory) -> Iterator[list[ModelClient]]:
    folder = tmp_path_factory.mktemp("model")
    model = Model()
    names = ("serving_raw", "serving_packed", "serving_default")
    tf.saved_model.save(model, str(folder / "7"), {name: getattr(model, name) for name in names})
    with running_server(ServerOptions(folder, "ctr")) as addresses:
        with RestClient(f"{addresses.rest}/v1/models/ctr") as rest, GrpcClient(addresses.grpc, "ctr") as grpc:
            yield [rest, grpc]


def check(clients: list[ModelClient], inputs, signature: str, expected: dict[str, list]) -> None:
    for client in clients:
        found = client.predict(inputs, signature)
        assert set(found) == set(expected)
        for name, values in expected.items():
            assert found[name].dtype == (object if isinstance(values[0], bytes) else np.float32)
            np.testing.assert_array_equal(found[name], np.array(values, found[name].dtype))


@pytest.mark.parametrize(
    "rows",
    [
        {"n": [1.0, None, 3], "c": ["a", None, "bé"]},
        {"n": np.array([1.0, NAN, 3.0]), "c": np.array([b"a", b"", "bé".encode()], object)},
        pa.record_batch({"n": pa.array([1.0, None, 3.0]), "c": pa.array(["a", None, "bé"])}),
        pa.record_batch({"c": pa.array(["a", None, "bé"]).dictionary_encode(), "n": pa.array([1, None, 3])}),
    ],
)
def test_raw_rows(clients, rows):
    expected = {"ctr": [0.125, -0.125, 0.375], "cvr": [1.0, 0.0, 3.0], "seen": [b"a", b"", "bé".encode()]}
    check(clients, rows, "serving_raw", expected)


def test_packed_tensors_and_no_rows(clients):
    check(clients, {"ids": np.array([[1, 2], [3, 4]], np.int32)}, "serving_packed", {"ctr": [0.375, 0.875]})
    for client in clients:
        found = client.predict({"n": np.zeros(0, np.float32), "c": np.zeros(0, object)})["ctr"]
        assert found.shape == (0,) and found.dtype == np.float32


def test_examples(clients):
    examples = [tf.train.Example(), tf.train.Example(), tf.train.Example()]
    for example, number in zip(examples, (1.0, 200.0), strict=False):
        example.features.feature["n"].float_list.value.append(number)
    serialized = [example.SerializeToString() for example in examples]
    check(clients, {"examples": serialized}, "serving_default", {"ctr": [0.125, 25.0, NAN]})


def test_ten_thousand_rows(clients):
    numbers = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    texts = np.array([b"x" * (row % 7) for row in range(10_000)], object)
    for client in clients:
        found = client.predict({"n": numbers, "c": texts})
        np.testing.assert_array_equal(found["ctr"], numbers / 8)
        np.testing.assert_array_equal(found["cvr"], np.arange(10_000) % 7)


def test_status_and_metadata(clients):
    rest, grpc = clients
    assert rest.status() == grpc.status() == [VersionStatus(7, "AVAILABLE")]
    assert rest.metadata() == grpc.metadata() and rest.version_of() == grpc.version_of() == 7
    assert set(rest.metadata(version=7)["metadata"]["signature_def"]["signature_def"]) >= {"serving_raw"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"signature_name": "absent"}, '"absent" not found'),
        ({"version": 8}, "Servable not found for request: Specific\\(ctr, 8\\)"),
        ({"label": "canary"}, "Unrecognized servable version label: canary"),
        ({"inputs": {"n": [1.0]}}, "(Missing named input: c in|Missing but required: {c})"),
        ({"inputs": {"n": ["x"], "c": ["a"]}}, "(is not of expected type: float|to be float but string is provided)"),
        ({"inputs": {"n": [1.0], "c": ["a", "b"], "ids": np.zeros((1, 2), np.int64)}}, "Sent extra: {ids}"),
    ],
)
def test_a_mistake_is_one_line(clients, arguments, message):
    # REST takes no notice of an input too many (P12).
    for client in clients[1:] if "ids" in arguments.get("inputs", {}) else clients:
        with pytest.raises(InputError, match=f"^{client.address}: the server answers [^\n]*{message}[^\n]*$"):
            client.predict(**{"inputs": {"n": [1.0], "c": ["a"]}, **arguments})
