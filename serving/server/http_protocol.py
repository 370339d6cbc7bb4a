"""HTTP/1.1 on uvicorn's server and httptools' parser, without ASGI.

ASGI's calls would cost as much as a request of one row.
"""

import asyncio
import concurrent.futures
import dataclasses
import email.utils
import enum
import functools
import logging
import math
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, cast

import httptools
import uvicorn

from ctrpipe.serving.server.busy_poll import BusyPoll

log = logging.getLogger(__name__)

MAX_HEADER_BYTES = 64 << 10
MAX_PIPELINED = 16
JSON = b"application/json"
HTML = b"text/html"
# Longer bodies are parsed in the thread pool, never on the event loop's thread.
_SHORT_BYTES = 256 << 10
_LINGER_SECONDS = 2.0
# A stopping server closes a kept connection once it has been quiet for so long: a busy client's next request may be on
# its way.
_QUIET_SECONDS = 0.5
# Received data is parsed in slices. Connections with more data take turns on the loop's thread: a client that sends
# much at once does not block the others.
_SLICE_BYTES = 16 << 10
_TURN_SECONDS = 0.005
_SMALL_PART, _JOINED_PART = 4 << 10, 1 << 20
_VERSIONS = ("1.0", "1.1")
_NO_VERSION_YET = "0.0"
# RFC 9112, section 3.2, and RFC 3986: an address in brackets or a name, and a port.
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[0-9A-Za-z._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
_REPEATED = b", "  # replaces the value of a repeated header: neither a valid host nor a transfer coding


@dataclasses.dataclass(slots=True)
class Request:
    """A request whose body has arrived.

    Attributes:
        method: The method, in the case as received.
        target: The path with its query.
        headers: The headers by lower-case name.
        body: The body; empty until `join_parts` if it arrived in several parts.
        parts: Parts of the body that are not joined yet.
        keep_alive: Whether the connection stays open after the response.
        abandoned: Whether the client no longer waits for a response.
        deadline: When the request times out, on the clock of time.monotonic().
    """

    method: str
    target: str
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool = True
    abandoned: bool = False
    deadline: float = math.inf
    parts: list[bytes | bytearray] = dataclasses.field(default_factory=list)

    def join_parts(self) -> None:
        """Joins `parts` into `body`. Too slow for the loop's thread if the body is large."""
        if self.parts:
            self.body = b"".join(self.parts)
            self.parts.clear()

    def is_over(self) -> bool:
        """Returns whether the client no longer waits for a response."""
        return self.abandoned or time.monotonic() > self.deadline


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """A response. `headers` holds further header lines, each with its line end."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: bytes = b""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a connection, in bytes and seconds."""

    max_request_bytes: int
    request_timeout: float
    headers_timeout: float = 10.0  # from a request's first byte to the end of its headers; also for trailers
    body_timeout: float = 60.0  # from a request's first byte to its last
    idle_timeout: float = 50.0  # between requests, and for a response that the client does not read
    check_interval: float = 1.0  # between checks of these timeouts


class HttpServer:
    """The server side of all connections. Answers their requests in a thread pool.

    Args:
        answer: Answers a request. Called from any thread; raises nothing. If the second argument is True, it runs on
            the loop's thread and returns None if it might block others; a pool thread then calls it again.
        refuse: Builds an error response from a status and a message.
        threads: Maximum number of requests answered at the same time.
        limits: Limits of each connection.
        busy_poll_seconds: See BusyPoll; applies only while a single connection sends requests.
    """

    def __init__(
        self,
        answer: Callable[[Request, bool], Response | None],
        refuse: Callable[[int, str], Response],
        threads: int,
        limits: Limits,
        busy_poll_seconds: float = 0.0,
    ):
        self.answer = answer
        self.refuse = refuse
        self.limits = limits
        self.busy_poll = BusyPoll(busy_poll_seconds)
        self.pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="rest")
        self.running = 0
        self.latest: HttpProtocol | None = None
        self.connections: set[HttpProtocol] = set()
        self.stopping = False
        self._sweeping = False
        self._turns: deque[HttpProtocol] = deque()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError("HttpProtocol answers; uvicorn wants an application to be callable")

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
    """uvicorn's server, whose shutdown loses no request that has arrived."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts what waits in the listeners' queues, closes them, and ends each connection after its answers.

        Closing a listener resets the connections in its queue, whose clients may have sent their requests.
        """
        self.config.loaded_app.stopping = True
        loop = asyncio.get_running_loop()
        for listener in sockets or []:
            for accepted in _accept_all(listener):
                await loop.connect_accepted_socket(self._connection, accepted)
        await super().shutdown(sockets)

    def _connection(self) -> "HttpProtocol":
        return HttpProtocol(self.config, self.server_state)


def _accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Yields the connections in the queue of a non-blocking listener, which then takes next to none."""
    listener.listen(0)
    while True:
        try:
            accepted, _ = listener.accept()
        except OSError:  # BlockingIOError: the queue is empty
            return
        accepted.setblocking(False)
        yield accepted


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


class _State(enum.Enum):
    """State of a connection: what it does with received bytes."""

    IDLE = enum.auto()  # waits for a request
    HEADERS = enum.auto()  # reads the request line and the headers
    BODY = enum.auto()  # reads the body
    CHUNK = enum.auto()  # has read a chunk's size line; the chunk follows, or the trailers after the last one
    REFUSED = enum.auto()  # ignores them: the request was invalid, and its error response is the last response
    ENDING = enum.auto()  # ignores them: the current request is the last one
    LINGERING = enum.auto()  # ignores them while the client reads the error response


# Module-level names: reading an enum's attribute takes 60 ns, and each request reads five.
_IDLE, _HEADERS, _BODY, _CHUNK, _REFUSED, _ENDING, _LINGERING = _State
_IGNORING = (_REFUSED, _ENDING, _LINGERING)


class _ArrivingRequest:
    """A partially received request.

    Attributes:
        method: Set by `_read_body_alone`; otherwise the parser has the method.
        target: The URL.
        headers: The headers by lower-case name.
        header_bytes: Bytes of the URL and of complete headers and trailers.
        line_bytes: Bytes of the current, incomplete line.
        body_bytes: Bytes of the body.
        frame_bytes: Bytes of the lines between the body's chunks.
        quiet_bytes: Frame bytes received since the last byte of the body.
    """

    __slots__ = (
        "_parts",
        "body_bytes",
        "frame_bytes",
        "header_bytes",
        "headers",
        "line_bytes",
        "method",
        "quiet_bytes",
        "target",
    )

    def __init__(self) -> None:
        self.method = self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.header_bytes = self.line_bytes = self.body_bytes = self.frame_bytes = self.quiet_bytes = 0
        self._parts: list[bytes | bytearray] = []

    def add_body(self, part: bytes) -> None:
        self.body_bytes += len(part)
        parts = self._parts
        if not parts or len(part) > _SMALL_PART:
            parts.append(part)
        elif type(parts[-1]) is bytearray and len(parts[-1]) < _JOINED_PART:  # small bytes objects cost 40 bytes each
            parts[-1] += part
        else:
            parts.append(bytearray(part))

    def complete(self, method: bytes, keep_alive: bool) -> Request:
        """Returns the complete request."""
        parts = self._parts
        body = bytes(parts.pop()) if len(parts) == 1 else b""
        request = Request((self.method or method).decode("ascii"), _path(self.target), self.headers, body, keep_alive)
        request.parts = parts
        if self.body_bytes <= _SHORT_BYTES:
            request.join_parts()
        return request


class _BodyCallbacks:
    """Callbacks of a parser that reads only a body."""

    def __init__(self, connection: "HttpProtocol"):
        self.on_chunk_header = connection.on_chunk_header
        self.on_header = connection.on_header
        self.on_body = connection.on_body
        self.on_message_complete = connection.on_message_complete


class HttpProtocol(asyncio.Protocol):
    """A connection. Its requests are answered one at a time, in order.

    A client that has closed its sending side still gets the responses to its requests (RFC 9112, section 9.6). A client
    that is gone for good looks the same until a response is sent.

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
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self._state = _IDLE
        self._arriving = _ArrivingRequest()
        self._waiting: deque[Request | Response] = deque()
        self._current: Request | None = None
        self._paused_since: float | None = None  # since when the client does not read its responses
        self._since = 0.0  # when the connection became idle, or its request began
        self._since_chunk = 0.0  # when the latest chunk's size line arrived
        self._body_in_data = 0  # bytes of the latest request's body in the slice parsed last
        self._unread = b""  # received data that is not parsed yet
        self._has_ended = False  # the client has closed its sending side
        self._host = b""  # the latest valid Host header
        self._has_answered = False  # answered a request of the slice being parsed
        self.has_turn = False  # waits for its turn, see HttpServer.take_turns

    # Callbacks of the transport --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._since = self._loop.time()
        self._uvicorn_connections.add(self)
        self._server.connections.add(self)
        self._server.watch(self._loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._uvicorn_connections.discard(self)
        self._server.connections.discard(self)
        self._state = _ENDING
        self._waiting.clear()
        self._unread = b""
        if self._current:
            self._current.abandoned = True
        if self._server.latest is self:
            self._server.latest = None

    def pause_writing(self) -> None:
        self._paused_since = self._loop.time()

    def resume_writing(self) -> None:
        self._paused_since = None
        self.go_on()

    def eof_received(self) -> bool:
        """Returns whether the connection stays open to send responses."""
        self._has_ended = True
        if self._state is not _LINGERING:
            self._close_if_done()
        return self._state is not _LINGERING and not self._transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self._state in _IGNORING:
            return
        if self._unread or len(data) > _SLICE_BYTES:
            self._unread += data
            self._read()
        else:
            self._parse(data)

    def _read(self) -> None:
        """Parses received data, for at most one turn or until more than MAX_PIPELINED requests wait."""
        end = time.perf_counter() + _TURN_SECONDS
        at, data = 0, self._unread
        self._unread = b""
        while at < len(data) and len(self._waiting) <= MAX_PIPELINED and self._state not in _IGNORING:
            if at and time.perf_counter() > end:
                self._server.take_turns(self, self._loop)
                break
            self._parse(data[at : at + _SLICE_BYTES])
            at += _SLICE_BYTES
        if self._state not in _IGNORING:
            self._unread = data[at:]
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        wants_more = not self._unread and len(self._waiting) <= MAX_PIPELINED
        if self._has_ended or self._transport.is_closing() or wants_more == self._transport.is_reading():
            return
        if wants_more:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Answers the next request, then parses buffered data for at most one turn."""
        if self._transport.is_closing():
            return
        self._next()
        if len(self._waiting) > MAX_PIPELINED:
            return
        if self._unread:
            self._read()
            self._close_if_done()
        else:
            self._pause_or_resume()

    def _parse(self, data: bytes) -> None:
        self._body_in_data = 0
        self._has_answered = False
        arriving, state = self._arriving, self._state
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_body_alone(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse_malformed()
        if self._state is _HEADERS:
            self._check_unfinished_line(data)
            version = self._parser.get_http_version()
            if version == _NO_VERSION_YET and self._arriving.target and data.endswith(b"\n"):
                self._refuse_version()  # a request line of HTTP/0.9: it has no version, and no headers follow
        elif state in (_BODY, _CHUNK) and self._arriving is arriving:
            self._check_frames(len(data) - self._body_in_data)

    def _check_unfinished_line(self, data: bytes) -> None:
        """Refuses headers that are too long, including an unfinished line.

        The parser reports a line only when it ends. Bytes before the line may belong to the previous request's body.
        """
        arriving = self._arriving
        start = data.rfind(b"\n") + 1
        began = max(0, len(data) - start - self._body_in_data)
        arriving.line_bytes = began if start or self._body_in_data else arriving.line_bytes + began
        if arriving.header_bytes + arriving.line_bytes > MAX_HEADER_BYTES:
            self._refuse_headers()

    def _check_frames(self, size: int) -> None:
        """Refuses trailers and chunk lines longer than headers may be, and bodies of many tiny chunks."""
        arriving = self._arriving
        arriving.frame_bytes += size
        arriving.quiet_bytes = 0 if self._body_in_data else arriving.quiet_bytes + size
        if max(arriving.quiet_bytes, arriving.header_bytes) > MAX_HEADER_BYTES:
            self._refuse_headers()
        elif arriving.frame_bytes > MAX_HEADER_BYTES + arriving.body_bytes:
            self._refuse(HTTPStatus.BAD_REQUEST, "The chunks of the request's body are too small")

    def _read_body_alone(self, data: bytes) -> None:
        """Reads the body of a request to upgrade to another protocol.

        The parser stops after the headers of such a request; a second parser reads the body. The upgrade is ignored, as
        RFC 9110, section 7.8, allows.
        """
        if self._state in _IGNORING:
            return
        arriving = self._arriving
        arriving.method = self._parser.get_method()
        if b"transfer-encoding" in arriving.headers:
            framing = b"Transfer-Encoding: chunked"
        else:
            framing = b"Content-Length: " + arriving.headers.get(b"content-length", b"0")
        self._parser = httptools.HttpRequestParser(_BodyCallbacks(self))
        self._parser.feed_data(b"POST / HTTP/1.1\r\nConnection: close\r\n%s\r\n\r\n" % framing)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse_malformed()

    # Callbacks of the parser -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._state in _IGNORING:
            return
        self._state = _HEADERS
        if not self._current:
            self._since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        arriving = self._arriving
        arriving.target += url
        arriving.header_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        arriving = self._arriving
        arriving.header_bytes += len(name) + len(value)
        if self._state is not _HEADERS:  # trailers are not used
            return
        name = name.lower()
        if name in arriving.headers and name in (b"host", b"transfer-encoding"):
            value = _REPEATED
        arriving.headers[name] = value

    def on_headers_complete(self) -> None:
        if self._state in _IGNORING:
            return
        self._state = _BODY
        self._body_in_data = 0
        headers, version = self._arriving.headers, self._parser.get_http_version()
        if self._arriving.header_bytes > MAX_HEADER_BYTES:
            return self._refuse_headers()
        if version not in _VERSIONS:
            return self._refuse_version()
        if headers.get(b"host") != self._host and not self._takes_host(version):
            return self._refuse(HTTPStatus.BAD_REQUEST, "The request needs one Host header, with a host and a port")
        if b"transfer-encoding" in headers and not self._takes_coding(version):
            return
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._limits.max_request_bytes:
            return self._refuse_body()
        if b"expect" in headers and version != "1.0" and not (self._current or self._waiting):
            if headers[b"expect"].lower() == b"100-continue":
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _takes_host(self, version: str) -> bool:
        """Returns whether the request has one valid Host header, or none in HTTP/1.0."""
        host = self._arriving.headers.get(b"host")
        if host is None:
            return version == "1.0"
        if not _HOST.fullmatch(host):
            return False
        self._host = host
        return True

    def _takes_coding(self, version: str) -> bool:
        """Returns whether the body's only transfer coding is chunked; otherwise refuses the request.

        See RFC 9112, section 6.1.
        """
        if version == "1.0":
            self._refuse(HTTPStatus.BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding")
        elif self._arriving.headers[b"transfer-encoding"].lower() != b"chunked":
            self._refuse(HTTPStatus.NOT_IMPLEMENTED, "The only Transfer-Encoding is chunked, once")
        return self._state is _BODY

    def on_chunk_header(self) -> None:
        if self._state not in _IGNORING:
            self._state = _CHUNK
            self._since_chunk = self._loop.time()

    def on_body(self, body: bytes) -> None:
        if self._state in _IGNORING:
            return
        self._state = _BODY
        self._arriving.add_body(body)
        self._body_in_data += len(body)
        if self._arriving.body_bytes > self._limits.max_request_bytes:
            self._refuse_body()

    def on_message_complete(self) -> None:
        if self._arriving.header_bytes > MAX_HEADER_BYTES:
            self._refuse_headers()
        elif not self._parser.should_upgrade():
            self._complete(self._parser.should_keep_alive())

    def _complete(self, keep_alive: bool) -> None:
        if self._state in _IGNORING:
            return
        self._state = _IDLE
        self._waiting.append(self._arriving.complete(self._parser.get_method(), keep_alive))
        self._arriving = _ArrivingRequest()
        if self._has_answered:
            self._server.take_turns(self, self._loop)
        else:
            self._next()

    # Requests --------------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Starts the next request, unless one is running or the client does not read its responses."""
        if self._waiting and not self._current and self._paused_since is None and not self._transport.is_closing():
            item = self._waiting.popleft()
            if isinstance(item, Response):
                self._send(item, None)
            else:
                self._start(item)
            self._has_answered = True
            if not self._current and self._waiting:
                self._server.take_turns(self, self._loop)
        self._close_if_done()

    def _start(self, request: Request) -> None:
        self._current = request
        server = self._server
        server.busy_poll.asked()
        alone = server.latest is self and not server.running
        server.latest = self
        if not request.parts and (request.method != "POST" or (alone and len(request.body) <= _SHORT_BYTES)):
            response = server.answer(request, True)
            if response is not None:
                self._finish(request, response)
                if not server.running:
                    server.busy_poll.answered(self._loop)
                return
        server.busy_poll.stop()
        server.running += 1
        request.deadline = time.monotonic() + self._limits.request_timeout
        timer = self._loop.call_later(self._limits.request_timeout, self._time_out, request)
        server.pool.submit(self._work, request, timer)

    def _work(self, request: Request, timer: asyncio.TimerHandle) -> None:
        """Answers the request. Runs in a pool thread."""
        response = None
        if not request.is_over():
            request.join_parts()
            response = self._server.answer(request, False)
        try:
            self._loop.call_soon_threadsafe(self._done, request, response, timer)
        except RuntimeError:
            log.debug("The loop was closed before an answer to %s", request.target)

    def _done(self, request: Request, response: Response | None, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._server.running -= 1
        if response and not request.abandoned:
            self._finish(request, response)
            self.go_on()

    def _time_out(self, request: Request) -> None:
        if self._current is request:
            request.abandoned = True
            self._finish(request, self._server.refuse(HTTPStatus.GATEWAY_TIMEOUT, "Timed out waiting for notification"))
            self.go_on()

    def _finish(self, request: Request, response: Response) -> None:
        self._current = None
        self._since = self._loop.time()
        self._send(response, request)

    def _send(self, response: Response, request: Request | None) -> None:
        """Sends a response. `request` is None if the received bytes were not a valid request."""
        if self._transport.is_closing():
            return
        last = self._server.stopping and self._state is _IDLE and not self._waiting and not self._unread
        keep_alive = request is not None and request.keep_alive and self._state is not _ENDING and not last
        if not keep_alive:
            self._waiting.clear()
            if self._state is not _REFUSED:
                self._state = _ENDING
        head = b"HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%sConnection: %s\r\n\r\n" % (
            response.status,
            _PHRASES.get(response.status, b"Unknown"),
            _date(int(time.time())),
            response.content_type,
            len(response.body),
            response.headers,
            b"keep-alive" if keep_alive else b"close",
        )
        if request and request.method == "HEAD":
            self._transport.write(head)
        elif len(response.body) <= _SLICE_BYTES:
            self._transport.write(head + response.body)
        else:  # avoids a copy
            self._transport.writelines((head, response.body))

    # Refusing and closing --------------------------------------------------------------------------------------------

    def _refuse(self, status: int, message: str) -> None:
        """Sends an error response after the pending responses, then ends the connection."""
        if self._state not in _IGNORING:
            self._state = _REFUSED
            self._waiting.append(self._server.refuse(status, message))
            self._next()

    def _refuse_malformed(self) -> None:
        if self._state is _HEADERS and self._parser.get_http_version() not in (*_VERSIONS, _NO_VERSION_YET):
            self._refuse_version()
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "Malformed HTTP request")

    def _refuse_version(self) -> None:
        self._refuse(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "The server speaks no versions of HTTP but 1.0 and 1.1")

    def _refuse_headers(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"The request's headers are above {MAX_HEADER_BYTES} bytes"
        )

    def _refuse_body(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The request's body is above the limit of {self._limits.max_request_bytes} bytes (--max_request_bytes)",
        )

    def _close_if_done(self) -> None:
        """Closes a connection that reads nothing more, once every request is answered."""
        if self._current or self._waiting or self._transport.is_closing():
            return
        if self._state not in _IGNORING and (not self._has_ended or self._unread):
            return
        if (self._state is _REFUSED or self._server.stopping) and self._transport.can_write_eof():
            # Closing would reset the connection: a client that is still sending would lose the response.
            self._state = _LINGERING
            self._transport.write_eof()
            self._loop.call_later(_LINGER_SECONDS, self._transport.close)
        else:
            self._transport.close()

    def check(self, now: float) -> None:
        """Ends the connection if it has been idle, or its client slow, for too long."""
        limits, waited = self._limits, now - self._since
        if self._paused_since is not None:
            if now - self._paused_since > limits.idle_timeout:
                self._transport.abort()
        elif self._current or self._waiting or self._unread or self._state in _IGNORING:
            return
        elif self._state is _IDLE:
            if waited > limits.idle_timeout:
                self._transport.close()
        elif (
            waited > (limits.headers_timeout if self._state is _HEADERS else limits.body_timeout)
            or self._state is _CHUNK
            and now - self._since_chunk > limits.headers_timeout
        ):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time")

    def shutdown(self) -> None:
        """Ends the connection once every request that has begun to arrive is answered. Called by uvicorn.

        A connection in use just now has time for a further request, whose answer says `Connection: close`.
        """
        if self._state is _IDLE and not self._current and not self._waiting:
            quiet = self._loop.time() - self._since
            if quiet < _QUIET_SECONDS:
                self._loop.call_later(_QUIET_SECONDS - quiet, self.shutdown)
            else:
                self._transport.close()


_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus} | {499: b"Client Closed Request"}


@functools.lru_cache(1)
def _date(seconds: int) -> bytes:
    """Returns the value of a Date header (RFC 9110, section 6.6.1)."""
    return email.utils.formatdate(seconds, usegmt=True).encode()


def _path(target: bytes) -> str:
    """Returns the path and query of a request target, which may be a full URL (RFC 9112, section 3.2.2)."""
    if not target.startswith(b"/"):
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError:
            return target.decode("latin-1")
        target = (url.path or b"/") + (b"?" + url.query if url.query else b"")
    return target.decode("latin-1")
