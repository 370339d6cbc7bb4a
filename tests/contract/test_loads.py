"""What the loader takes and refuses (V13), with codes and texts of the C++ loader in TensorFlow's library.

That is the function that tensorflow_model_server calls; here it is called through TensorFlow's C API.
"""

import ctypes
import pathlib
import shutil

import httpx
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2

from ctrpipe.serving.server.errors import number_of
from tests.contract import models, servers
from tests.contract.rpc import Rpc, model_config, wait_for

PB = "saved_model.pb"
SHARD = "variables/variables.data-00000-of-00001"
INDEX = "variables/variables.index"
# TF Serving looks for the graph before it calls the loader (session_bundle_util.cc).
NOT_FOUND = 5
NO_GRAPH = (
    "Specified file path does not appear to contain a SavedModel bundle (should have a file called `saved_model.pb`)\n"
    "Specified file path: {}"
)
_P = ctypes.c_void_p


class Biased(tf.Module):
    """A graph with a variable."""

    def __init__(self):
        super().__init__()
        self.bias = tf.Variable(2.0)

    @tf.function(input_signature=[models.spec(tf.float32, "x")])
    def call(self, x):
        return {"y": x + self.bias}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    model, folder = Biased(), tmp_path_factory.mktemp("biased") / "1"
    tf.saved_model.save(model, str(folder), {"serving_default": model.call})
    return folder


@pytest.fixture(scope="module")
def cpp_loader():
    """load(folder, tags) -> (code, text) of TF_LoadSessionFromSavedModel."""
    library = ctypes.CDLL(str(pathlib.Path(tf.sysconfig.get_lib()) / "libtensorflow_cc.so.2"))
    for name in ("TF_NewSessionOptions", "TF_NewGraph", "TF_NewStatus", "TF_LoadSessionFromSavedModel"):
        library[name].restype = _P
    library.TF_Message.restype, library.TF_Message.argtypes, library.TF_GetCode.argtypes = ctypes.c_char_p, [_P], [_P]
    tags_type = ctypes.POINTER(ctypes.c_char_p)
    load_session = library["TF_LoadSessionFromSavedModel"]
    load_session.restype = _P
    load_session.argtypes = [_P, _P, ctypes.c_char_p, tags_type, ctypes.c_int, _P, _P, _P]

    def load(folder, tags):
        new = {name: library[f"TF_New{name}"] for name in ("SessionOptions", "Graph", "Status")}
        for make in new.values():
            make.restype = _P
        status = new["Status"]()
        names = (ctypes.c_char_p * len(tags))(*[tag.encode() for tag in tags])
        path = str(folder).encode()
        load_session(new["SessionOptions"](), None, path, names, len(tags), new["Graph"](), None, status)
        return library.TF_GetCode(status), library.TF_Message(status).decode()

    return load


def as_text(version):
    """The graph as a text proto alone."""
    model = saved_model_pb2.SavedModel.FromString((version / PB).read_bytes())
    (version / "saved_model.pbtxt").write_text(text_format.MessageToString(model))
    (version / PB).unlink()


def as_broken_text(version):
    (version / "saved_model.pbtxt").write_text("meta_graphs { nonsense")
    (version / PB).unlink()


def cut_graph(version):
    (version / PB).write_bytes((version / PB).read_bytes()[:-1000])


def unknown_operation(version):
    model = saved_model_pb2.SavedModel.FromString((version / PB).read_bytes())
    model.meta_graphs[0].graph_def.node.add(name="unknown", op="NoSuchOperation")
    (version / PB).write_bytes(model.SerializeToString())


def without_graphs(version):
    (version / PB).write_bytes(b"")


def without_values(version):
    """A checkpoint of another model."""
    tf.raw_ops.SaveV2(
        prefix=str(version / "variables" / "variables"), tensor_names=["other"], shape_and_slices=[""], tensors=[[1.0]]
    )


def nothing(version):
    pass


@pytest.mark.parametrize(
    ("change", "tags"),
    [
        (nothing, ["serve"]),
        (nothing, ["serve", "gpu"]),
        (nothing, ["b", "a"]),
        (as_text, ["serve"]),
        (as_broken_text, ["serve"]),
        (cut_graph, ["serve"]),
        (lambda version: (version / PB).write_bytes(b"no SavedModel"), ["serve"]),
        (lambda version: (version / PB).unlink(), ["serve"]),
        (without_graphs, ["serve"]),
        (unknown_operation, ["serve"]),
        (lambda version: shutil.rmtree(version / "variables"), ["serve"]),
        (lambda version: (version / SHARD).unlink(), ["serve"]),
        (lambda version: (version / SHARD).write_bytes(b""), ["serve"]),
        (lambda version: (version / INDEX).write_bytes(b"no index"), ["serve"]),
        (lambda version: (version / INDEX).write_bytes(b""), ["serve"]),
        (without_values, ["serve"]),
        (lambda version: (version / PB).write_bytes(b"no SavedModel" * 50_000), ["serve"]),
        (lambda version: (version / PB).write_bytes(bytes(700_000)), ["serve"]),
        (
            lambda version: (version / PB).write_bytes((version / PB).read_bytes() + b"\x0a" + b"\xff" * 700_000),
            ["serve"],
        ),
    ],
)
def test_V13_a_load_ends_as_in_the_cpp_loader(source, tmp_path, cpp_loader, change, tags):
    """The version is added next to a serving one: its state can be requested."""
    base, good = tmp_path / "base", tmp_path / "good" / "1"
    shutil.copytree(source, good)
    shutil.copytree(source, base / "7")
    change(base / "7")
    expected = cpp_loader(base / "7", tags)
    if not any((base / "7" / name).exists() for name in (PB, "saved_model.pbtxt")):
        expected = NOT_FOUND, NO_GRAPH.format(base / "7")
    if "serve" not in tags or len(tags) > 1:
        model = saved_model_pb2.SavedModel.FromString((good / PB).read_bytes())
        model.meta_graphs[0].meta_info_def.tags[:] = tags
        (good / PB).write_bytes(model.SerializeToString())
    config = tmp_path / "models.config"
    config.write_text(model_config(good=(good.parent,)))
    flags = [f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1", "--max_num_load_retries=0"]
    with servers.start([*flags, f"--saved_model_tags={','.join(tags)}"]) as addresses:
        config.write_text(model_config(good=(good.parent,), m=(base,)))

        def ended():
            rows = httpx.get(f"{addresses.rest}/v1/models/m", trust_env=False).json()
            [row] = rows.get("model_version_status", [{"state": "START"}])
            return row if row["state"] in ("AVAILABLE", "END") else None

        row = wait_for(ended)
    found = number_of(row["status"]["error_code"]), row["status"]["error_message"]
    assert found == expected and (row["state"] == "AVAILABLE") == (expected[0] == 0)


def save_without_variables(version):
    double = tf.function(lambda x: {"y": x * 2}, [models.spec(tf.float32, "x")])
    tf.saved_model.save(tf.Module(), str(version), {"serving_default": double})
    shutil.rmtree(version / "variables")


def save_of_unknown_rank(version):
    double = tf.function(lambda x: {"y": x * 2}, [tf.TensorSpec(None, tf.float32, name="x")])
    tf.saved_model.save(tf.Module(), str(version), {"serving_default": double})
    model = saved_model_pb2.SavedModel.FromString((version / PB).read_bytes())
    assert model.meta_graphs[0].signature_def["serving_default"].inputs["x"].tensor_shape.unknown_rank


def save_as_text(version):
    double = tf.function(lambda x: {"y": x * 2}, [models.spec(tf.float32, "x")])
    tf.saved_model.save(tf.Module(), str(version), {"serving_default": double})
    as_text(version)


@pytest.mark.parametrize("save", [save_without_variables, save_of_unknown_rank, save_as_text])
@pytest.mark.parametrize("flags", [[], ["--enable_batching"]])
def test_V13_what_the_cpp_loader_takes_is_served(tmp_path, save, flags):
    save(tmp_path / "1")
    with servers.start([f"--model_base_path={tmp_path}", f"--model_name={models.NAME}", *flags]) as addresses:
        url = f"{addresses.rest}/v1/models/{models.NAME}"
        answer = httpx.post(f"{url}:predict", content='{"instances": [1.0, 2.0]}', trust_env=False)
        assert answer.json() == {"predictions": [2.0, 4.0]}
        assert httpx.get(f"{url}/metadata", trust_env=False).status_code == 200
        with Rpc(addresses.grpc) as rpc:
            assert rpc.predict({"x": np.float32([1, 2])})[0]["y"].tolist() == [2, 4]
