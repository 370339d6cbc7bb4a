"""Reads and writes BatchingParameters: --batching_parameters_file and batching_params.pbtxt.

See contract B1, B2 and B5.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.serving.text_proto import read_text_proto

PER_MODEL_FILE = "batching_params.pbtxt"
_PACKAGE = "tensorflow.serving"
_WRAPPED = {
    "max_batch_size": "Int64Value",
    "batch_timeout_micros": "Int64Value",
    "max_enqueued_batches": "Int64Value",
    "num_batch_threads": "Int64Value",
    "thread_pool_name": "StringValue",
    "enable_large_batch_splitting": "BoolValue",
    "max_execution_batch_size": "Int64Value",
}


@dataclasses.dataclass(frozen=True)
class BatchingParameters:
    """The parameters of batching. Names and defaults follow TF Serving's BatchingParameters and scheduler.

    Args:
        max_batch_size: Maximum rows of a request; also of a batch, unless large requests are split.
        batch_timeout_micros: How long a batch that is not full waits for more requests, in microseconds.
        max_enqueued_batches: Maximum number of batches in a queue, waiting for a thread.
        num_batch_threads: Batches that run at the same time, over all signatures of all models.
        thread_pool_name: Name of the batch threads.
        allowed_batch_sizes: Allowed batch sizes in ascending order, up to max_batch_size even if requests are split. A
            batch is padded to the smallest size that fits.
        pad_variable_length_inputs: Pad inputs of different shapes to the largest.
        enable_large_batch_splitting: Allow a request to be spread over several batches.
        max_execution_batch_size: Maximum rows of a batch if requests are split; 0 = max_batch_size.

    Raises:
        InputError: TF Serving would refuse a value.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 1)
    thread_pool_name: str = "batch_threads"
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int = 0

    def __post_init__(self) -> None:
        if self.num_batch_threads < 1:
            raise InputError(f"num_batch_threads must be positive; was {self.num_batch_threads}")
        if self.max_batch_size < 1:
            raise InputError(f"input_batch_size_limit must be positive; was {self.max_batch_size}")
        if self.batch_timeout_micros < 0:
            raise InputError(f"batch_timeout_micros must be non-negative; was {self.batch_timeout_micros}")
        if self.max_enqueued_batches < (1 if self.enable_large_batch_splitting else 0):
            raise InputError(f"max_enqueued_batches must be positive; was {self.max_enqueued_batches}")
        if self.execution_size > self.max_batch_size or self.execution_size < 1:
            raise InputError(
                "When enable_large_batch_splitting is true, input_batch_size_limit must be greater than or equal to "
                f"max_execution_batch_size; they are {self.max_batch_size} and {self.execution_size}"
            )
        if self.allowed_batch_sizes and self.allowed_batch_sizes[-1] != self.max_batch_size:
            raise InputError(
                "Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
                f"{self.allowed_batch_sizes[-1]}; expected {self.max_batch_size}"
            )

    @property
    def execution_size(self) -> int:
        """The maximum number of rows of a batch."""
        if self.enable_large_batch_splitting and self.max_execution_batch_size:
            return self.max_execution_batch_size
        return self.max_batch_size

    def padded_size(self, rows: int) -> int:
        """Returns the smallest allowed size that fits, or `rows` if any size is allowed."""
        return next((size for size in self.allowed_batch_sizes if size >= rows), rows)


@functools.cache
def _message_class() -> Any:
    """Returns a class equivalent to TF Serving's BatchingParameters.

    The tensorflow-serving-api package has no such class. This one defines the names and types of the fields: enough to
    parse text.
    """
    file = descriptor_pb2.FileDescriptorProto(name="ctrpipe/batching_parameters.proto", package=_PACKAGE)
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    field = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="BatchingParameters")
    for number, (name, wrapper) in enumerate(_WRAPPED.items(), start=1):
        message.field.add(
            name=name,
            number=number,
            type=field.TYPE_MESSAGE,
            type_name=f".google.protobuf.{wrapper}",
            label=field.LABEL_OPTIONAL,
        )
    message.field.add(name="allowed_batch_sizes", number=100, type=field.TYPE_INT64, label=field.LABEL_REPEATED)
    message.field.add(name="pad_variable_length_inputs", number=101, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(wrappers_pb2.DESCRIPTOR.serialized_pb))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.BatchingParameters"))


def read_parameters(file: pathlib.Path) -> BatchingParameters:
    """Reads a text proto BatchingParameters.

    Raises:
        InputError: the file cannot be read, is not a BatchingParameters, or TF Serving would refuse its values.
    """
    message = read_text_proto(file, _message_class()(), "max_batch_size { value: 128 }")
    values = {name: getattr(message, name).value for name in _WRAPPED if message.HasField(name)}
    try:
        return BatchingParameters(
            allowed_batch_sizes=tuple(message.allowed_batch_sizes),
            pad_variable_length_inputs=message.pad_variable_length_inputs,
            **values,
        )
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def write_parameters(parameters: BatchingParameters) -> str:
    """Returns the text proto of the values that differ from the defaults.

    The number of threads is always written, as its default depends on the machine.
    """
    message, defaults = _message_class()(), BatchingParameters()
    for name in _WRAPPED:
        value = getattr(parameters, name)
        if name == "num_batch_threads" or value != getattr(defaults, name):
            getattr(message, name).value = value
    message.allowed_batch_sizes.extend(parameters.allowed_batch_sizes)
    message.pad_variable_length_inputs = parameters.pad_variable_length_inputs
    return str(text_format.MessageToString(message))
