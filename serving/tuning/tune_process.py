"""Measures one thread and batching setting in a separate process.

All sessions of a process share the environment and the pool of intra-op threads, so each setting needs a new process.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.server.batching_parameters import BatchingParameters


@dataclasses.dataclass(frozen=True)
class Setting:
    """A server's thread and batching settings.

    Args:
        intra_op: Threads within an operation. 0, with an `inter_op` of -1, is the default of `ctrpipe serve`: idle
            processors may share a request's rows.
        inter_op: Operations that run concurrently; -1 = one after another, in the request's own thread.
        onednn: Whether oneDNN multiplies matrices; otherwise Eigen does.
        batching: Fields of BatchingParameters; empty: no batching.
    """

    intra_op: int
    inter_op: int
    onednn: bool
    batching: tuple[tuple[str, int | bool], ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {"TF_ENABLE_ONEDNN_OPTS": str(int(self.onednn))}


@dataclasses.dataclass(frozen=True)
class ClientLoad:
    """A closed loop: each of `clients` clients sends requests of `rows` rows one after another."""

    rows: int
    clients: int


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """Rows/s of all clients; a request's p50 and p99 latency and CPU time in ms."""

    rows_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float


def measure(
    setting: Setting, version: str, signature: str, loads: list[ClientLoad], seconds: float
) -> list[TrialResult]:
    """Loads the version with the setting and returns the result of each load.

    Args:
        setting: Threads and batching.
        version: The version's folder.
        signature: The signature to call, with its recorded warm-up requests.
        loads: The loads to measure.
        seconds: Seconds of each load.

    Raises:
        InputError: the version has no recorded request of the signature, or a server would refuse part of a load.
    """
    os.environ.update(setting.environment)
    load_tensorflow()
    # Lazy: TensorFlow reads the environment when it is imported. It takes 4 s of a core, which the
    # process that starts the trials does not need to spend.
    from tensorflow.core.protobuf import config_pb2

    from ctrpipe.serving.loader import LoadedServable, Servable
    from ctrpipe.serving.server.admission import Admission
    from ctrpipe.serving.server.batching import BatchingServable, BatchScheduler
    from ctrpipe.serving.server.budget import Budget, OverBudget
    from ctrpipe.serving.server.core import SWITCH_SECONDS
    from ctrpipe.serving.server.served import ServedVersion
    from ctrpipe.serving.server.session_options import for_first_versions

    sys.setswitchinterval(SWITCH_SECONDS)
    threads = {"intra_op_parallelism_threads": setting.intra_op, "inter_op_parallelism_threads": setting.inter_op}
    given = config_pb2.ConfigProto(**threads)
    config = for_first_versions(given, [pathlib.Path(version)])
    servable: LoadedServable = Servable(pathlib.Path(version), config=config)
    if setting.batching:
        parameters = BatchingParameters(**dict(setting.batching))  # type: ignore[arg-type]
        servable = BatchingServable(servable, parameters, BatchScheduler(parameters.num_batch_threads))  # type: ignore[arg-type]
    recorded = recorded_rows(pathlib.Path(version), signature)
    admission = Admission(Budget())
    admission.shares_rows = config != given
    served = ServedVersion("", 0, servable, admission)
    results = []
    for load in loads:
        inputs = {name: np.resize(values, (load.rows, *values.shape[1:])) for name, values in recorded.items()}
        try:
            results.append(_send(lambda inputs=inputs: served.run(signature, inputs), load, seconds))  # type: ignore[misc]
        except OverBudget as error:
            raise InputError(
                f"--rows {load.rows} with --clients {load.clients}: the server would refuse some of them "
                f"({error.message}); give fewer rows or clients"
            ) from error
    servable.close()
    return results


def recorded_rows(version: pathlib.Path, signature: str) -> Mapping[str, np.ndarray]:
    """Returns the rows of all recorded requests of a signature, by input name.

    Raises:
        InputError: the version has no recorded request of the signature.
    """
    # Lazy: TensorFlow takes 4 s, and only the trials' processes need it; see measure.
    import tensorflow as tf

    from ctrpipe.serving.server.warmup import read_records

    file = asset_path(version, Asset.WARMUP)
    recorded: list[dict[str, np.ndarray]] = []
    for record in read_records(file) if file.exists() else []:
        request = record.predict_log.request
        if (request.model_spec.signature_name or "serving_default") == signature and request.inputs:
            recorded.append({name: tf.make_ndarray(value) for name, value in request.inputs.items()})
    if not recorded:
        raise InputError(f"{file}: no recorded request of the signature {signature}; ctrpipe run records some")
    return {name: np.concatenate([inputs[name] for inputs in recorded]) for name in recorded[0]}


def _send(call: Callable[[], object], load: ClientLoad, seconds: float) -> TrialResult:
    for _ in range(3):
        call()
    times: list[float] = []
    start = threading.Barrier(load.clients + 1)

    def client() -> None:
        own = []
        start.wait()
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            call()
            own.append(time.perf_counter() - began)
        times.extend(own)

    with concurrent.futures.ThreadPoolExecutor(load.clients) as pool:
        clients = [pool.submit(client) for _ in range(load.clients)]
        start.wait()
        began, cpu = time.perf_counter(), time.process_time()
        for sending in clients:
            sending.result()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    p50, p99 = np.percentile(times, [50, 99])
    count = len(times)
    return TrialResult(count * load.rows / wall, 1000 * float(p50), 1000 * float(p99), 1000 * cpu / count)
