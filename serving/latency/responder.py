"""Servers that compute nothing, to measure the limit of the load generators.

The request path gives the number of bytes in the response.
"""

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import grpc
import uvloop

from ctrpipe.common.processes import child_process
from ctrpipe.serving.latency.grpc_load import OPTIONS
from ctrpipe.serving.latency.load import Endpoint


@contextlib.contextmanager
def responder(protocol: str) -> Iterator[Endpoint]:
    """Runs a server in a separate process, on a free port.

    The endpoint returns empty responses; `sized` changes their length.
    """
    with child_process(_serve, protocol) as connection:
        yield sized(Endpoint(protocol, f"127.0.0.1:{connection.recv()}", ""), 0)


def sized(endpoint: Endpoint, length: int) -> Endpoint:
    """Returns the endpoint of the same responder for responses of `length` bytes."""
    return dataclasses.replace(endpoint, path=f"/answer/{length}")


def _serve(protocol: str, pipe: Connection) -> None:
    uvloop.run({"rest": _serve_rest, "grpc": _serve_grpc}[protocol](pipe))


@functools.cache
def _body(path: str) -> bytes:
    return b"x" * int(path.rpartition("/")[2])


@functools.cache
def _response(path: str) -> bytes:
    body = _body(path)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _serve_rest(pipe: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(_Answer, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class _Answer(asyncio.Protocol):
    """A connection that responds once all bytes of a request have arrived.

    It parses only the path and the Content-Length.
    """

    def __init__(self) -> None:
        self._response = self._head = b""
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
            self._response = _response(self._head.split(b" ", 2)[1].decode())
            data, self._head = self._head, b""
        self._left -= len(data)
        if self._left == 0:
            self._write(self._response)


@functools.cache
def _method(path: str) -> Any:
    async def call(request: bytes, context: Any) -> bytes:
        return _body(path)

    return grpc.unary_unary_rpc_method_handler(call)


async def _serve_grpc(pipe: Connection) -> None:
    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return _method(details.method)

    server = grpc.aio.server(handlers=(Handler(),), options=OPTIONS[1:])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(port)
    await server.wait_for_termination()
