"""Parses HTTP/1.1 requests incrementally: bytes in, requests and refusals out. Knows no sockets, threads or models.

httptools parses the lines. This module limits what httptools does not: the size of headers, chunk lines and trailers,
and the memory of bodies, which may fill half of the budget. The other half is for complete requests.
"""

import dataclasses
import enum
import math
import re
import time
from collections.abc import Callable
from http import HTTPStatus

import httptools

from ctrpipe.serving.server.budget import Budget, Held, OverBudget

MAX_HEADER_BYTES = 64 << 10
# Longer bodies are joined and parsed in the thread pool, never on the event loop's thread.
SHORT_BYTES = 256 << 10
_FREE_BYTES = 4 << 10  # of a body, not counted: the count would cost a request of one row 1 us
_BODIES_SHARE = 2  # a body may grow while less than this part of the budget is held
_SMALL_PART, _JOINED_PART = 4 << 10, 1 << 20
# A header takes the event loop's thread longer than its bytes do: two bytes as long as a hundred.
MAX_HEADERS = 1000
# The other headers are counted, not kept: a thousand of them take three times their bytes, on each connection.
_READ_HEADERS = frozenset((b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"expect", b"origin"))
_SEPARATORS = 3  # bytes of a header line besides its name and value, at least: a colon and a line end
_VERSIONS = ("1.0", "1.1")
_NO_VERSION_YET = "0.0"
# RFC 9112, section 3.2, and RFC 3986: an address in brackets or a name, and a port.
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[0-9A-Za-z._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
_SCHEME_AND_HOST = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_REPEATED = b", "  # replaces the value of a repeated header: neither a valid host nor a transfer coding


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a connection, in bytes and seconds."""

    max_request_bytes: int
    request_timeout: float
    headers_timeout: float = 10.0  # from a request's first byte to the end of its headers; also for trailers
    body_timeout: float = 60.0  # from a request's first byte to its last
    idle_timeout: float = 50.0  # between requests, and for a response that the client does not read
    check_interval: float = 1.0  # between checks of these timeouts


@dataclasses.dataclass(slots=True)
class Request:
    """A complete request.

    Attributes:
        method: The method, in the case as received.
        target: The path with its query.
        headers: The headers that the server reads, by lower-case name.
        body: The body; empty until `join_parts` if it arrived in several parts.
        keep_alive: Whether the connection stays open after the response.
        abandoned: Whether the client no longer waits for a response.
        deadline: When the request times out, on the clock of time.monotonic().
        parts: Parts of the body before joining.
        held: The request's reservation in the budget; None for a short body.
    """

    method: str
    target: str
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool = True
    abandoned: bool = False
    deadline: float = math.inf
    parts: list[bytes | bytearray] = dataclasses.field(default_factory=list)
    held: Held | None = None

    def join_parts(self) -> None:
        """Joins `parts` into `body`. Too slow for the loop's thread if the body is large.

        Raises:
            OverBudget: the budget has no memory for a second copy of the body.
        """
        if not self.parts:
            return
        size = sum(map(len, self.parts)) if self.held else 0
        if self.held:
            self.held.grow(size)
        self.body = b"".join(self.parts)
        self.parts.clear()
        if self.held:
            self.held.shrink(size)

    def is_over(self) -> bool:
        """Returns whether the client no longer waits for a response."""
        return self.abandoned or time.monotonic() > self.deadline

    def release(self) -> None:
        """Drops the body, and releases its memory in the budget."""
        self.body = b""
        self.parts.clear()
        if self.held:
            self.held.close()


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Invalid bytes, or a request above a limit: the status and message of the last response."""

    status: int
    message: str


class Phase(enum.Enum):
    """The part of a request that the next byte belongs to."""

    IDLE = enum.auto()  # the first line of a request
    HEADERS = enum.auto()  # the request line or the headers
    BODY = enum.auto()  # the body
    CHUNK = enum.auto()  # a chunk whose size line has arrived, or the trailers after the last one
    REFUSED = enum.auto()  # nothing: it is ignored


# Module-level names: reading an enum's attribute takes 60 ns, and each request reads five.
_IDLE, _HEADERS, _BODY, _CHUNK, _REFUSED = Phase


class _Arriving:
    """A partially received request.

    Attributes:
        method: Set by `_read_body_alone`; otherwise the parser has the method.
        target: The URL.
        headers: The headers that the server reads, by lower-case name.
        header_bytes: Bytes of complete headers and trailers.
        header_count: Number of complete headers.
        line_bytes: Bytes of the current, incomplete line.
        whole_bytes: Bytes of the pieces that consist of headers only, including white space.
        body_bytes: Bytes of the body.
        frame_bytes: Bytes of the lines between the body's chunks.
        quiet_bytes: Frame bytes received since the last byte of the body.
        held: The reservation for the body, unless it is short.
    """

    __slots__ = (
        "_parts",
        "body_bytes",
        "frame_bytes",
        "header_bytes",
        "header_count",
        "headers",
        "held",
        "line_bytes",
        "method",
        "quiet_bytes",
        "target",
        "whole_bytes",
    )

    def __init__(self) -> None:
        self.method = self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.header_bytes = self.header_count = self.line_bytes = self.whole_bytes = 0
        self.body_bytes = self.frame_bytes = self.quiet_bytes = 0
        self.held: Held | None = None
        self._parts: list[bytes | bytearray] = []

    def add_body(self, part: bytes) -> None:
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
        if parts and self.body_bytes <= SHORT_BYTES:
            body = b"".join(parts)
            parts = []
        return Request(
            (self.method or method).decode("ascii"),
            _path(self.target),
            self.headers,
            body,
            keep_alive,
            parts=parts,
            held=self.held,
        )

    def release(self) -> None:
        self._parts.clear()
        if self.held:
            self.held.close()
            self.held = None


class _BodyCallbacks:
    """Callbacks of a parser that reads only a body."""

    def __init__(self, reader: "RequestReader"):
        self.on_chunk_header = reader.on_chunk_header
        self.on_header = reader.on_header
        self.on_body = reader.on_body
        self.on_message_complete = reader.on_message_complete


def _no_room() -> bool:
    return False


class RequestReader:
    """Reads the requests of one connection.

    Args:
        limits: The connection's limits.
        budget: The budget of all requests.
        make_room: Drops an older unfinished body of another connection; returns whether there was one.

    Attributes:
        phase: The part of a request that the next byte belongs to.
        began: Number of requests that have begun.
        chunks: Number of chunk lines that have arrived.
        wants_continue: Whether the client waits for `100 Continue` before it sends the body of the current request.
    """

    def __init__(self, limits: Limits, budget: Budget, make_room: Callable[[], bool] = _no_room):
        self._limits = limits
        self._budget = budget
        self._make_room = make_room
        self._parser = httptools.HttpRequestParser(self)
        self._arriving = _Arriving()
        self._found: list[Request | Refusal] = []
        self._host = b""  # the latest valid Host header
        self._body_in_piece = 0  # bytes of the latest request's body in the piece read last
        self.phase = _IDLE
        self.began = self.chunks = 0
        self.wants_continue = False

    def feed(self, piece: bytes) -> list[Request | Refusal]:
        """Parses received bytes, and returns the requests and refusals that they complete, in order.

        A refusal is always the last item: everything after it is ignored.
        """
        if self.phase is _REFUSED:
            return []
        self._found = []
        self._body_in_piece = 0
        self.wants_continue = False
        arriving, phase = self._arriving, self.phase
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_body_alone(piece[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse_malformed()
        if self.phase is _HEADERS:
            if phase is _HEADERS and self._arriving is arriving:
                arriving.whole_bytes += len(piece)
            self._check_unfinished_line(piece)
            version = self._parser.get_http_version()
            if version == _NO_VERSION_YET and self._arriving.target and piece.endswith(b"\n"):
                self._refuse_version()  # a request line of HTTP/0.9: it has no version, and no headers follow
        elif phase in (_BODY, _CHUNK) and self._arriving is arriving:
            self._check_frames(len(piece) - self._body_in_piece)
        return self._found

    @property
    def holds_body(self) -> bool:
        """Whether an unfinished body holds memory of the budget."""
        return self._arriving.held is not None

    def refuse(self, status: int, message: str) -> Refusal:
        """Stops the parsing: everything after it is ignored."""
        self.phase = _REFUSED
        self._arriving.release()
        return Refusal(status, message)

    def close(self) -> None:
        """Drops the unfinished request."""
        self.phase = _REFUSED
        self._arriving.release()

    # Callbacks of the parser -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.phase is not _REFUSED:
            self.phase = _HEADERS
            self.began += 1

    def on_url(self, url: bytes) -> None:
        self._arriving.target += url  # counted as its line until the headers are complete

    def on_header(self, name: bytes, value: bytes) -> None:
        arriving = self._arriving
        arriving.header_bytes += len(name) + len(value) + _SEPARATORS
        if self.phase is not _HEADERS:  # trailers are not used
            return
        arriving.header_count += 1
        if arriving.header_count > MAX_HEADERS:
            return self._refuse_headers()
        name = name.lower()
        if name not in _READ_HEADERS:
            return
        if name in arriving.headers and name in (b"host", b"transfer-encoding"):
            value = _REPEATED
        arriving.headers[name] = value

    def on_headers_complete(self) -> None:
        if self.phase is _REFUSED:
            return
        self.phase = _BODY
        self._body_in_piece = 0
        headers, version = self._arriving.headers, self._parser.get_http_version()
        if self._arriving.header_bytes + len(self._arriving.target) > MAX_HEADER_BYTES:
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
        if b"expect" in headers and version != "1.0" and not self._found:
            self.wants_continue = headers[b"expect"].lower() == b"100-continue"

    def on_chunk_header(self) -> None:
        if self.phase is not _REFUSED:
            self.phase = _CHUNK
            self.chunks += 1

    def on_body(self, body: bytes) -> None:
        if self.phase is _REFUSED:
            return
        self.phase = _BODY
        arriving = self._arriving
        arriving.body_bytes += len(body)
        self._body_in_piece += len(body)
        if arriving.body_bytes > self._limits.max_request_bytes:
            return self._refuse_body()
        if arriving.body_bytes > _FREE_BYTES:
            try:
                self._hold(arriving, len(body))
            except OverBudget as error:
                return self._refuse(error.http_status, error.message or "")
        arriving.add_body(body)

    def on_message_complete(self) -> None:
        if self._arriving.header_bytes > MAX_HEADER_BYTES:
            self._refuse_headers()
        elif self.phase is not _REFUSED and not self._parser.should_upgrade():
            self.phase = _IDLE
            self._found.append(self._arriving.complete(self._parser.get_method(), self._parser.should_keep_alive()))
            self._arriving = _Arriving()

    def _hold(self, arriving: _Arriving, size: int) -> None:
        """Reserves memory for further bytes of a body; for a new body, for all bytes received."""
        budget = self._budget
        size = size if arriving.held else arriving.body_bytes
        while budget.held_bytes + size > budget.most_bytes // _BODIES_SHARE:
            if not self._make_room():
                raise OverBudget(
                    "The server is busy: the requests under way and the bodies that arrive take half of what "
                    f"--max_memory={budget.max_memory} leaves for them; try again later"
                )
        if arriving.held:
            arriving.held.grow(size)
        else:
            arriving.held = budget.hold(size)

    # Checks ----------------------------------------------------------------------------------------------------------

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
        return self.phase is _BODY

    def _check_unfinished_line(self, piece: bytes) -> None:
        """Refuses headers that are too long, including an unfinished line.

        The parser reports a line only when it ends. Bytes before the line may belong to the previous request's body.
        """
        arriving = self._arriving
        start = piece.rfind(b"\n") + 1
        began = max(0, len(piece) - start - self._body_in_piece)
        arriving.line_bytes = began if start or self._body_in_piece else arriving.line_bytes + began
        if max(arriving.header_bytes + arriving.line_bytes, arriving.whole_bytes) > MAX_HEADER_BYTES:
            self._refuse_headers()

    def _check_frames(self, size: int) -> None:
        """Refuses trailers and chunk lines above the header limit, and bodies of many tiny chunks."""
        arriving = self._arriving
        arriving.frame_bytes += size
        arriving.quiet_bytes = 0 if self._body_in_piece else arriving.quiet_bytes + size
        if max(arriving.quiet_bytes, arriving.header_bytes) > MAX_HEADER_BYTES:
            self._refuse_headers()
        elif arriving.frame_bytes > MAX_HEADER_BYTES + arriving.body_bytes:
            self._refuse(HTTPStatus.BAD_REQUEST, "The chunks of the request's body are too small")

    def _read_body_alone(self, data: bytes) -> None:
        """Reads the body of a request to upgrade to another protocol.

        The parser stops after the headers of such a request; a second parser reads the body. The upgrade is ignored, as
        RFC 9110, section 7.8, allows.
        """
        if self.phase is _REFUSED:
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

    # Refusals --------------------------------------------------------------------------------------------------------

    def _refuse(self, status: int, message: str) -> None:
        if self.phase is not _REFUSED:
            self._found.append(self.refuse(status, message))

    def _refuse_malformed(self) -> None:
        if self.phase is _HEADERS and self._parser.get_http_version() not in (*_VERSIONS, _NO_VERSION_YET):
            self._refuse_version()
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "Malformed HTTP request")

    def _refuse_version(self) -> None:
        self._refuse(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "The server speaks no versions of HTTP but 1.0 and 1.1")

    def _refuse_headers(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"The request's headers are above {MAX_HEADER_BYTES} bytes or more than {MAX_HEADERS}",
        )

    def _refuse_body(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The request's body is above the limit of {self._limits.max_request_bytes} bytes (--max_request_bytes)",
        )


def _path(target: bytes) -> str:
    """Returns a request target without its scheme and host, if it is a full URL (RFC 9112, section 3.2.2)."""
    if not target.startswith(b"/") and (host := _SCHEME_AND_HOST.match(target)):
        target = target[host.end() :]
        target = target if target.startswith(b"/") else b"/" + target
    return target.decode("latin-1")
