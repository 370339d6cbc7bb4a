"""Servers that do nothing but answer: what a generator reaches with them is its own ceiling."""

import asyncio
import contextlib
import multiprocessing
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection

from serving.latency.load import Endpoint

PATH = "/anything"


@contextlib.contextmanager
def responder(protocol: str, answer: bytes) -> Iterator[Endpoint]:
    """A server in a process of its own, on a free port, that answers every request with `answer`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(protocol, answer, theirs), daemon=True)
    process.start()
    try:
        yield Endpoint(protocol, f"127.0.0.1:{ours.recv()}", PATH)
    finally:
        process.terminate()
        process.join()


def _serve(protocol: str, answer: bytes, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import uvloop

    uvloop.run({"rest": _serve_rest, "grpc": _serve_grpc}[protocol](answer, pipe))


async def _serve_rest(answer: bytes, pipe: Connection) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
    whole = head.encode() + answer
    server = await asyncio.get_running_loop().create_server(lambda: _Answer(whole), "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class _Answer(asyncio.Protocol):
    """Counts bytes up to a request's end, nothing more."""

    def __init__(self, answer: bytes):
        self._answer = answer
        self._head = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = transport.write  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            length = int(self._head[:end].lower().rpartition(b"content-length:")[2].split(b"\r\n")[0])
            self._left = end + 4 + length
            data, self._head = self._head, b""
        self._left -= len(data)
        if self._left == 0:
            self._write(self._answer)


async def _serve_grpc(answer: bytes, pipe: Connection) -> None:
    import grpc

    from serving.latency.grpc_load import OPTIONS

    async def call(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return answer

    method = grpc.unary_unary_rpc_method_handler(call)

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return method

    server = grpc.aio.server(handlers=(Handler(),), options=OPTIONS[1:])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(port)
    await server.wait_for_termination()
