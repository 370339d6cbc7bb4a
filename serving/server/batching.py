"""Batching: concurrent requests run as one (contract B1 to B5; TF Serving's batching/batching_session.cc).

Each combination of a signature and its requested outputs has a queue of batches. New requests join the last batch. A
batch runs when it is full or has waited long enough, and a thread is free. All queues of the server share the threads.
"""

import collections
import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ctrpipe.serving.assets import read_feature_map
from ctrpipe.serving.loader import LoadedServable, Servable
from ctrpipe.serving.server.batching_parameters import PER_MODEL_FILE, BatchingParameters, read_parameters
from ctrpipe.serving.server.errors import ServingError, bad_request, from_tensorflow
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.options import ServerOptions

Arrays = dict[str, np.ndarray]
_POOL_NAME = "model_server_batch_threads"  # TF Serving's name if no file sets one


class _Task:
    """A request or a slice of one. All its rows run in the same batch."""

    def __init__(self, inputs: Arrays, rows: int, deadline: float | None):
        self.inputs = inputs
        self.rows = rows
        self.deadline = deadline
        self.enqueued = time.monotonic()
        self.outputs: Arrays = {}
        self.error: Exception | None = None
        self._done = threading.Lock()  # held until there is a result; five times cheaper than an Event
        self._done.acquire()

    def finish(self) -> None:
        self._done.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the result. Returns False on timeout."""
        return self._done.acquire(timeout=-1 if timeout is None else max(timeout, 0))


@dataclasses.dataclass
class _Batch:
    tasks: list[_Task] = dataclasses.field(default_factory=list)
    rows: int = 0
    opened: float = 0.0

    def add(self, task: _Task) -> None:
        if not self.tasks:
            self.opened = task.enqueued
        self.tasks.append(task)
        self.rows += task.rows


class BatchQueue:
    """The batches of one signature and set of outputs. Callers must hold the scheduler's lock.

    Args:
        parameters: Sizes and limits of the batches.
        run: Runs the tasks of a batch, and sets the outputs or the error of each.
    """

    def __init__(self, parameters: BatchingParameters, run: Callable[[list[_Task]], None]):
        self.parameters = parameters
        self.run = run
        self.batches = collections.deque([_Batch()])
        self.closed = False
        self.running = 0

    def admit(self, inputs: Arrays, rows: int, deadline: float | None) -> list[_Task]:
        """Queues a request and returns the tasks it was split into.

        Raises:
            ServingError: the request is too large, or the queue is full (B3).
        """
        self._check(rows)
        tasks = []
        for start, end in self._pieces(rows):
            whole = end - start == rows
            part = inputs if whole else {name: value[start:end] for name, value in inputs.items()}
            task = _Task(part, end - start, deadline)
            if self.batches[-1].rows + task.rows > self.parameters.execution_size:
                self.batches.append(_Batch())
            self.batches[-1].add(task)
            tasks.append(task)
        return tasks

    def _pieces(self, rows: int) -> list[tuple[int, int]]:
        size = self.parameters.execution_size
        room = size - self.batches[-1].rows
        if rows <= room or not self.parameters.enable_large_batch_splitting:
            return [(0, rows)]
        starts = [0, *range(room, rows, size)] if room else [*range(0, rows, size)]
        return list(zip(starts, [*starts[1:], rows], strict=True))

    def _check(self, rows: int) -> None:
        limits, last = self.parameters, self.batches[-1].rows
        if rows > limits.max_batch_size:
            raise bad_request(f"Task size {rows} is larger than maximum input batch size {limits.max_batch_size}")
        full = "The batch scheduling queue to which this task was submitted is full; "
        if limits.enable_large_batch_splitting:
            size = limits.execution_size
            capacity = (limits.max_enqueued_batches - len(self.batches)) * size + size - last
            if rows > capacity:
                raise ServingError(
                    "UNAVAILABLE",
                    f"{full}task size is {rows} but scheduling capacity is only {capacity} "
                    f"(num_enqueued_batches={len(self.batches)}, max_enqueued_batches={limits.max_enqueued_batches}, "
                    f"open_batch_size={last}, max_execution_batch_size={size})",
                )
        elif last + rows > limits.max_batch_size and len(self.batches) >= max(limits.max_enqueued_batches, 1):
            raise ServingError(
                "UNAVAILABLE",
                f"{full}currently {len(self.batches)} batches enqueued and max_enqueued_batches is "
                f"{limits.max_enqueued_batches}",
            )

    @property
    def empty(self) -> bool:
        return not self.batches[0].tasks and len(self.batches) == 1

    def ready_at(self) -> float:
        """Returns the earliest start of the first batch, on the monotonic clock; 0 = now.

        The queue must not be empty.
        """
        first = self.batches[0]
        if self.closed or len(self.batches) > 1 or first.rows >= self.parameters.execution_size:
            return 0
        return first.opened + self.parameters.batch_timeout_micros / 1e6

    def take(self) -> _Batch:
        """Removes the first batch from the queue and returns it."""
        batch = self.batches.popleft()
        if not self.batches:
            self.batches.append(_Batch())
        return batch

    def withdraw(self, task: _Task) -> bool:
        """Removes a waiting task. Returns False if its batch has already been taken."""
        for batch in self.batches:
            if task in batch.tasks:
                batch.tasks.remove(task)
                batch.rows -= task.rows
                if not batch.tasks and batch is not self.batches[-1]:
                    self.batches.remove(batch)
                return True
        return False


class BatchScheduler:
    """Runs the batches of all queues on shared threads.

    Args:
        threads: Maximum number of batches that run at the same time.
        name: Name of the threads, also in the metrics.
        metrics: The server's metrics; None disables counting.

    Attributes:
        metrics: The server's metrics, or None.
    """

    def __init__(self, threads: int, name: str = "batch_threads", metrics: Metrics | None = None):
        self._limit = threads
        self._name = name
        self.metrics = metrics
        self._changed = threading.Condition()  # a batch may run, or a thread is free
        self._drained = threading.Condition(self._changed._lock)  # type: ignore[attr-defined]
        self._active: collections.OrderedDict[BatchQueue, None] = (
            collections.OrderedDict()
        )  # a queue moves to the end when it runs
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._running = 0
        self._stopped = False

    def submit(self, queue: BatchQueue, inputs: Arrays, rows: int, deadline: float | None) -> list[_Task]:
        """Queues a request and returns its tasks. A task finishes when its batch has run.

        Raises:
            ServingError: the request is too large, the queue is full (B3), or the queue is closed.
        """
        with self._changed:
            if queue.closed:
                raise ServingError("UNAVAILABLE", "The model is being unloaded")
            alone = not self._active
            tasks = queue.admit(inputs, rows, deadline)
            batch = None
            if alone and len(tasks) == 1 and self._running < self._limit and queue.ready_at() <= tasks[0].enqueued:
                batch = self._start(queue)  # nothing waits and a thread is free: run in the caller's thread
            else:
                self._active[queue] = None
                self._wake()
        if batch is not None:
            self._run(queue, batch)
        return tasks

    def withdraw(self, queue: BatchQueue, task: _Task) -> bool:
        """Removes a waiting task. Returns False if its batch has already been taken."""
        with self._changed:
            withdrawn = queue.withdraw(task)
            if queue.empty:
                self._active.pop(queue, None)
                self._drained.notify_all()
            return withdrawn

    def close_queue(self, queue: BatchQueue) -> None:
        """Closes a queue to new requests and waits until the queued ones have run."""
        with self._changed:
            queue.closed = True
            self._changed.notify_all()
            self._drained.wait_for(lambda: queue.empty and not queue.running)

    def close(self) -> None:
        """Stops the threads. All queues must be closed first."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _wake(self) -> None:
        if self._idle == 0 and len(self._threads) < self._limit:
            thread = threading.Thread(target=self._follow, name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        else:
            self._changed.notify()

    def _follow(self) -> None:
        while True:
            with self._changed:
                queue = self._next()
                while queue is None:
                    if self._stopped and not self._active:
                        return
                    self._idle += 1
                    self._changed.wait(self._pause())
                    self._idle -= 1
                    queue = self._next()
                batch = self._start(queue)
                if self._active:
                    self._wake()
            self._run(queue, batch)

    def _next(self) -> BatchQueue | None:
        """Returns the next queue whose first batch may run now, in round-robin order."""
        if self._running >= self._limit:
            return None
        now = time.monotonic()
        return next((queue for queue in self._active if queue.ready_at() <= now), None)

    def _pause(self) -> float | None:
        """Returns the seconds until a batch may run; None if a request or a free thread must come first."""
        if self._running >= self._limit or not self._active:
            return None
        return max(min(queue.ready_at() for queue in self._active) - time.monotonic(), 0)

    def _start(self, queue: BatchQueue) -> _Batch:
        batch = queue.take()
        self._running += 1
        queue.running += 1
        self._active.pop(queue, None)
        if not queue.empty:
            self._active[queue] = None  # behind the other queues
        return batch

    def _run(self, queue: BatchQueue, batch: _Batch) -> None:
        if self.metrics:
            now = time.monotonic()
            for task in batch.tasks:
                self.metrics.record_queuing(self._name, now - task.enqueued)
            self.metrics.record_wrapped_run()
        try:
            queue.run(batch.tasks)
        finally:
            for task in batch.tasks:
                task.finish()
            with self._changed:
                self._running -= 1
                queue.running -= 1
                if self._active:
                    self._wake()
                if queue.closed:
                    self._drained.notify_all()


class BatchingServable:
    """A LoadedServable that joins concurrent runs into batches.

    Args:
        servable: The servable that runs the batches.
        parameters: Sizes and limits of the batches; `num_batch_threads` is ignored.
        scheduler: Provides the batch threads.
    """

    def __init__(self, servable: Servable, parameters: BatchingParameters, scheduler: BatchScheduler):
        self.path = servable.path
        self.signatures = servable.signatures
        self._servable = servable
        self._parameters = parameters
        self._scheduler = scheduler
        self.input_types = servable.input_types
        self._shapes = {
            signature: {name: tf.TensorShape(info.tensor_shape) for name, info in definition.inputs.items()}
            for signature, definition in servable.signatures.items()
        }
        self._ids = _count_ids(servable.path)
        self.waits = parameters.batch_timeout_micros > 0
        self._queues: dict[tuple[str, ...], BatchQueue] = {}
        self._lock = threading.Lock()

    def run(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Arrays:
        """Returns the signature's outputs by alias, for the rows of this request only.

        `outputs` names the outputs to return; None returns all.

        Raises:
            ServingError: the request cannot be in a batch, the queue is full, the timeout expires before its batch
                runs, or its batch has failed.
        """
        arrays = self._servable.with_defaults(signature, inputs)
        if not self._fits(signature, arrays):  # alone: its error would fail the whole batch
            return self._servable.run(signature, arrays, outputs, timeout_seconds)
        rows = _batch_size(arrays)
        queue = self._queue((signature, *(outputs or ())))
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        tasks = self._scheduler.submit(queue, arrays, rows, deadline)
        for task in tasks:
            left = None if deadline is None else deadline - time.monotonic()
            if not task.wait(left):
                if self._scheduler.withdraw(queue, task):
                    task.error = _too_late()
                    task.finish()
                task.wait()
        if any(task.error is not None for task in tasks):
            raise _take_error(tasks)
        if len(tasks) == 1:
            return tasks[0].outputs
        return {name: np.concatenate([task.outputs[name] for task in tasks]) for name in tasks[0].outputs}

    def run_together(
        self, outputs: Mapping[str, Sequence[str]], values: np.ndarray, timeout_seconds: float | None = None
    ) -> dict[str, Arrays]:
        """Returns the outputs of several signatures. Not batched, as in TF Serving's batching session."""
        return self._servable.run_together(outputs, values, timeout_seconds)

    def peak_bytes(self, signature: str, inputs: Mapping[str, np.ndarray]) -> int:
        """Returns the peak memory of a run's tensors, in bytes. Not batched, because it is a measurement."""
        return self._servable.peak_bytes(signature, inputs)

    def _fits(self, signature: str, arrays: Arrays) -> bool:
        """Returns whether the arrays match the names, dtypes and shapes of the signature's inputs."""
        types, shapes = self.input_types[signature], self._shapes[signature]
        return all(
            name in types
            and array.dtype == types[name].as_numpy_dtype
            and (array.ndim == 0 or shapes[name].is_compatible_with(array.shape))  # _batch_size refuses scalars
            for name, array in arrays.items()
        )

    def _has_known_ids(self, inputs: Arrays) -> bool:
        """Returns whether all ids of the packed tensors are in the feature map. Any other id fails the batch."""
        return all(_are_below(count, inputs[name]) for name, count in self._ids.items() if name in inputs)

    def close(self) -> None:
        """Answers the queued requests, then closes the servable."""
        with self._lock:
            queues = list(self._queues.values())
        for queue in queues:
            self._scheduler.close_queue(queue)
        self._servable.close()

    def _queue(self, key: tuple[str, ...]) -> BatchQueue:
        queue = self._queues.get(key)
        if queue is None:
            signature, *outputs = key

            def run(tasks: list[_Task]) -> None:
                self._run_batch(signature, outputs, tasks)

            with self._lock:
                queue = self._queues.setdefault(key, BatchQueue(self._parameters, run))
        return queue

    def _run_batch(self, signature: str, outputs: list[str], tasks: list[_Task]) -> None:
        now = time.monotonic()
        live = [task for task in tasks if task.deadline is None or task.deadline > now]
        for task in tasks:
            if task not in live:
                task.error = _too_late()
        if not live:
            return
        groups = self._alike(live)
        if len(groups) > 1:
            for group in groups:
                self._run_batch(signature, outputs, group)
            return
        try:
            merged = self._merge(live)
            if len(live) > 1 and not self._has_known_ids(merged):
                self._run_apart(signature, outputs, live)
                return
            self._split(live, self._servable.run(signature, merged, outputs, _longest(live)))
        except (tf.errors.OpError, ServingError) as error:
            if len(live) == 1 or isinstance(error, tf.errors.DeadlineExceededError):  # the latest deadline has passed
                for task in live:
                    task.error = error if isinstance(error, ServingError) else from_tensorflow(error)
                return
            for task in live:  # one by one: a bad request fails only itself, unlike in TF Serving
                self._run_batch(signature, outputs, [task])
        except Exception as error:  # every request of the batch gets this error
            for task in live:
                task.error = error

    def _run_apart(self, signature: str, outputs: list[str], tasks: list[_Task]) -> None:
        """Runs the tasks with known ids together, and every other task alone."""
        known = [task for task in tasks if self._has_known_ids(task.inputs)]
        for task in tasks:
            if task not in known:
                self._run_batch(signature, outputs, [task])
        self._run_batch(signature, outputs, known)

    def _alike(self, tasks: list[_Task]) -> list[list[_Task]]:
        """Groups the tasks by the shapes of their rows. One group if padding can give all the same shape."""
        groups: dict[tuple[tuple[int, ...], ...], list[_Task]] = {}
        for task in tasks:
            shapes = tuple(task.inputs[name].shape[1:] for name in sorted(task.inputs))
            groups.setdefault(shapes, []).append(task)
        if len(groups) == 1 or not self._parameters.pad_variable_length_inputs:
            return list(groups.values())
        ranks = {tuple(map(len, shapes)) for shapes in groups}
        is_empty = any(array.size == 0 for task in tasks for array in task.inputs.values())
        return [tasks] if len(ranks) == 1 and not is_empty else list(groups.values())

    def _merge(self, tasks: list[_Task]) -> Arrays:
        """Returns the rows of all tasks, padded to an allowed batch size.

        The padding repeats the first row of the last task.
        """
        rows = sum(task.rows for task in tasks)
        padding = self._parameters.padded_size(rows) - rows if tasks[-1].rows else 0
        if self._scheduler.metrics:
            self._scheduler.metrics.record_batch_rows(rows + padding)
        if len(tasks) == 1 and not padding:
            return tasks[0].inputs
        merged = {}
        for name in tasks[0].inputs:
            arrays = [task.inputs[name] for task in tasks]
            if any(array.shape[1:] != arrays[0].shape[1:] for array in arrays):
                arrays = _same_shape(arrays)
            merged[name] = np.concatenate([*arrays, *[arrays[-1][:1]] * padding])
        return merged

    def _split(self, tasks: list[_Task], outputs: Arrays) -> None:
        rows = sum(task.rows for task in tasks)
        expected = self._parameters.padded_size(rows) if tasks[-1].rows else rows
        for array in outputs.values():
            if np.ndim(array) == 0:
                raise ServingError("FAILED_PRECONDITION", "Batched output tensor has 0 dimensions")
            if len(array) != expected:
                raise ServingError(
                    "FAILED_PRECONDITION",
                    "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the "
                    "input tensors",
                )
        start = 0
        for task in tasks:
            end = start + task.rows
            task.outputs = {name: array[start:end] for name, array in outputs.items()}
            start = end


class Batching:
    """Batching as set by the flags: which versions are batched, and with which parameters.

    Args:
        options: The server's flags.
        metrics: The server's metrics; None disables counting.

    Raises:
        InputError: the parameters file cannot be read, or has a mistake.
    """

    def __init__(self, options: ServerOptions, metrics: Metrics | None = None):
        self._per_model = options.enable_per_model_batching_parameters
        self._parameters: BatchingParameters | None = None
        if options.enable_batching:
            self._parameters = BatchingParameters(thread_pool_name=_POOL_NAME)
            if options.batching_parameters_file is not None:
                self._parameters = read_parameters(options.batching_parameters_file)
            threads, name = self._parameters.num_batch_threads, self._parameters.thread_pool_name
            self._scheduler = BatchScheduler(threads, name, metrics)

    def wrap(self, servable: Servable) -> LoadedServable:
        """Returns the servable, batched if the flags and the version's own parameters file enable batching.

        Raises:
            InputError: the version's own file (B5) cannot be read, or has a mistake.
        """
        parameters = self._parameters
        if parameters is not None and self._per_model:
            file = servable.path / PER_MODEL_FILE
            parameters = read_parameters(file) if file.exists() else None
        return servable if parameters is None else BatchingServable(servable, parameters, self._scheduler)

    def close(self) -> None:
        """Stops the batch threads. All versions must be closed first."""
        if self._parameters is not None:
            self._scheduler.close()


def _take_error(tasks: list[_Task]) -> Exception:
    """Removes the errors of the tasks, and returns the first one.

    A task with its error would be a reference cycle: the error's traceback holds the frames that hold the task.
    """
    errors = [task.error for task in tasks if task.error is not None]
    for task in tasks:
        task.error = None
    return errors[0]


def _same_shape(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Pads every dimension but the first to the largest size, with each array's own first value."""
    largest = np.max([array.shape[1:] for array in arrays], axis=0)
    padded = []
    for array in arrays:
        missing = [(0, 0), *((0, size) for size in largest - array.shape[1:])]
        padded.append(np.pad(array, missing, constant_values=array.flat[0]))
    return padded


def _batch_size(inputs: Arrays) -> int:
    if not inputs:
        raise bad_request("Batching Run() must have at least one input tensor")
    if any(array.ndim == 0 for array in inputs.values()):
        raise bad_request("Batching Run() input tensors must have at least one dimension")
    sizes = {len(array) for array in inputs.values()}
    if len(sizes) > 1:
        raise bad_request("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()


def _count_ids(version: pathlib.Path) -> dict[str, int]:
    """Returns the number of ids of each packed tensor, by name; empty without a feature map."""
    try:
        feature_map = read_feature_map(version)
    except (OSError, ValueError):  # another exporter's model may use the same file name
        return {}
    counts = {"ids": feature_map.total_ids}
    return counts | {"tokens": feature_map.text.vocabulary_size} if feature_map.text else counts


def _are_below(count: int, ids: np.ndarray) -> bool:
    if ids.dtype != np.int32 or not ids.size:  # a raw column may have this name
        return True
    return int(ids.view(np.uint32).max()) < count  # viewed as unsigned, a negative id is large


def _longest(tasks: list[_Task]) -> float | None:
    """Returns the seconds until the latest deadline; None if any task has no deadline."""
    deadlines = [task.deadline for task in tasks if task.deadline is not None]
    return max(deadlines) - time.monotonic() if len(deadlines) == len(tasks) else None


def _too_late() -> ServingError:
    return ServingError("RESOURCE_EXHAUSTED", "Run() timeout exceeded while waiting in batching queue")
