"""Load a SavedModel like TF Serving: with the TF1/C++ loader, into a session."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ctrpipe.common.extras import require


def load_session(
    folder: pathlib.Path, config: Any = None, tags: Sequence[str] = ("serve",)
) -> tuple[Any, dict[str, Any]]:
    """Loads a graph with its variables into a tf.compat.v1.Session; also returns the SignatureDefs by name.

    Five times as fast as tf.saved_model.load. All sessions of a process share one intra-op thread pool, and the first
    session sets its size. Variables are restored only if variables/variables.index exists: a graph may have none.

    Args:
        folder: The SavedModel, a folder with saved_model.pb or saved_model.pbtxt.
        config: A ConfigProto. None for TensorFlow's defaults.
        tags: The tags of the graph to load.

    Raises:
        InputError: the graph has operations of TensorFlow Text, which is not installed.
        tf.errors.OpError: the graph or its variables cannot be read. Codes and messages are those of the C++ loader
            (tensorflow/cc/saved_model/reader.cc and loader.cc).
    """
    import tensorflow as tf  # lazy: takes 4.5 s of CPU time
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.saved_model.loader_impl import SavedModelLoader

    try:
        loader = SavedModelLoader(str(folder))
    except OSError as error:
        if any((folder / name).exists() for name in ("saved_model.pb", "saved_model.pbtxt")):
            raise _unreadable(folder) from error
        raise tf.errors.NotFoundError(None, None, no_saved_model(folder)) from error
    try:
        graph = loader.get_meta_graph_def_from_tags(tags)
    except RuntimeError as error:
        wanted = "".join(f"{tag} " for tag in sorted(set(tags)))
        message = (
            f"Could not find meta graph def matching supplied tags: {{ {wanted}}}. To inspect available tag-sets in "
            "the SavedModel, please use the SavedModel CLI: `saved_model_cli`"
        )
        raise tf.errors.NotFoundError(None, None, message) from error
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    with session.graph.as_default():
        try:
            saver, _ = loader.load_graph(session.graph, tags)
        except tf.errors.NotFoundError as error:
            if "Op type not registered" in error.message:
                require("text", f"{folder}: its graph")
            raise
        if (folder / "variables" / "variables.index").exists():
            variables = folder / "variables" / "variables"
            names = saver.saver_def  # not Saver.restore or Session.run, which raise other errors
            options = config_pb2.CallableOptions(feed=[names.filename_tensor_name], target=[names.restore_op_name])
            session._make_callable_from_options(options)(np.array(str(variables), object))
        loader.run_init_ops(session, tags)
    return session, dict(graph.signature_def)


def _unreadable(folder: pathlib.Path) -> Any:
    """Returns the error of the C++ loader for a graph file that cannot be parsed.

    The error depends on how far the loader can read the file. CreateFingerprintDef is the only Python function of
    TensorFlow that reads the file in the same way and reports where it fails.
    """
    import tensorflow as tf  # lazy: takes 4 s, and the caller has imported it
    from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

    data_loss = ""
    try:
        fingerprinting.CreateFingerprintDef(str(folder))
    except fingerprinting.FingerprintException as error:
        data_loss = str(error).rpartition("DATA_LOSS: ")[2] if "DATA_LOSS: " in str(error) else ""
    if data_loss:
        return tf.errors.DataLossError(None, None, data_loss)
    return tf.errors.OutOfRangeError(None, None, "Read less bytes than requested")


def no_saved_model(folder: pathlib.Path) -> str:
    """Returns the message of the C++ loader for a folder without a SavedModel."""
    return (
        f"Could not find SavedModel .pb or .pbtxt at supplied export directory path: {folder}. Check that the "
        "directory exists and that you have the right permissions for accessing it."
    )
