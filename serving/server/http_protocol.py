"""HTTP/1.1 on uvicorn's server and httptools' parser, without ASGI: its calls cost as much as a request of one row."""

import asyncio
import concurrent.futures
import dataclasses
import enum
import logging
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import httptools
import uvicorn

from serving.server.busy_poll import BusyPoll

log = logging.getLogger(__name__)

MAX_HEADER_BYTES = 64 << 10
MAX_PIPELINED = 16
JSON = b"application/json"
HTML = b"text/html"
# A longer body is parsed in a thread of the pool, never on the loop's.
_SHORT_BYTES = 256 << 10
_LINGER_SECONDS = 2.0


@dataclasses.dataclass(slots=True)
class Request:
    """A request whose body has arrived; header names are in lower case."""

    method: str
    target: str
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool = True
    abandoned: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """What is sent back; `headers` are whole lines."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: bytes = b""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a client may ask of a connection, in bytes and seconds."""

    max_request_bytes: int
    request_timeout: float
    headers_timeout: float = 10.0  # from a request's first byte to the end of its headers
    body_timeout: float = 60.0  # from a request's first byte to its last
    idle_timeout: float = 50.0  # between requests, and for a response that the client does not take
    check_interval: float = 1.0  # between checks of these timeouts


class HttpServer:
    """Hands requests to `answer`, in threads.

    Args:
        answer: Called from any thread; it raises nothing. With the second argument True it is on the loop's thread,
            and returns None where that might keep others waiting; it is then called again in another.
        refuse: The response to what never becomes a request, of a status and a message.
        threads: Requests that are answered at the same time.
        limits: Of each connection.
        busy_poll_seconds: See BusyPoll; only while one connection asks at a time.
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
        self._sweeping = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError("HttpProtocol answers; uvicorn wants an application to be callable")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes connections that took too long; one look at all costs less than a timer for each request."""
        if self.connections and not self._sweeping:
            self._sweeping = True
            loop.call_later(self.limits.check_interval, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeping = False
        now = loop.time()
        for connection in list(self.connections):
            connection.check(now)
        self.watch(loop)


def uvicorn_server(server: HttpServer) -> uvicorn.Server:
    """Returns uvicorn's server, with its sockets, signals and shutdown, around the protocol below."""
    return uvicorn.Server(
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
    """What a connection does with the bytes that arrive."""

    IDLE = enum.auto()  # waits for a request
    HEADERS = enum.auto()  # reads a request's first line and its headers
    BODY = enum.auto()  # reads a request's body
    REFUSED = enum.auto()  # ignores them: what came was no request, and the answer that says so is the last one
    ENDING = enum.auto()  # ignores them: the current request is the last one
    LINGERING = enum.auto()  # ignores them while the client reads the refusal


# Names of the module: reading an enum's attribute takes 60 ns, and a request would read five.
_IDLE, _HEADERS, _BODY, _REFUSED, _ENDING, _LINGERING = _State
_IGNORING = (_REFUSED, _ENDING, _LINGERING)


class _ArrivingRequest:
    """A request of which some bytes have arrived.

    Attributes:
        target: Its URL.
        headers: By name in lower case.
        header_bytes: Of the URL and of the headers that have arrived whole.
        line_bytes: Of the line that has not.
        body_bytes: Of its body.
        foreign_bytes: Of a body that the parser leaves to us, how many have not arrived.
    """

    __slots__ = ("_parts", "body_bytes", "foreign_bytes", "header_bytes", "headers", "line_bytes", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.header_bytes = self.line_bytes = self.body_bytes = self.foreign_bytes = 0
        self._parts: list[bytes] = []

    def add_body(self, part: bytes) -> None:
        self._parts.append(part)
        self.body_bytes += len(part)

    def complete(self, method: bytes, keep_alive: bool) -> Request:
        """Returns the whole request."""
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        return Request(method.decode("ascii"), _path(self.target), self.headers, body, keep_alive)


class HttpProtocol(asyncio.Protocol):
    """A connection. Its requests are answered one after the other, in their order.

    A client that has closed its side is taken as gone, as most proxies do: what it asked is not run any more.

    Args:
        config, server_state, app_state, _loop: As uvicorn gives them.
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
        self._stopping = False
        self._paused_since: float | None = None  # since when the client does not take what it asked for
        self._since = 0.0  # when the connection became idle, or its request began
        self._body_in_data = 0  # bytes of the latest request's body in the data that arrived last

    # Of the transport ------------------------------------------------------------------------------------------------

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
        if self._current:
            self._current.abandoned = True
        if self._server.latest is self:
            self._server.latest = None

    def pause_writing(self) -> None:
        self._paused_since = self._loop.time()

    def resume_writing(self) -> None:
        self._paused_since = None
        self._next()

    def data_received(self, data: bytes) -> None:
        if self._state in _IGNORING:
            return
        if self._arriving.foreign_bytes:
            return self._take_foreign(data)
        self._body_in_data = 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._take_foreign(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST, "Malformed HTTP request")
        if self._state is _HEADERS:
            self._check_unfinished_line(data)

    def _check_unfinished_line(self, data: bytes) -> None:
        """Refuses headers that are too long. The parser says nothing of a line until it ends; what comes before the
        line may be the body of the request before."""
        arriving = self._arriving
        start = data.rfind(b"\n") + 1
        began = max(0, len(data) - start - self._body_in_data)
        arriving.line_bytes = began if start or self._body_in_data else arriving.line_bytes + began
        if arriving.header_bytes + arriving.line_bytes > MAX_HEADER_BYTES:
            self._refuse_headers()

    def _take_foreign(self, data: bytes) -> None:
        """Reads the body of a request that offers another protocol, after which the parser stops: only HTTP/1.1 is
        spoken."""
        if self._state in _IGNORING:
            return
        arriving = self._arriving
        part = data[: arriving.foreign_bytes]
        arriving.foreign_bytes -= len(part)
        self.on_body(part)
        if not arriving.foreign_bytes:
            self._complete(keep_alive=False)

    # Of the parser ---------------------------------------------------------------------------------------------------

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
        arriving.headers[name.lower()] = value
        arriving.header_bytes += len(name) + len(value)

    def on_headers_complete(self) -> None:
        if self._state in _IGNORING:
            return
        self._state = _BODY
        self._body_in_data = 0
        if self._arriving.header_bytes > MAX_HEADER_BYTES:
            return self._refuse_headers()
        headers = self._arriving.headers
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._limits.max_request_bytes:
            return self._refuse_body()
        if headers.get(b"expect", b"").lower() == b"100-continue" and not (self._current or self._waiting):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._state in _IGNORING:
            return
        self._arriving.add_body(body)
        self._body_in_data += len(body)
        if self._arriving.body_bytes > self._limits.max_request_bytes:
            self._refuse_body()

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            self._arriving.foreign_bytes = int(self._arriving.headers.get(b"content-length", b"0"))
        else:
            self._complete(self._parser.should_keep_alive())

    def _complete(self, keep_alive: bool) -> None:
        if self._state in _IGNORING:
            return
        self._state = _IDLE
        self._waiting.append(self._arriving.complete(self._parser.get_method(), keep_alive))
        self._arriving = _ArrivingRequest()
        if len(self._waiting) > MAX_PIPELINED and self._transport.is_reading():
            self._transport.pause_reading()
        self._next()

    # Requests --------------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Starts the next request, unless one runs or the client does not take what it asked for."""
        while self._waiting and not self._current and self._paused_since is None:
            item = self._waiting.popleft()
            if len(self._waiting) <= MAX_PIPELINED and not self._transport.is_reading():
                self._transport.resume_reading()
            if isinstance(item, Response):
                self._send(item, None)
            else:
                self._start(item)
        self._close_if_done()

    def _start(self, request: Request) -> None:
        self._current = request
        server = self._server
        server.busy_poll.asked()
        alone = server.latest is self and not server.running
        server.latest = self
        if request.method != "POST" or (alone and len(request.body) <= _SHORT_BYTES):  # a GET needs no model
            response = server.answer(request, True)
            if response is not None:
                self._finish(request, response)
                if not server.running:
                    server.busy_poll.answered(self._loop)
                return
        server.busy_poll.stop()
        server.running += 1
        timer = self._loop.call_later(self._limits.request_timeout, self._time_out, request)
        server.pool.submit(self._work, request, timer)

    def _work(self, request: Request, timer: asyncio.TimerHandle) -> None:
        """Answers the request; runs in a thread of the pool."""
        response = None if request.abandoned else self._server.answer(request, False)
        try:
            self._loop.call_soon_threadsafe(self._done, request, response, timer)
        except RuntimeError:
            log.debug("The loop was closed before an answer to %s", request.target)

    def _done(self, request: Request, response: Response | None, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._server.running -= 1
        if response and not request.abandoned:
            self._finish(request, response)
            self._next()

    def _time_out(self, request: Request) -> None:
        if self._current is request:
            request.abandoned = True
            self._finish(request, self._server.refuse(HTTPStatus.GATEWAY_TIMEOUT, "Timed out waiting for notification"))
            self._next()

    def _finish(self, request: Request, response: Response) -> None:
        self._current = None
        self._since = self._loop.time()
        self._send(response, request)

    def _send(self, response: Response, request: Request | None) -> None:
        """Sends the answer to a request, or to what never became one."""
        if self._transport.is_closing():
            return
        last = self._stopping and self._state is _IDLE and not self._waiting
        keep_alive = request is not None and request.keep_alive and self._state is not _ENDING and not last
        if not keep_alive:
            self._waiting.clear()
            if self._state is not _REFUSED:
                self._state = _ENDING
        head = b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%sConnection: %s\r\n\r\n" % (
            response.status,
            _PHRASES.get(response.status, b"Unknown"),
            response.content_type,
            len(response.body),
            response.headers,
            b"keep-alive" if keep_alive else b"close",
        )
        self._transport.write(head if request and request.method == "HEAD" else head + response.body)

    # The end ---------------------------------------------------------------------------------------------------------

    def _refuse(self, status: int, message: str) -> None:
        """Answers what never becomes a request, once those before it are answered, and ends the connection."""
        if self._state not in _IGNORING:
            self._state = _REFUSED
            self._waiting.append(self._server.refuse(status, message))
            self._next()

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
        """Closes a connection that reads no more, once everything is answered."""
        if self._state not in _IGNORING or self._current or self._waiting or self._transport.is_closing():
            return
        if self._state is _REFUSED and self._transport.can_write_eof():
            # A client that is still sending would lose the answer to a reset: let it read first.
            self._state = _LINGERING
            self._transport.write_eof()
            self._loop.call_later(_LINGER_SECONDS, self._transport.close)
        else:
            self._transport.close()

    def check(self, now: float) -> None:
        """Ends the connection if it is idle, or its client slow, for too long."""
        limits, waited = self._limits, now - self._since
        if self._paused_since is not None:
            if now - self._paused_since > limits.idle_timeout:
                self._transport.abort()
        elif self._current or self._state in _IGNORING:
            return
        elif self._state is _IDLE:
            if waited > limits.idle_timeout:
                self._transport.close()
        elif waited > (limits.headers_timeout if self._state is _HEADERS else limits.body_timeout):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time")

    def shutdown(self) -> None:
        """Ends the connection once the requests that have arrived, or begun to, are answered; uvicorn stops."""
        self._stopping = True
        if self._state is _IDLE and not self._current and not self._waiting:
            self._transport.close()


_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus} | {499: b"Client Closed Request"}


def _path(target: bytes) -> str:
    """Returns path and query; a proxy may send a whole URL."""
    if not target.startswith(b"/"):
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError:
            return target.decode("latin-1")
        target = (url.path or b"/") + (b"?" + url.query if url.query else b"")
    return target.decode("latin-1")
