"""Graphs that XLA has to compile (V11): main.cc calls tensorflow::DisableXlaCompilation() where no flag enables it."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.serving.xla import xla_compilation, xla_node
from tests.contract import models, servers
from tests.contract.rpc import Rpc, refusal


class Compiled(tf.Module):
    """A signature that XLA compiles, one that calls it, and one without."""

    @tf.function(input_signature=[models.spec(tf.float32, "x")], jit_compile=True)
    def compiled(self, x):
        return {"y": x / 2 + 2}

    @tf.function(input_signature=[models.spec(tf.float32, "x")])
    def calling(self, x):
        return {"y": tf.map_fn(lambda value: self.compiled(value[None])["y"][0], x)}

    @tf.function(input_signature=[models.spec(tf.float32, "x")])
    def plain(self, x):
        return {"y": x / 2 + 2}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder, model = tmp_path_factory.mktemp("xla") / models.NAME, Compiled()
    signatures = {name: getattr(model, name) for name in ("compiled", "calling", "plain")}
    tf.saved_model.save(model, str(folder / "1"), signatures)
    return folder


@contextlib.contextmanager
def serving(base, *flags):
    """This project's `running_server` does not read the flags of XLA; `serve` and a binary do."""
    enabled = "--xla_cpu_compilation_enabled" in flags
    with xla_compilation(enabled) if servers.IS_OURS else contextlib.nullcontext():
        with servers.start([f"--model_base_path={base}", f"--model_name={models.NAME}", *flags]) as addresses:
            with Rpc(addresses.grpc) as rpc:
                yield rpc


@pytest.mark.parametrize("signature", ["compiled", "calling"])
def test_V11_what_xla_has_to_compile_is_an_internal_error(base, signature):
    inputs = {"x": np.float32([1])}
    with serving(base) as rpc:
        assert rpc.predict(inputs, signature="plain")[0]["y"].tolist() == [2.5]
        code, message = refusal(rpc.predict, inputs, signature=signature)
        assert code == "INTERNAL" and "XLA compilation disabled" in message


def test_V11_a_flag_lets_it_run(base):
    with serving(base, "--xla_cpu_compilation_enabled") as rpc:
        assert rpc.predict({"x": np.float32([1])}, signature="compiled")[0]["y"].tolist() == [2.5]


def test_V11_the_nodes_of_xla_are_found(base, model_folder):
    assert "compiled" in xla_node(base / "1")
    assert xla_node(model_folder / models.FOLDER) is None
