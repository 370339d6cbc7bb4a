"""Looks for parts of a SavedModel that XLA must compile, and turns XLA on or off in this process.

tensorflow_model_server answers such a graph with INTERNAL, "XLA compilation disabled", unless it was started with
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
_MUST_COMPILE = "_XlaMustCompile"  # tf.function(jit_compile=True), on a function and on each call of it


def xla_node(version: pathlib.Path) -> str | None:
    """Returns the name of a function or a node of the version's graph that XLA would have to compile, None without one.

    Functions are looked at whether a signature calls them or not.
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
        if node.op.lstrip("_").startswith("Xla") or node.attr[_MUST_COMPILE].b:  # XlaCallModule is JAX's
            return f"{node.name} ({node.op})"
    return None


@contextlib.contextmanager
def xla_compilation(enabled: bool) -> Iterator[None]:
    """Enables or disables XLA for the whole process inside the block; disabled, graphs that need it fail with INTERNAL.

    It calls the C++ functions that tensorflow_model_server calls, which TensorFlow's Python API lacks. After the block
    XLA is enabled, as it is when TensorFlow starts. Where TensorFlow's library lies elsewhere it stays so inside too.
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
