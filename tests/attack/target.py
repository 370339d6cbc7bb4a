"""The server under attack, and its measurements."""

import contextlib
import dataclasses
import pathlib
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import grpc
import psutil
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from ctrpipe.serving.server.metrics import METRICS_PATH
from tests.fuzz.connection import LIMIT_SECONDS, Connection, Fault
from tests.fuzz.rest import ask_good
from tests.fuzz.rest_requests import MODEL
from tests.fuzz.server import NAME, Server, started

_QUEUED_CALLS = 256
# Less says nothing about a server beside whose clients others compute: attackers of this process, and attackers of
# processes that give way to everyone else.
LEAST_QUIET_SECONDS, LEAST_QUIET_ASIDE = 0.1, 0.03
ASK_SECONDS = 0.01  # between the requests of a bystander
METADATA = f"GET {MODEL}/metadata HTTP/1.1\r\nHost: a\r\n\r\n".encode()
LOOP_MILLISECONDS = 20.0
# A virtual machine counts the time that its host takes from it as the thread's own: two holds of a measurement may be
# such.
_OUTLIERS = 2
_PROBES = 100  # requests that show which thread is the event loop's
_IDLE_WINDOW = 0.3
_NEVER_IDLE_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Measure:
    """One figure of an attack, and its bound."""

    what: str
    value: float
    bound: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.bound

    def __str__(self) -> str:
        word = "ok" if self.met else "TOO MUCH"
        return f"{self.what}: {self.value:,.6g} {self.unit}".rstrip() + f" (at most {self.bound:,.6g}) {word}"


@dataclasses.dataclass(frozen=True)
class Target:
    """A server that serves tests.fuzz.servable.

    Attributes:
        server: Its addresses.
        long: Whether attacks have their full size, which takes minutes, or the size for `make test`.
        models: The folder of its models, for servers with other flags; None where the server is not ours.
    """

    server: Server
    long: bool
    models: pathlib.Path | None = None

    @property
    def rest(self) -> tuple[str, int]:
        return self.server.rest

    def connect(self) -> Connection:
        return Connection(self.rest)

    def take(self, long: float, short: float) -> int:
        """Returns the size of an attack: `long` or `short`."""
        return int(long if self.long else short)

    @contextlib.contextmanager
    def another(self, *flags: str, files: int = 0) -> Iterator["Target"]:
        """Serves the same models with other flags until the block ends, with a limit of open files if given."""
        assert self.models  # a server that is not ours has the flags that it has
        with started(self.models, flags, files) as server:
            yield Target(server, self.long, self.models)


@contextlib.contextmanager
def started_target(models: pathlib.Path, long: bool, flags: Sequence[str] = ()) -> Iterator[Target]:
    """Writes tests.fuzz.servable to an empty folder, and serves it with its metrics until the block ends."""
    from tests.fuzz.servable import record_warmup, save  # imports TensorFlow, which `--list` does without

    record_warmup(save(models / NAME / "1"))
    monitoring = models / "monitoring.config"
    monitoring.write_text(f'prometheus_config {{ enable: true path: "{METRICS_PATH}" }}')
    # Calls of others wait while attackers have all threads; TensorFlow Serving, and the default, refuses them.
    queue = f"--grpc_max_queued_calls={_QUEUED_CALLS}"
    with started(models, [f"--monitoring_config_file={monitoring}", queue, *flags]) as server:
        yield Target(server, long, models)


Attack = Callable[[Target], list[Measure]]


class Bystander:
    """Another client, which sends valid requests during the block, each over a new connection.

    Attributes:
        seconds: Of each of its answers.

    Raises:
        Fault: when the block ends, if one was wrong.
    """

    def __init__(self, target: Target):
        self.seconds: list[float] = []
        self._target = target
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        try:
            while not self._stop.wait(ASK_SECONDS):
                asked = time.perf_counter()
                ask_good(self._target.rest)
                self.seconds.append(time.perf_counter() - asked)
        except AssertionError as error:
            self._fault = error

    def __enter__(self) -> Self:
        self._thread.start()
        time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._fault:
            raise self._fault

    def measures(self) -> list[Measure]:
        """Returns its median and maximum latency; the bounds leave room for a busy machine."""
        return [
            Measure("another client's median answer", 1e3 * statistics.median(self.seconds), 100, "ms"),
            Measure("another client's slowest answer", 1e3 * max(self.seconds), 1000, "ms"),
        ]


class GrpcBystander:
    """A client over gRPC, which sends valid requests during the block, over one connection.

    Attributes:
        seconds: Of each of its calls.
        failures: Calls that were not answered rightly, by what became of them.
    """

    def __init__(self, target: Target):
        self.seconds: list[float] = []
        self.failures: Counter[str] = Counter()
        self._address = target.server.grpc
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = NAME
        request.inputs["x"].dtype = 1
        request.inputs["x"].tensor_shape.dim.add(size=2)
        request.inputs["x"].float_val.extend([1.0, -2.0])
        assert self._address
        with grpc.insecure_channel(self._address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = PredictionServiceStub(channel)
            while not self._stop.wait(ASK_SECONDS):
                asked = time.perf_counter()
                try:
                    if list(stub.Predict(request, timeout=60).outputs["y"].float_val) != [2.5, 1.0]:
                        self.failures["wrong"] += 1
                except grpc.RpcError as error:
                    self.failures[f"{error.code().name}: {error.details()}"[:120]] += 1
                self.seconds.append(time.perf_counter() - asked)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def p99(seconds: Sequence[float]) -> float:
    """Returns the 99th percentile of the seconds; 0 without any."""
    return sorted(seconds)[len(seconds) * 99 // 100] if seconds else 0.0


def patience(quiet: Sequence[float], target: Target, least: float = LEAST_QUIET_SECONDS) -> float:
    """Returns the allowed p99 latency during an attack, in seconds: three times the p99 without one.

    Where that is less than the attackers, processes of the same machine, cost by themselves, it is more. An attack of
    the short sizes has too few answers for a hundredth.
    """
    return 3 * max(p99(quiet), least) if target.long else 1.0


class LoopWatch:
    """Measures the longest time for which the server's event loop is occupied, during the block.

    Another client asks for metadata, which the loop's own thread answers. What that thread computes between a request
    and its answer is what the client waited for. It is the thread's own processor time, so that whatever else the
    machine does has hardly a part in it. A server that is not ours is not measured.

    Raises:
        Fault: when the block ends, if a request was not answered.
    """

    def __init__(self, target: Target):
        self._target = target
        self._stop = threading.Event()
        self._knows_thread = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._holds: list[float] = []
        self._fault: BaseException | None = None

    def __enter__(self) -> Self:
        if self._target.server.process:
            self._thread.start()
            self._knows_thread.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._target.server.process:
            self._thread.join()
        if self._fault:
            raise self._fault

    def _watch(self) -> None:
        assert self._target.server.process
        try:
            with self._target.connect() as connection:
                self._ask(connection, self._target.server.process)
        except (AssertionError, OSError) as error:
            self._fault = error
        finally:
            self._knows_thread.set()

    def _ask(self, connection: Connection, process: psutil.Process) -> None:
        before = _thread_times(process)
        for _ in range(_PROBES):
            _ask_metadata(connection)
        after = _thread_times(process)
        thread = max(before, key=lambda name: after.get(name, 0.0) - before[name])
        self._knows_thread.set()
        while True:
            began = _thread_time(process, thread)
            _ask_metadata(connection)
            self._holds.append(_thread_time(process, thread) - began)
            if self._stop.wait(ASK_SECONDS):
                break

    def measures(self) -> list[Measure]:
        """Returns the longest time for which the loop served no other client."""
        if not self._target.server.process:
            return []
        if len(self._holds) <= _OUTLIERS:
            raise Fault(f"only {len(self._holds)} requests for metadata were answered during the attack")
        longest = sorted(self._holds)[-1 - _OUTLIERS]
        return [Measure("longest hold of the event loop", 1e3 * longest, LOOP_MILLISECONDS, "ms")]


def _ask_metadata(connection: Connection) -> None:
    connection.send(METADATA)
    answer = connection.response(time.monotonic() + LIMIT_SECONDS)
    if not answer or answer[0] != 200:
        raise Fault(f"a request for metadata was answered {answer and answer[0]}")


def _thread_times(process: psutil.Process) -> dict[str, float]:
    threads = [path.name for path in pathlib.Path(f"/proc/{process.pid}/task").iterdir()]
    return {thread: _thread_time(process, thread) for thread in threads}


def _thread_time(process: psutil.Process, thread: str) -> float:
    """Returns a thread's CPU seconds."""
    return int(pathlib.Path(f"/proc/{process.pid}/task/{thread}/schedstat").read_text().split()[0]) / 1e9


def until_idle(target: Target, percent: float = 60.0) -> None:
    """Waits until the server is idle; its work may continue after its answer.

    Args:
        target: Whose server is watched; one that is not ours is not.
        percent: Of a processor that other clients' requests may take.

    Raises:
        Fault: it does not end.
    """
    process, end = target.server.process, time.monotonic() + _NEVER_IDLE_SECONDS
    while process and process.cpu_percent(_IDLE_WINDOW) > percent:
        if time.monotonic() > end:
            raise Fault(f"the server computes on after {_NEVER_IDLE_SECONDS:.0f} s")


@dataclasses.dataclass
class Cost:
    """The cost of a block to the server; bytes only if the server is a process of this machine."""

    seconds: float = 0.0
    peak_bytes: int | None = None


@contextlib.contextmanager
def costs(target: Target) -> Iterator[Cost]:
    """Measures a block: its time, and the largest increase of the server's memory."""
    process = target.server.process
    before = _reset_peak(process) if process else 0
    cost, began = Cost(), time.perf_counter()
    yield cost
    cost.seconds = time.perf_counter() - began
    if process:
        cost.peak_bytes = max(0, _status(process, "VmHWM") - before)


def _reset_peak(process: psutil.Process) -> int:
    pathlib.Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return _status(process, "VmRSS")


def _status(process: psutil.Process, field: str) -> int:
    lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))
