"""Sends gRPC load from one process, with a channel per client and preserialized messages."""

import contextlib
import itertools
import threading
import time

import grpc
import numpy as np

from ctrpipe.serving.latency.load import Load
from ctrpipe.serving.latency.sample import Recorder

OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # one connection per channel
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
)

PAUSE = 0.05  # seconds to wait after a request that reached no server
CONNECT_SECONDS = 2.0


class GrpcDriver:
    """Sends a load over gRPC. The constructor opens the connections, if a server listens."""

    def __init__(self, load: Load):
        self._load = load
        self._channels = [grpc.insecure_channel(load.endpoint.address, OPTIONS) for _ in range(load.connections)]
        end, ready = time.monotonic() + CONNECT_SECONDS, [grpc.channel_ready_future(c) for c in self._channels]
        with contextlib.suppress(grpc.FutureTimeoutError):  # requests on these channels will fail and be recorded
            for future in ready:
                future.result(max(0.0, end - time.monotonic()))
        for future in ready:
            future.cancel()
        self._calls = [channel.unary_unary(load.endpoint.path) for channel in self._channels]

    def run(self, bodies: list[bytes], begin: float, recorder: Recorder) -> None:
        if self._load.arrivals is None:
            self._run_closed(bodies, recorder)
        else:
            self._run_open(self._load.arrivals, bodies, begin, recorder)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def _run_closed(self, bodies: list[bytes], recorder: Recorder) -> None:
        def client(index: int) -> None:
            first = index % len(bodies)
            clock, requests = time.perf_counter, itertools.cycle(bodies[first:] + bodies[:first])
            while (started := clock()) < recorder.closes:
                try:
                    self._calls[index](next(requests), timeout=self._load.timeout)
                except grpc.RpcError as error:
                    _note(error, started, clock(), recorder)
                else:
                    recorder.answered(started, clock())

        threads = [threading.Thread(target=client, args=(index,), daemon=True) for index in range(1, len(self._calls))]
        for thread in threads:
            thread.start()
        client(0)
        for thread in threads:
            thread.join()

    def _run_open(self, arrivals: np.ndarray, bodies: list[bytes], begin: float, recorder: Recorder) -> None:
        clock, ended = time.perf_counter, threading.Semaphore(0)
        for index, after in enumerate(arrivals.tolist()):
            intended = begin + after
            while (early := intended - clock()) > 0:
                time.sleep(early)
            recorder.sent_late(intended, clock() - intended)
            call = self._calls[index % len(self._calls)]
            future = call.future(bodies[index % len(bodies)], timeout=self._load.timeout)

            def done(answer: grpc.Future, intended: float = intended) -> None:
                error = answer.exception()
                if error is None:
                    recorder.answered(intended, clock())
                else:
                    _note(error, intended, clock(), recorder)
                ended.release()

            future.add_done_callback(done)
        for _ in arrivals:
            ended.acquire()


def _note(error: grpc.RpcError, intended: float, now: float, recorder: Recorder) -> None:
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        recorder.given_up(intended, now)
    else:
        recorder.failed(intended, code.name)
        if code is grpc.StatusCode.UNAVAILABLE:
            time.sleep(PAUSE)
