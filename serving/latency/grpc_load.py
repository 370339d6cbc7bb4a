"""gRPC load from one process: a channel per client, messages that were serialized before."""

import itertools
import threading
import time
from collections.abc import Callable

import grpc

from serving.latency.load import Load
from serving.latency.sample import Recorder

OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection per channel
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
)

PAUSE = 0.05  # where nothing answers


def drive(load: Load, bodies: list[bytes], recorder: Recorder) -> None:
    """See load.drive."""
    channels = [grpc.insecure_channel(load.endpoint.address, OPTIONS) for _ in range(load.connections)]
    try:
        calls = [channel.unary_unary(load.endpoint.path) for channel in channels]
        if load.arrivals is None:
            _closed(load, calls, bodies, recorder)
        else:
            _open(load, calls, bodies, recorder)
    finally:
        for channel in channels:
            channel.close()


def _closed(load: Load, calls: list[Callable], bodies: list[bytes], recorder: Recorder) -> None:
    def client(index: int) -> None:
        clock, requests = (
            time.perf_counter,
            itertools.cycle(bodies[index % len(bodies) :] + bodies[: index % len(bodies)]),
        )
        while (started := clock()) < load.closes:
            try:
                calls[index](next(requests), timeout=load.timeout)
            except grpc.RpcError as error:
                _note(error, started, clock(), recorder)
            else:
                recorder.answered(started, clock())

    threads = [threading.Thread(target=client, args=(index,), daemon=True) for index in range(1, len(calls))]
    for thread in threads:
        thread.start()
    client(0)
    for thread in threads:
        thread.join()


def _open(load: Load, calls: list[Callable], bodies: list[bytes], recorder: Recorder) -> None:
    clock, left, none_left = time.perf_counter, threading.Semaphore(0), 0
    assert load.arrivals is not None
    for index, after in enumerate(load.arrivals.tolist()):
        intended = load.begin + after
        while (early := intended - clock()) > 0:
            time.sleep(early)
        recorder.sent_late(intended, clock() - intended)
        future = calls[index % len(calls)].future(bodies[index % len(bodies)], timeout=load.timeout)  # type: ignore[attr-defined]

        def done(answer: grpc.Future, intended: float = intended) -> None:
            error = answer.exception()
            if error is None:
                recorder.answered(intended, clock())
            else:
                _note(error, intended, clock(), recorder)
            left.release()

        future.add_done_callback(done)
        none_left += 1
    for _ in range(none_left):
        left.acquire()


def _note(error: grpc.RpcError, intended: float, now: float, recorder: Recorder) -> None:
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        recorder.given_up(intended, now)
    else:
        recorder.failed(intended, code.name)
        if code is grpc.StatusCode.UNAVAILABLE:
            time.sleep(PAUSE)
