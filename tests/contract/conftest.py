"""A small model behind a server. With CTRPIPE_CONTRACT_URL the same tests run against another server that serves the
folder in CTRPIPE_CONTRACT_MODEL as `m` (make it with `python -m tests.contract.conftest FOLDER`)."""

import os
import pathlib
import sys

import httpx
import pytest
import tensorflow as tf


class Small(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def half_plus_two(self, x):
        return {"y": x / 2 + 2}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="f"),
            tf.TensorSpec([None], tf.int32, name="i"),
            tf.TensorSpec([None], tf.string, name="s"),
            tf.TensorSpec([None], tf.bool, name="b"),
        ]
    )
    def mixed(self, f, i, s, b):
        return {"sum": f + tf.cast(i, tf.float32), "s_bytes": s, "text": s, "flag": b}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def odd(self, x):
        return {"scalar": tf.reduce_sum(x), "y": x}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def matrix(self, x):
        return {"y": x[:, :1]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def failing(self, x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="not positive")]):
            return {"y": tf.identity(x)}


def save(path: pathlib.Path) -> None:
    model = Small()
    signatures = {name: getattr(model, name) for name in ("half_plus_two", "mixed", "odd", "matrix", "failing")}
    tf.saved_model.save(model, str(path), {"serving_default": model.half_plus_two, **signatures})


@pytest.fixture(scope="session")
def base_url(tmp_path_factory):
    """The server's address; the model is /v1/models/m, version 123."""
    if "CTRPIPE_CONTRACT_URL" in os.environ:
        yield os.environ["CTRPIPE_CONTRACT_URL"].rstrip("/")
        return
    from serving.server import ServerOptions, running_server

    folder = tmp_path_factory.mktemp("model")
    save(folder / "00000123")
    (folder / "not-a-version").mkdir()
    with running_server(ServerOptions(folder, "m")) as addresses:
        yield addresses.rest


@pytest.fixture(scope="session")
def call(base_url):
    """call(method, path, body) -> (status, JSON or text)."""
    with httpx.Client(base_url=base_url, trust_env=False) as client:

        def request(method, path, body=None, **headers):
            answer = client.request(method, path, content=body, headers=headers)
            try:
                return answer.status_code, answer.json()
            except ValueError:
                return answer.status_code, answer.text

        yield request


if __name__ == "__main__":
    save(pathlib.Path(sys.argv[1]))
