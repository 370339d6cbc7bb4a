"""HTTP/1.1 on uvicorn's server and httptools' parser, without ASGI: connections, threads and shutdown.

Measured by `python -m benchmarks.http`, one row over REST: an ASGI application on uvicorn takes 0.13 ms more at the
median (0.10 to 0.15), granian's RSGI 0.21 ms (0.17 to 0.23); 0.06 ms was the limit for a library. Neither limits the
size or the duration of headers, or the bodies and requests that a client sends ahead.
"""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import email.utils
import functools
import logging
import select
import socket
import struct
import sys
import time
from collections import deque
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol, cast

import uvicorn

from ctrpipe.common.processes import cores
from ctrpipe.serving.server.admission import MOST_WAITING_RUNS, Slots
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.busy_poll import BusyPoll
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.http_request import (
    MAX_HEADER_BYTES,
    SHORT_BYTES,
    Limits,
    Phase,
    Refusal,
    Request,
    RequestReader,
)
from ctrpipe.serving.server.open_files import most_files
from ctrpipe.serving.server.unread import Unread

log = logging.getLogger(__name__)

MAX_PIPELINED = 16
_PIPELINED_BYTES = 1 << 20  # of the long bodies that wait on one connection, before it is no longer read
JSON = b"application/json"
HTML = b"text/html"
_LINGER_SECONDS = 2.0
# On so few cores, the threads of a pool take the interpreter from each other and from the loop: on two cores the loop's
# thread alone answers 2, 4 and 8 clients, which send one row to a DCN-v2, 1.4, 1.6 and 1.2 times as fast.
FEW_CORES = 2
_MEMORY_SHARE, _FEWEST_CONNECTIONS = 8, 64  # the part of the process's memory that headers of all connections may take
_CLOSED_SHARE = 64  # the part of the connections that are closed at once where there are too many
# A stopping server closes a kept connection once it has been quiet for so long: a busy client's next request may be on
# its way.
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER of Linux, which the module socket does not name
_RETURN = 0x06  # BPF_RET | BPF_K: accept that many bytes of a packet
_QUIET_SECONDS = 0.5
_AGAIN_SECONDS = 0.01
# Received data is parsed in slices. Connections with more data take turns on the loop's thread: a client that sends
# much at once does not block the others.
SLICE_BYTES = 16 << 10
_TURN_SECONDS = 0.005
_IDLE, _HEADERS, _CHUNK, _REFUSED = Phase.IDLE, Phase.HEADERS, Phase.CHUNK, Phase.REFUSED


class Response(NamedTuple):
    """A response. `headers` holds further header lines, each with its line end."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: bytes = b""


class Application(Protocol):
    """Interface of an application that answers requests."""

    def is_short(self, request: Request) -> bool:
        """Returns whether a request may be answered on the event loop's thread, where it blocks all others."""

    def answer(self, request: Request) -> Response:
        """Answers a request. Called from any thread; raises nothing."""

    def refuse(self, status: int, message: str) -> Response:
        """Returns an error response."""


class HttpServer:
    """The server side of all connections. A thread pool answers their requests.

    Args:
        app: Answers the requests.
        threads: Maximum number of requests answered at the same time.
        limits: Limits of each connection.
        budget: The budget of the bodies and answers of all connections.
        busy_poll_seconds: See BusyPoll; applies only while a single connection sends requests.
        most_connections: Maximum number of connections, above which the longest idle ones are closed; 0 = half of the
            process's open-file limit, and no more than have room for their headers in an eighth of its memory.
    """

    def __init__(
        self,
        app: Application,
        threads: int,
        limits: Limits,
        budget: Budget,
        busy_poll_seconds: float = 0.0,
        most_connections: int = 0,
    ):
        self.app = app
        self.limits = limits
        self.budget = budget
        self.unread = Unread(budget)
        self.busy_poll = BusyPoll(busy_poll_seconds)
        self.slots = Slots(threads)
        self.pool = concurrent.futures.ThreadPoolExecutor(threads + MOST_WAITING_RUNS, thread_name_prefix="rest")
        self.running = 0
        self.latest: HttpProtocol | None = None
        self.connections: set[HttpProtocol] = set()
        self.stopping = False
        self._has_few_cores = cores() <= FEW_CORES
        fit = max(budget.max_memory // _MEMORY_SHARE // MAX_HEADER_BYTES, _FEWEST_CONNECTIONS)
        self._most_connections = most_connections or min(most_files() // 2, fit)
        self._sweeping = False
        self._turns: deque[HttpProtocol] = deque()

    def is_alone(self, connection: "HttpProtocol") -> bool:
        """Returns whether only this connection is known to send requests. Records its request."""
        alone = self.latest is connection and not self.running
        self.latest = connection
        return alone

    def is_short(self, request: Request, alone: bool) -> bool:
        """Returns whether the event loop's thread answers a request, by its method, its size and the model's pace."""
        is_free = alone or (self._has_few_cores and not self.running)
        if request.parts or (request.method == "POST" and not (is_free and len(request.body) <= SHORT_BYTES)):
            return False
        return self.app.is_short(request)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError("HttpProtocol answers; uvicorn wants an application to be callable")

    def connected(self, connection: "HttpProtocol") -> None:
        """Records a new connection, and closes idle ones if there are too many.

        Without a free file descriptor, no client could connect. Several connections are closed at once, because finding
        the oldest requires a pass over all of them.
        """
        self.connections.add(connection)
        if len(self.connections) > self._most_connections:
            idle = sorted((each for each in self.connections if each.is_idle), key=lambda each: each.since)
            for each in idle[: 1 + self._most_connections // _CLOSED_SHARE]:
                each.close()

    def drop_oldest_body(self, newcomer: "HttpProtocol") -> bool:
        """Refuses the request whose body has been arriving longest, if it is older than the new one.

        A client that never finishes its body loses only its own request. A client that sends its body in time is
        answered.
        """
        arriving = [connection for connection in self.connections if connection.holds_body]
        oldest = min(arriving, key=lambda connection: connection.began, default=newcomer)
        if oldest is newcomer or oldest.began >= newcomer.began:
            return False
        oldest.refuse(
            HTTPStatus.SERVICE_UNAVAILABLE, "The server is busy, and the request's body did not arrive in time"
        )
        return True

    def take_turns(self, connection: "HttpProtocol", loop: asyncio.AbstractEventLoop) -> None:
        """Lets a connection continue after all other waiting connections have had a turn."""
        if not connection.has_turn:
            connection.has_turn = True
            if not self._turns:
                loop.call_soon(self._turn, loop)
            self._turns.append(connection)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        end = time.perf_counter() + _TURN_SECONDS
        while self._turns and time.perf_counter() < end:
            connection = self._turns[0]
            connection.has_turn = False
            connection.go_on()
            self._turns.popleft()
        if self._turns:
            loop.call_soon(self._turn, loop)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the periodic check of timeouts. It costs less than one timer per request."""
        if self.connections and not self._sweeping:
            self._sweeping = True
            loop.call_later(self.limits.check_interval, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeping = False
        now = loop.time()
        for connection in list(self.connections):
            connection.check(now)
        self.watch(loop)


class _Server(uvicorn.Server):
    """uvicorn's server with a shutdown that loses no request that has arrived."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts the queued connections, closes the listeners, and ends each connection after its answers.

        Closing a listener resets the queued connections, whose clients may have sent requests. `Connection: close` is
        sent only after the listeners are closed, because a client would otherwise reconnect at once.
        """
        accepted = [one for listener in sockets or [] for one in _stop_listening(listener)]
        for server in self.servers:
            server.close()
        self.config.loaded_app.stopping = True
        loop = asyncio.get_running_loop()
        for one in accepted:
            await loop.connect_accepted_socket(self._connection, one)
        await super().shutdown(sockets)

    def _connection(self) -> "HttpProtocol":
        return HttpProtocol(self.config, self.server_state)


def _stop_listening(listener: socket.socket) -> list[socket.socket]:
    """Stops a non-blocking listener from queueing connections, and returns the queued ones.

    A connection that arrives between the last check of the queue and the close would be reset, and its request lost. On
    Linux, a filter drops the clients' first packets from then on. A client repeats its packet after a second, and is
    refused by the closed listener.
    """
    if sys.platform == "linux" and listener.family in (socket.AF_INET, socket.AF_INET6):
        drop_all = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, 0))  # struct sock_filter
        program = struct.pack("HP", 1, ctypes.addressof(drop_all))  # struct sock_fprog
        with contextlib.suppress(OSError):  # a sandbox may forbid filters
            listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
    accepted = []
    with contextlib.suppress(OSError):  # BlockingIOError: the queue is empty
        while True:
            one, _ = listener.accept()
            one.setblocking(False)
            accepted.append(one)
    return accepted


def uvicorn_server(server: HttpServer) -> uvicorn.Server:
    """Returns uvicorn's server, with its sockets, signals and shutdown, for the protocol below."""
    return _Server(
        uvicorn.Config(
            server,
            interface="asgi3",
            http=HttpProtocol,
            loop="uvloop",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, int(server.limits.request_timeout) + 1),
        )
    )


class HttpProtocol(asyncio.Protocol):
    """A connection. Its requests are answered one at a time, in order.

    A client that has closed its sending side still gets the responses to its requests (RFC 9112, section 9.6). A
    disconnected client looks the same until a response is sent.

    Args:
        config, server_state, app_state, _loop: As passed by uvicorn.
    """

    def __init__(self, config: Any, server_state: Any, app_state: Any = None, _loop: Any = None):
        if not config.loaded:
            config.load()
        self._server: HttpServer = config.loaded_app
        self._uvicorn_connections = server_state.connections
        self._loop: asyncio.AbstractEventLoop = _loop or asyncio.get_event_loop()
        self._limits = self._server.limits
        self._reader = RequestReader(self._limits, self._server.budget, self._make_room)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self._waiting: deque[Request | Refusal] = deque()
        self._waiting_bytes = 0  # of their long bodies
        self._current: Request | None = None
        self._is_ending = False  # the response under way is the last one
        self._is_lingering = False  # the client reads the last response; whatever it sends is ignored
        self._paused_since: float | None = None  # since when the client does not read its responses
        self._answer_bytes = 0  # of the latest response
        self.since = 0.0  # when the connection became idle, or its request began
        self.began = 0.0  # when the latest request began to arrive
        self._since_chunk = 0.0  # when the latest chunk's size line arrived
        self._unread = b""  # received data that is not parsed yet
        self._has_ended = False  # the client has closed its sending side
        self.has_turn = False  # waits for its turn, see HttpServer.take_turns

    @property
    def _ignores(self) -> bool:
        """Whether received data is ignored."""
        return self._is_ending or self._reader.phase is _REFUSED

    @property
    def is_idle(self) -> bool:
        """Whether no request has arrived, not even its headers."""
        is_empty = self._reader.phase in (_IDLE, _HEADERS) and not self._unread
        return is_empty and not (self._current or self._waiting or self._transport.is_closing())

    def close(self) -> None:
        self._transport.close()

    @property
    def holds_body(self) -> bool:
        """Whether an unfinished body holds memory of the budget."""
        return self._reader.holds_body

    @property
    def _reads_on(self) -> bool:
        """Whether the waiting requests are few and short enough to read on."""
        return len(self._waiting) <= MAX_PIPELINED and self._waiting_bytes <= _PIPELINED_BYTES

    def _make_room(self) -> bool:
        return self._server.drop_oldest_body(self)

    # Callbacks of the transport --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # The first byte that the client does not take pauses the connection, so that all of them are counted, and none
        # keeps the connection beyond its idle time.
        self._transport.set_write_buffer_limits(0)
        self.since = self._loop.time()
        self._uvicorn_connections.add(self)
        self._server.connected(self)
        self._server.watch(self._loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._uvicorn_connections.discard(self)
        self._server.connections.discard(self)
        self._is_ending = True
        self._reader.close()
        self._server.unread.remove(self)
        self._drop_waiting()
        self._unread = b""
        if self._current:
            self._current.abandoned = True
        if self._server.latest is self:
            self._server.latest = None

    def pause_writing(self) -> None:
        self._paused_since = self._loop.time()
        size = max(self._answer_bytes, self._transport.get_write_buffer_size())
        self._server.unread.add(self, size, self._drop_answer)

    def _drop_answer(self) -> None:
        self._loop.call_soon(self._transport.abort)  # not within a write

    def resume_writing(self) -> None:
        self._paused_since = None
        self._server.unread.remove(self)
        self.go_on()

    def eof_received(self) -> bool:
        """Returns whether the connection stays open to send responses."""
        self._has_ended = True
        if not self._is_lingering:
            self._close_if_done()
        return not self._is_lingering and not self._transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self._ignores:
            return
        if self._unread or len(data) > SLICE_BYTES:
            self._unread += data
            self._read()
        else:
            self._take(data)

    def _read(self) -> None:
        """Reads received data, for at most one turn or until too many requests wait."""
        end = time.perf_counter() + _TURN_SECONDS
        at, data = 0, self._unread
        self._unread = b""
        while at < len(data) and self._reads_on and not self._ignores:
            if at and time.perf_counter() > end:
                self._server.take_turns(self, self._loop)
                break
            self._take(data[at : at + SLICE_BYTES])
            at += SLICE_BYTES
        if not self._ignores:
            self._unread = data[at:]
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        wants_more = not self._unread and self._reads_on
        if self._has_ended or self._transport.is_closing() or wants_more == self._transport.is_reading():
            return
        if wants_more:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Answers the next request, then reads buffered data for at most one turn."""
        if self._transport.is_closing():
            return
        self._next()
        if not self._reads_on:
            return
        if self._unread:
            self._read()
            self._close_if_done()
        else:
            self._pause_or_resume()

    def _take(self, piece: bytes) -> None:
        """Reads a piece of data, and starts the request that it completes."""
        reader = self._reader
        began, chunks = reader.began, reader.chunks
        if reader.phase is _IDLE:
            self.began = self._loop.time()
        requests = reader.feed(piece)
        if reader.phase is not _IDLE:
            now = self._loop.time()
            if reader.began != began:
                self.began = now
                self.since = self.since if self._current else now
            if reader.chunks != chunks:
                self._since_chunk = now
        if reader.wants_continue and not (self._current or self._waiting):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if requests:
            self._waiting += requests
            self._waiting_bytes += sum(map(_held_bytes, requests))
            self._next()
            if not self._reads_on:
                self._pause_or_resume()

    # Requests --------------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Starts the next request, unless one is running or the client does not read its responses."""
        if self._waiting and not self._current and self._paused_since is None and not self._transport.is_closing():
            item = self._waiting.popleft()
            self._waiting_bytes -= _held_bytes(item)
            if isinstance(item, Refusal):
                self._send(self._server.app.refuse(item.status, item.message), None)
            else:
                self._start(item)
            if not self._current and self._waiting:
                self._server.take_turns(self, self._loop)
        self._close_if_done()

    def _start(self, request: Request) -> None:
        self._current = request
        server = self._server
        server.busy_poll.asked()
        alone = server.is_alone(self)
        if server.is_short(request, alone):
            response = server.app.answer(request)
            request.release()
            self._finish(request, response)
            if alone:
                server.busy_poll.answered(self._loop)
            else:
                server.busy_poll.stop()
            return
        server.busy_poll.stop()
        server.running += 1
        request.deadline = time.monotonic() + self._limits.request_timeout
        timer = self._loop.call_later(self._limits.request_timeout, self._time_out, request)
        server.pool.submit(self._work, request, timer)

    def _work(self, request: Request, timer: asyncio.TimerHandle) -> None:
        """Answers the request. Runs in a pool thread."""
        response = None
        with self._server.slots:
            if not request.is_over():
                response = self._answer(request)
        request.release()
        try:
            self._loop.call_soon_threadsafe(self._done, request, response, timer)
        except RuntimeError:
            log.debug("The loop was closed before an answer to %s", request.target)

    def _answer(self, request: Request) -> Response:
        try:
            request.join_parts()
        except ServingError as error:
            return self._server.app.refuse(error.http_status, error.message or "")
        return self._server.app.answer(request)

    def _done(self, request: Request, response: Response | None, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._server.running -= 1
        if response and not request.abandoned:
            self._finish(request, response)
            self.go_on()

    def _time_out(self, request: Request) -> None:
        if self._current is request:
            request.abandoned = True
            response = self._server.app.refuse(HTTPStatus.GATEWAY_TIMEOUT, "Timed out waiting for notification")
            self._finish(request, response)
            self.go_on()

    def _finish(self, request: Request, response: Response) -> None:
        self._current = None
        self.since = self._loop.time()
        self._send(response, request)

    def _send(self, response: Response, request: Request | None) -> None:
        """Sends a response. `request` is None if the received bytes were not a valid request."""
        if self._transport.is_closing():
            return
        last = self._server.stopping and self._reader.phase is _IDLE and not self._waiting and not self._unread
        keep_alive = request is not None and request.keep_alive and not self._is_ending and not last
        if not keep_alive:
            self._is_ending = True
            self._drop_waiting()
        head = b"HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%sConnection: %s\r\n\r\n" % (
            response.status,
            _PHRASES.get(response.status, b"Unknown"),
            _date(int(time.time())),
            response.content_type,
            len(response.body),
            response.headers,
            b"keep-alive" if keep_alive else b"close",
        )
        self._answer_bytes = len(response.body)
        if request and request.method == "HEAD":
            self._transport.write(head)
        elif len(response.body) <= SLICE_BYTES:
            self._transport.write(head + response.body)
        else:  # avoids a copy
            self._transport.writelines((head, response.body))

    def _drop_waiting(self) -> None:
        for item in self._waiting:
            if isinstance(item, Request):
                item.release()
        self._waiting.clear()
        self._waiting_bytes = 0

    # Closing ---------------------------------------------------------------------------------------------------------

    def _close_if_done(self) -> None:
        """Closes a connection that reads no more, once every request is answered."""
        if self._current or self._waiting or self._transport.is_closing() or self._is_lingering:
            return
        if not self._ignores and (not self._has_ended or self._unread):
            return
        is_refused = self._reader.phase is _REFUSED
        if (is_refused or self._server.stopping) and not self._has_ended and self._transport.can_write_eof():
            # Closing would reset the connection: a client that is still sending would lose the response.
            self._is_ending = self._is_lingering = True
            self._transport.write_eof()
            self._loop.call_later(_LINGER_SECONDS, self._transport.close)
        else:
            self._transport.close()

    def check(self, now: float) -> None:
        """Closes the connection if it has been idle, or its client slow, for too long."""
        limits, waited, phase = self._limits, now - self.since, self._reader.phase
        if self._paused_since is not None:
            if now - self._paused_since > limits.idle_timeout:
                self._transport.abort()
        elif self._current or self._waiting or self._unread or self._ignores:
            return
        elif phase is _IDLE:
            if waited > limits.idle_timeout:
                self._transport.close()
        elif (
            waited > (limits.headers_timeout if phase is _HEADERS else limits.body_timeout)
            or phase is _CHUNK
            and now - self._since_chunk > limits.headers_timeout
        ):
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time")

    def refuse(self, status: int, message: str) -> None:
        """Stops reading, and sends an error response after the pending responses."""
        self._waiting.append(self._reader.refuse(status, message))
        self._unread = b""
        self._next()

    def shutdown(self) -> None:
        """Closes the connection once every request that has begun to arrive is answered. Called by uvicorn.

        A connection that was used a moment ago may send one more request, whose answer says `Connection: close`.
        """
        if self._reader.phase is _IDLE and not self._current and not self._waiting:
            quiet = self._loop.time() - self.since
            if quiet < _QUIET_SECONDS:
                self._loop.call_later(_QUIET_SECONDS - quiet, self.shutdown)
            elif self._has_arrived():
                self._loop.call_later(_AGAIN_SECONDS, self.shutdown)
            else:
                self._transport.close()

    def _has_arrived(self) -> bool:
        """Returns whether received bytes wait in the socket. On a busy machine, the loop runs timers before it reads
        them.
        """
        if self._transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))


def _held_bytes(item: Request | Refusal) -> int:
    return item.held.size if isinstance(item, Request) and item.held else 0


_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus} | {499: b"Client Closed Request"}


@functools.lru_cache(1)
def _date(seconds: int) -> bytes:
    """Returns the value of a Date header (RFC 9110, section 6.6.1)."""
    return email.utils.formatdate(seconds, usegmt=True).encode()
