"""Finds nodes of a SavedModel that XLA must compile, and switches XLA on and off.

tensorflow_model_server fails on such a graph with INTERNAL, "XLA compilation disabled", unless it was started with
--xla_cpu_compilation_enabled (tensorflow_serving/model_servers/main.cc).
"""

import contextlib
import ctypes
import pathlib
import sys
from collections.abc import Iterable, Iterator

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from ctrpipe.serving.layout import SAVED_MODEL

LIBRARIES = {"linux": "libtensorflow_cc.so.2", "darwin": "libtensorflow_cc.2.dylib"}  # by sys.platform
_MUST_COMPILE = "_XlaMustCompile"  # set by tf.function(jit_compile=True) on the function and on each call of it


def xla_node(version: pathlib.Path) -> str | None:
    """Returns the name of a function or node of the version's graph that XLA must compile; None if there is none.

    Checks all functions, including those that no signature calls.
    """
    model = saved_model_pb2.SavedModel.FromString((version / SAVED_MODEL).read_bytes())
    for graph in (meta_graph.graph_def for meta_graph in model.meta_graphs):
        for function in graph.library.function:
            if function.attr[_MUST_COMPILE].b:
                return str(function.signature.name)
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            if name := _first(nodes):
                return name
    return None


def _first(nodes: Iterable[node_def_pb2.NodeDef]) -> str | None:
    for node in nodes:
        if node.op.lstrip("_").startswith("Xla") or node.attr[_MUST_COMPILE].b:  # JAX exports XlaCallModule
            return f"{node.name} ({node.op})"
    return None


@contextlib.contextmanager
def xla_compilation(enabled: bool) -> Iterator[None]:
    """Enables or disables XLA for the whole process inside the block.

    While XLA is disabled, graphs that need it fail with INTERNAL. The block calls the C++ functions that
    tensorflow_model_server calls, because TensorFlow's Python API does not expose them. After the block XLA is enabled,
    TensorFlow's default. If TensorFlow's C++ library is not at its usual path, the block changes nothing.
    """
    path = pathlib.Path(tf.sysconfig.get_lib()) / LIBRARIES.get(sys.platform, LIBRARIES["linux"])
    if not path.exists():
        yield
        return
    library = ctypes.CDLL(str(path))
    enable = library["_ZN10tensorflow20EnableXlaCompilationEv"]  # tensorflow::EnableXlaCompilation()
    disable = library["_ZN10tensorflow21DisableXlaCompilationEv"]
    (enable if enabled else disable)()
    try:
        yield
    finally:
        enable()
