"""The TensorFlow session's settings, from flags and --tensorflow_session_config_file."""

import pathlib
from collections.abc import Iterable

from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

from ctrpipe.serving.assets import is_click_model
from ctrpipe.serving.server.options import ServerOptions
from ctrpipe.serving.text_proto import read_text_proto

# Operations run one after another in the request's own thread. Handing them to other threads takes longer than a click
# model's operations, and the server has as many threads as requests. A run that is not known to be short uses other
# threads, because only such a run can be stopped at its deadline (serving/loader.py).
_IN_THE_CALLERS_THREAD = -1
_AUTOMATIC = 0


def session_config(options: ServerOptions) -> config_pb2.ConfigProto:
    """Returns the session settings of all versions. A flag overrides the file.

    Raises:
        InputError: the file cannot be read, or is not a ConfigProto.
    """
    config = config_pb2.ConfigProto(inter_op_parallelism_threads=_IN_THE_CALLERS_THREAD)
    if options.tensorflow_session_config_file is not None:
        config = read_text_proto(
            options.tensorflow_session_config_file, config_pb2.ConfigProto(), "intra_op_parallelism_threads: 4"
        )
    _set_threads(config, options)
    if options.per_process_gpu_memory_fraction:
        config.gpu_options.per_process_gpu_memory_fraction = options.per_process_gpu_memory_fraction
    if options.mixed_precision == "bfloat16":
        rewrites = config.graph_options.rewrite_options
        rewrites.auto_mixed_precision_onednn_bfloat16 = rewriter_config_pb2.RewriterConfig.ON
    return config


def for_first_versions(config: config_pb2.ConfigProto, versions: Iterable[pathlib.Path]) -> config_pb2.ConfigProto:
    """Returns the settings with the number of threads within an operation, if it is automatic.

    The first session of a process sets it for all. An operation of a click model is so short that parts of it in other
    threads cost more than they save; idle processors share the rows of a request instead (serving/server/pieces.py). An
    operation of a text encoder, or of a model that ctrpipe did not export, uses all processors. So do those of click
    models in the same process.

    Args:
        config: The settings of `session_config`.
        versions: The folders of the versions that are loaded first; at least one.
    """
    threads = config.intra_op_parallelism_threads, config.inter_op_parallelism_threads
    if threads != (_AUTOMATIC, _IN_THE_CALLERS_THREAD) or not all(is_click_model(version) for version in versions):
        return config
    chosen = config_pb2.ConfigProto()
    chosen.CopyFrom(config)
    chosen.intra_op_parallelism_threads = 1
    return chosen


def _set_threads(config: config_pb2.ConfigProto, options: ServerOptions) -> None:
    intra, inter = options.tensorflow_intra_op_parallelism, options.tensorflow_inter_op_parallelism
    both = options.tensorflow_session_parallelism
    if intra > 0 or inter > 0:
        config.intra_op_parallelism_threads, config.inter_op_parallelism_threads = intra, inter
    elif both > 0:
        config.intra_op_parallelism_threads = config.inter_op_parallelism_threads = both
