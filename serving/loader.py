"""Runs a SavedModel as TF Serving does: with the TF1/C++ loader, in one session, by Session::Run."""

import dataclasses
import functools
import itertools
import math
import pathlib
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import op_def_registry

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_text_operations
from ctrpipe.common.sessions import load_session, no_saved_model
from ctrpipe.serving.layout import check_assets, check_files, graph_file

# The session keeps a graph for each subset of outputs and each set of signatures: at most so many of either.
_MOST_CALLS = 100
# A run in the caller's thread cannot be interrupted, so only runs expected to be shorter than this stay there.
_SHORT_SECONDS = 0.1
# The dimensions of numpy's iterator, by which TensorFlow reads and writes strings, and of its arrays, for other
# outputs. TensorFlow does not check that it got one.
_MOST_DIMENSIONS_OF_STRINGS, _MOST_DIMENSIONS = 32, 64
# How long a measurement of memory may take. A model of another exporter may have a loop that never ends.
_MEASURED_MILLISECONDS = 10_000
_IN_CALLERS_THREAD = config_pb2.RunOptions(inter_op_thread_pool=-1)
_HANDLES = {tf.resource, tf.variant}
_LOOPS = {"While", "StatelessWhile", "For", "Enter", "RefEnter"}
# Operations that TensorFlow calls stateful because they read a state, call a function or raise an error.
_READS = {
    *("VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"),
    *("HashTable", "HashTableV2", "LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2"),
    *("Assert", "StatefulPartitionedCall", "If", "Case", "While"),
}


@dataclasses.dataclass(frozen=True)
class _Call:
    """A run of the graph: its input and output tensors by alias, as TF_Output objects of the C API."""

    inputs: dict[str, Any]
    outputs: dict[str, Any]


class LoadedServable(Protocol):
    """Interface of a loaded version: a Servable, or a BatchingServable that merges runs into batches.

    Attributes:
        path: The version's folder.
        signatures: The signatures by name.
        input_types: The dtypes of each signature's inputs, sorted by alias because a proto map is unordered.
        waits: Whether a run waits for other runs to join its batch.
    """

    path: pathlib.Path
    signatures: dict[str, meta_graph_pb2.SignatureDef]
    input_types: dict[str, dict[str, tf.DType]]
    waits: bool

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns the signature's outputs by alias: the named ones, or all."""

    def run_together(
        self, outputs: Mapping[str, Sequence[str]], values: np.ndarray, timeout_seconds: float | None = None
    ) -> dict[str, dict[str, np.ndarray]]:
        """Returns the named outputs of several single-input signatures for the same input values."""

    def peak_bytes(self, signature: str, inputs: Mapping[str, np.ndarray]) -> int:
        """Runs a signature and returns the peak memory of its tensors, in bytes."""

    def close(self) -> None:
        """Closes the session and frees its memory."""


class Servable:
    """A loaded version of a model. `run` is thread-safe.

    All sessions of a process share one pool of intra-op threads. The first session sets its size.

    Args:
        path: The version's folder.
        threads: The number of intra-op and of inter-op threads; 0 = one per processor. Ignored if `config` is given.
        config: The session's settings.
        tags: The tags of the graph to load from the SavedModel.

    Attributes:
        path: The version's folder.
        signatures: The signatures by name.
        input_types: The dtypes of each signature's inputs, sorted by alias because a proto map is unordered.
        waits: False: a run does not wait for other runs.

    Raises:
        InputError: the folder contains no SavedModel, or a file that the graph reads is damaged.
    """

    waits = False

    def __init__(
        self,
        path: pathlib.Path,
        threads: int = 0,
        config: config_pb2.ConfigProto | None = None,
        tags: Sequence[str] = ("serve",),
    ):
        if not graph_file(path).exists():
            raise InputError(no_saved_model(path))
        check_files(path)
        check_assets(path)
        self.path = path
        if config is None:
            config = config_pb2.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
        self._may_stay_in_thread = config.inter_op_parallelism_threads < 0
        if self._may_stay_in_thread:
            config = config_pb2.ConfigProto.FromString(config.SerializeToString())
            config.inter_op_parallelism_threads = 0  # threads for runs that must end at their deadline
        load_text_operations()
        self.signatures: dict[str, meta_graph_pb2.SignatureDef]
        self._session, self.signatures = load_session(path, config, tags)
        self._checked = self._check_outputs()
        self.input_types = {
            signature: {name: tf.as_dtype(info.dtype) for name, info in sorted(definition.inputs.items())}
            for signature, definition in self.signatures.items()
        }
        self._varying: set[str] = set()  # signatures
        if self._may_stay_in_thread:
            self._varying = self._signatures_with(_may_take_any_time)
        self._short_sizes: dict[Hashable, int] = {}  # by call: the largest number of input values of a short run
        self._calls: dict[tuple[str, ...], _Call] = {}
        self._callables: dict[Hashable, Callable[..., list[np.ndarray]]] = {}  # run in the caller's thread
        self._lock = threading.Lock()
        self._joint_calls: set[tuple[tuple[str, ...], ...]] = set()

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns the signature's outputs by alias: the named ones, or all.

        Args:
            signature: The signature's name.
            inputs: Arrays by alias, of exactly the inputs' dtypes: nothing is cast. An absent input takes the
                signature's default, if it has one.
            outputs: The aliases to return; None: all.
            timeout_seconds: Time left. On expiry, the run ends after the operations that have already started.

        Raises:
            KeyError: an alias is unknown, or an input has neither a value nor a default.
            ValueError: strings have more than 32 dimensions, or an output is a resource or a variant.
            tf.errors.OpError: TensorFlow reports an error; DeadlineExceededError if no time is left.
        """
        _check_time(timeout_seconds)
        key = self._key(signature, outputs) if outputs else (signature,)
        call = self._calls.get(key) or self._make_call(key)
        if len(inputs) < len(call.inputs):
            inputs = self.with_defaults(signature, inputs)
        feeds = {tensor: inputs[name] for name, tensor in call.inputs.items()}
        arrays = self._run(key, feeds, list(call.outputs.values()), timeout_seconds)
        values = dict(zip(call.outputs, arrays, strict=True))
        return {name: values[name] for name in outputs} if outputs else values

    def run_together(
        self, outputs: Mapping[str, Sequence[str]], values: np.ndarray, timeout_seconds: float | None = None
    ) -> dict[str, dict[str, np.ndarray]]:
        """Returns the named outputs of several single-input signatures for the same input values.

        One run computes them all. After _MOST_CALLS different sets, the signatures of a new set run one by one.

        Args:
            outputs: The aliases to return, by signature.
            values: The value of every signature's input, of exactly its dtype.
            timeout_seconds: Time left, as in `run`.

        Raises:
            KeyError: a signature or an alias is unknown.
            tf.errors.OpError: TensorFlow reports an error; DeadlineExceededError if no time is left.
        """
        _check_time(timeout_seconds)
        keys = {signature: self._key(signature, aliases) for signature, aliases in outputs.items()}
        calls = {signature: self._calls.get(key) or self._make_call(key) for signature, key in keys.items()}
        key = tuple(keys.values())
        if not self._may_join(key):
            return {
                signature: self.run(signature, dict.fromkeys(calls[signature].inputs, values), aliases, timeout_seconds)
                for signature, aliases in outputs.items()
            }
        feeds: dict[str, Any] = {}  # by tensor name, because signatures may share tensors
        fetches: dict[str, Any] = {}
        for signature, call in calls.items():
            definition = self.signatures[signature]
            feeds |= {definition.inputs[alias].name: tensor for alias, tensor in call.inputs.items()}
            fetches |= {definition.outputs[alias].name: tensor for alias, tensor in call.outputs.items()}
        arrays = self._run(key, dict.fromkeys(feeds.values(), values), list(fetches.values()), timeout_seconds)
        by_name = dict(zip(fetches, arrays, strict=True))
        return {
            signature: {alias: by_name[self.signatures[signature].outputs[alias].name] for alias in aliases}
            for signature, aliases in outputs.items()
        }

    def _check_outputs(self) -> dict[str, str]:
        """Adds a check to each output that may have too many dimensions, for which TensorFlow would end the process.

        Returns:
            The name of the checked tensor, by the name of the output's tensor.
        """
        checked = {}
        names = {info.name for definition in self.signatures.values() for info in definition.outputs.values()}
        for name in sorted(names):
            try:
                tensor = self._tensor(name)
            except tf.errors.InvalidArgumentError:  # which a request gets
                continue
            kind, rank = tensor.dtype.base_dtype, tensor.shape.rank
            most = _MOST_DIMENSIONS_OF_STRINGS if kind == tf.string else _MOST_DIMENSIONS
            if kind not in _HANDLES and (rank is None or rank > most):
                message = f"The output {name} has more than {most} dimensions, which this server does not return"
                with self._session.graph.as_default():
                    few = tf.debugging.Assert(tf.rank(tensor) <= most, [message])
                    with tf.control_dependencies([few]):
                        checked[name] = tf.identity(tensor).name
        if checked:
            self._session._extend_graph()
        return checked

    def _signatures_with(self, is_wanted: Callable[[str], bool]) -> set[str]:
        return _signatures_with(is_wanted, self._session.graph.as_graph_def(), self.signatures)

    @functools.cached_property
    def _changing(self) -> set[str]:
        return self._signatures_with(_may_change_state)

    def peak_bytes(self, signature: str, inputs: Mapping[str, np.ndarray]) -> int:
        """Runs a signature and returns the peak memory of its tensors, in bytes.

        TensorFlow reports each allocation and release with its time. The contents of string tensors are not included.

        Args:
            signature: The signature's name.
            inputs: Arrays by alias, of exactly the inputs' dtypes.

        Raises:
            ValueError: a run may change the results of later runs.
            tf.errors.OpError: TensorFlow reports an error; DeadlineExceededError if the run takes too long.
        """
        if signature in self._changing:
            raise ValueError(f"the signature {signature} may keep a state")
        definition = self.signatures[signature]
        trace = config_pb2.RunOptions.FULL_TRACE
        traced = config_pb2.RunOptions(trace_level=trace, timeout_in_ms=_MEASURED_MILLISECONDS)
        metadata = config_pb2.RunMetadata()
        fetches = [self._checked.get(info.name, info.name) for info in definition.outputs.values()]
        feeds = {definition.inputs[alias].name: array for alias, array in inputs.items()}
        self._session.run(fetches, feeds, options=traced, run_metadata=metadata)
        records = [
            (record.alloc_micros, record.alloc_bytes)
            for device in metadata.step_stats.dev_stats
            for node in device.node_stats
            for memory in node.memory
            for record in memory.allocation_records
        ]
        records.sort(key=lambda record: record[0])
        return max(itertools.accumulate(size for _, size in records), default=0)

    def _may_join(self, key: tuple[tuple[str, ...], ...]) -> bool:
        """Returns whether the session may cache a graph for this set of signatures."""
        if key not in self._joint_calls and len(self._joint_calls) < _MOST_CALLS:
            self._joint_calls.add(key)
        return key in self._joint_calls

    def _run(
        self,
        key: tuple[str | tuple[str, ...], ...],
        feeds: dict[Any, np.ndarray],
        fetches: list[Any],
        timeout_seconds: float | None,
    ) -> list[np.ndarray]:
        """Runs the graph for the inputs and outputs of `key`, and records whether the run was short."""
        _check_dimensions(feeds.values())
        size, short_size = sum(array.size for array in feeds.values()), self._short_sizes.get(key, -1)
        began = time.perf_counter()
        stays = self._may_stay_in_thread and not self._varies(key)
        if stays and size <= short_size:
            arrays = self._run_in_callers_thread(key, feeds, fetches)
        else:
            options = None
            if timeout_seconds is not None:
                options = config_pb2.RunOptions(timeout_in_ms=math.ceil(timeout_seconds * 1000))
            arrays = self._session_run(feeds, fetches, options)
        if time.perf_counter() - began >= _SHORT_SECONDS:
            self._short_sizes[key] = min(short_size, size - 1)
        elif size > short_size:
            if stays and key not in self._callables:
                self._make_callable(key, feeds, fetches)  # in the warm-up already: it takes longer than a run
            self._short_sizes[key] = size
        return arrays

    def _varies(self, key: tuple[str | tuple[str, ...], ...]) -> bool:
        """Returns whether a signature of the key may take any time, whatever the size of its inputs."""
        return any((part if isinstance(part, str) else part[0]) in self._varying for part in key)

    def _run_in_callers_thread(
        self, key: Hashable, feeds: dict[Any, np.ndarray], fetches: list[Any]
    ) -> list[np.ndarray]:
        try:
            return self._callables[key](*feeds.values())
        except tf.errors.InvalidArgumentError:  # run again for the error message of Session::Run
            return self._session_run(feeds, fetches, _IN_CALLERS_THREAD)

    def _make_callable(self, key: Hashable, feeds: Iterable[object], fetches: Iterable[object]) -> None:
        """Makes a C++ callable for these tensors.

        For one row it takes a tenth less time than Session::Run, which looks up its graph by a string of all tensor
        names.
        """
        with self._lock:  # only once: TensorFlow optimises the graph for each callable
            if key not in self._callables:
                options = config_pb2.CallableOptions(
                    feed=map(_tensor_name, feeds), fetch=map(_tensor_name, fetches), run_options=_IN_CALLERS_THREAD
                )
                self._callables[key] = self._session._make_callable_from_options(options)

    def _session_run(
        self, feeds: dict[Any, np.ndarray], fetches: list[Any], options: config_pb2.RunOptions | None
    ) -> list[np.ndarray]:
        """Calls C++'s Session::Run.

        The Python code of tf.compat.v1.Session.run takes longer than a small model.
        """
        buffer = pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString()) if options else None
        try:
            arrays: list[np.ndarray] = pywrap_tf_session.TF_SessionRun_wrapper(
                self._session._session, buffer, feeds, fetches, [], None
            )
            return arrays
        finally:
            if buffer:
                pywrap_tf_session.TF_DeleteBuffer(buffer)

    def _key(self, signature: str, outputs: Sequence[str]) -> tuple[str, ...]:
        """Returns the key of the call for these outputs, or for all outputs after _MOST_CALLS keys."""
        key = (signature, *sorted(outputs))
        return key if key in self._calls or len(self._calls) < _MOST_CALLS else (signature,)

    def with_defaults(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the inputs, with the signature's defaults for absent ones."""
        absent = {name: value for name, value in self.signatures[signature].defaults.items() if name not in inputs}
        return {**inputs, **{name: tf.make_ndarray(value) for name, value in absent.items()}}

    def _make_call(self, key: tuple[str, ...]) -> _Call:
        signature, *outputs = key
        definition = self.signatures[signature]
        fetches = dict(definition.outputs)  # a lookup in a proto map inserts the key
        call = _Call(
            {alias: self._tensor(info.name)._as_tf_output() for alias, info in sorted(definition.inputs.items())},
            {alias: self._output(fetches[alias].name)._as_tf_output() for alias in sorted(outputs or fetches)},
        )
        return self._calls.setdefault(key, call)

    def _output(self, name: str) -> tf.Tensor:
        """Returns the tensor of an output.

        Raises:
            ValueError: the output is a handle.
            tf.errors.InvalidArgumentError: the graph has no such tensor.
        """
        tensor = self._tensor(self._checked.get(name, name))
        if tensor.dtype.base_dtype in _HANDLES:
            raise ValueError(f"The output {name} is of type {tensor.dtype.base_dtype.name}, which has no values")
        return tensor

    def _tensor(self, name: str) -> tf.Tensor:
        """Returns a tensor of the graph. Raises Session::Run's InvalidArgumentError if there is none, as of a sparse
        output, whose name is empty.
        """
        full = name if ":" in name else f"{name}:0"
        try:
            return self._session.graph.get_tensor_by_name(full)
        except (KeyError, ValueError) as error:
            message = f"Tensor {full}, specified in either feed_devices or fetch_devices was not found in the Graph"
            raise tf.errors.InvalidArgumentError(None, None, message) from error

    def close(self) -> None:
        self._session.close()


def _tensor_name(tensor: Any) -> str:
    return f"{pywrap_tf_session.TF_OperationName(tensor.oper)}:{tensor.index}"


def _check_time(timeout_seconds: float | None) -> None:
    """Raises DeadlineExceededError if no time is left."""
    if timeout_seconds is not None and timeout_seconds <= 0:
        raise tf.errors.DeadlineExceededError(None, None, "Timed out waiting for session run to begin.")


def _check_dimensions(arrays: Iterable[np.ndarray]) -> None:
    """Raises ValueError for an array of strings that would end the process."""
    for array in arrays:
        if array.ndim > _MOST_DIMENSIONS_OF_STRINGS and array.dtype == object:
            raise ValueError(
                f"A tensor of strings has {array.ndim} dimensions; at most {_MOST_DIMENSIONS_OF_STRINGS} are read"
            )


def _signatures_with(
    is_wanted: Callable[[str], bool], graph: graph_pb2.GraphDef, signatures: Mapping[str, meta_graph_pb2.SignatureDef]
) -> set[str]:
    """Returns the signatures whose outputs depend on an operation of a wanted type, also inside a function.

    Args:
        is_wanted: Whether an operation's type is wanted.
        graph: The graph.
        signatures: The signatures by name.
    """
    bodies = {function.signature.name: function.node_def for function in graph.library.function}
    called = {name: _called(nodes) for name, nodes in bodies.items()}
    having = {name for name, nodes in bodies.items() if any(is_wanted(node.op) for node in nodes)}
    while more := {name for name, others in called.items() if name not in having and others & having}:
        having |= more
    wanted = {node.name for node in graph.node if is_wanted(node.op) or _called([node]) & having}
    inputs = {node.name: [_node_of(name) for name in node.input] for node in graph.node}
    depending = set()
    for signature, definition in signatures.items():
        reached: set[str] = set()
        waiting = [_node_of(info.name) for info in definition.outputs.values()]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += inputs.get(name, [])
        if reached & wanted:
            depending.add(signature)
    return depending


def _may_take_any_time(operation: str) -> bool:
    """Returns whether the time of an operation of this type may depend on values or on a state, as a queue's does."""
    return operation in _LOOPS or "Dataset" in operation or _may_change_state(operation)


def _may_change_state(operation: str) -> bool:
    """Returns whether an operation of this type may keep state between runs, such as a counter."""
    definition = op_def_registry.get(operation)
    return definition is None or (definition.is_stateful and operation not in _READS)


def _called(nodes: Iterable[Any]) -> set[str]:
    """Returns the names of the functions that the nodes call."""
    names = set()
    for node in nodes:
        for value in node.attr.values():
            names |= {function.name for function in [value.func, *value.list.func] if function.name}
    return names


def _node_of(tensor: str) -> str:
    """Returns the node's name from the name of a tensor or control input."""
    return tensor.removeprefix("^").partition(":")[0]
