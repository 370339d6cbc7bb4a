"""Strategies for the requests of a connection, with the allowed answers."""

import base64
import dataclasses
import gzip
import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import json_text

MODEL = "/v1/models/ctr"


@dataclasses.dataclass(frozen=True)
class Sent:
    """A request in bytes, and the JSON of its answer if that is known."""

    data: bytes
    expected: Any = None

    def __repr__(self) -> str:
        text = repr(self.data) if len(self.data) < 2000 else f"{self.data[:1000]!r}...{self.data[-200:]!r}"
        return f"{len(self.data)} bytes {text}" + (f" expected {self.expected}" if self.expected else "")


@dataclasses.dataclass(frozen=True)
class Script:
    """The requests of one connection, and how they are sent.

    Attributes:
        sent: The requests, in their order.
        http: They are right as HTTP, so each of them must be answered; otherwise an error or an end is an answer too.
        manner: "in turn", "pipelined", "slowly" (in two parts), "cut" (left in the middle), "reset", or "deaf" (left
            without reading).
        share: Where the bytes are split or cut.
    """

    sent: tuple[Sent, ...]
    http: bool
    manner: str
    share: float = 0.5


def request(
    body: bytes = b"", path: str = f"{MODEL}:predict", method: str = "POST", headers: tuple[str, ...] = ()
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


# Right ones, with their answers -----------------------------------------------------------------------------------

_number = st.integers(-4096, 4096).map(lambda value: value / 4)
_text = st.text(st.characters(codec="utf-8"), max_size=6)
_suffixes = st.sampled_from(("", "/versions/1"))


@st.composite
def _half(draw: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    rows = draw(st.lists(_number, min_size=1, max_size=20))
    answer = [row / 2 + 2 for row in rows]
    if draw(st.booleans()):
        return "predict", {"instances": rows}, {"predictions": answer}
    return "predict", {"inputs": {"x": rows}}, {"outputs": answer}


@st.composite
def _mixed(draw: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    count = draw(st.integers(1, 4))

    def column(strategy: Any) -> list[Any]:
        return draw(st.lists(strategy, min_size=count, max_size=count))

    small = st.integers(-1000, 1000)
    columns = {"f": column(_number), "i": column(small), "l": column(small), "s": column(_text)}
    columns |= {"b": column(st.booleans()), "m": column(st.lists(_number, min_size=2, max_size=2))}
    sums = [f + i + k + sum(m) for f, i, k, m in zip(*(columns[name] for name in "film"), strict=True)]
    b64 = [{"b64": _base64(text)} for text in columns["s"]]
    outputs = {"sum": sums, "text": columns["s"], "s_bytes": b64, "flag": columns["b"]}
    if draw(st.booleans()):
        return "predict", {"signature_name": "mixed", "inputs": columns}, {"outputs": outputs}
    return "predict", {"signature_name": "mixed", "instances": _rows(columns)}, {"predictions": _rows(outputs)}


@st.composite
def _examples(draw: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    rows = draw(st.lists(_number, min_size=1, max_size=5))
    examples = [{"x": row} for row in rows]
    if draw(st.booleans()):
        return (
            "regress",
            {"signature_name": "regress", "examples": examples},
            {"results": [row / 2 + 2 for row in rows]},
        )
    answer = [[["no", 1 - row], ["yes", row]] for row in rows]
    return "classify", {"signature_name": "classify", "examples": examples}, {"results": answer}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@st.composite
def right(draw: Any) -> Sent:
    """Draws a request with a known answer, in one of its notations."""
    method, body, answer = draw(st.one_of(_half(), _mixed(), _examples()))
    data = json.dumps(body, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))).encode()
    data += draw(st.sampled_from([b"", b"", b"\n", b" trailing"]))
    headers: tuple[str, ...] = ()
    if draw(st.integers(0, 4)) == 0:
        data, headers = gzip.compress(data, 1), ("Content-Encoding: gzip",)
    return Sent(request(data, f"{MODEL}{draw(_suffixes)}:{method}", headers=headers), answer)


# Wrong ones -------------------------------------------------------------------------------------------------------

_methods = st.sampled_from(["predict", "predict", "predict", "regress", "classify", "PREDICT"])


@st.composite
def _bad_encoding(draw: Any) -> bytes:
    body = draw(json_text.bodies)
    packed = gzip.compress(body, 1)
    kind = draw(st.integers(0, 5))
    if kind == 0:
        packed = packed[: draw(st.integers(0, len(packed)))]
    elif kind == 1:
        at = draw(st.integers(0, len(packed) - 1))
        packed = packed[:at] + draw(st.binary(min_size=1, max_size=2)) + packed[at + 1 :]
    elif kind == 2:
        packed = body
    elif kind == 3:
        packed += packed
    encoding = draw(
        st.sampled_from(["gzip", "gzip", "gzip", "GZIP", "x-gzip", "deflate", "br", "identity", "gzip, gzip", ""])
    )
    return request(packed, headers=(f"Content-Encoding: {encoding}",))


_names = st.one_of(
    st.sampled_from(["ctr", "CTR", "absent", "", "..", "%63tr", "%00", "%", "%zz", "ctr%2F1", "a" * 3000, "%c3%a9"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=6),
)
_versions = st.sampled_from(
    ["", "/versions/1", "/versions/01", "/versions/2", "/versions/-1", "/versions/abc", f"/versions/{2**63}"]
    + ["/labels/stable", "/labels/", "/labels/%", "/versions/1/labels/x", "/version/1", "/versions/" + "9" * 400]
)
_endings = st.sampled_from(
    [
        ":predict",
        ":Regress",
        ":classify",
        "",
        "/metadata",
        ":predict?x=1",
        ":",
        ":other",
        "/metadata/",
        "/../ctr:predict",
    ]
)


@st.composite
def _bad_path(draw: Any) -> bytes:
    path = f"{draw(st.sampled_from(['/v1/models/', '/V1/Models/', '/v1/', '/v2/models/', '/', '//']))}{draw(_names)}"
    path += draw(_versions) + draw(_endings)
    path = path.replace("#", "%23")
    method = draw(st.sampled_from(["GET", "GET", "POST", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]))
    headers = draw(st.sampled_from([(), (), ("Origin: http://a.b",), ("Origin: null",)]))
    return request(draw(st.sampled_from([b"", b"{}", b'{"instances":[1]}'])), path, method, headers)


_harmless = st.lists(
    st.sampled_from(
        [
            "Content-Type: text/plain",
            "Content-Type: application/json; charset=utf-16",
            "Accept: image/png",
            "X-A: " + "a" * 2000,
        ]
        + ["Accept-Encoding: br", "Content-Language: \xe9", "X-Empty:", "Range: bytes=0-1", "If-None-Match: *"]
        + ["Authorization: Bearer x", "Cookie: " + "a=b; " * 100]
    ),
    max_size=4,
)


@st.composite
def wrong(draw: Any) -> Sent:
    """Draws valid HTTP with a wrong content, or a right one by chance."""
    kind = draw(st.integers(0, 9))
    if kind <= 5:
        headers = tuple(draw(_harmless))
        return Sent(request(draw(json_text.bodies), f"{MODEL}:{draw(_methods)}", headers=headers))
    if kind <= 7:
        return Sent(draw(_bad_path()))
    return Sent(draw(_bad_encoding()))


_lengths = st.sampled_from(
    [b"0", b"5", b"19", b"1000", b"-1", b"abc", b"", b"1e3", b"+18", b"18, 18", b"18, 5", b"9" * 30]
)
_codings = st.sampled_from([b"gzip", b"chunked, chunked", b"identity", b"xchunked", b"\x0bchunked"])


@st.composite
def _bad_http(draw: Any) -> bytes:
    """Draws bytes that are not valid HTTP/1.1."""
    body = b'{"instances": [1]}'
    good = request(body)
    line, rest = good.split(b"\r\n", 1)
    length = str(len(body)).encode()

    def replaced(name: bytes, value: bytes) -> bytes:
        return good.replace(b"Content-Length: " + length, name + b": " + value)

    return draw(
        st.one_of(
            st.binary(max_size=200),
            st.sampled_from(
                [
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the start of TLS
                    b"GET /v1/models/ctr\r\n",  # HTTP/0.9
                    b"GET  /v1/models/ctr  HTTP/1.1\r\n\r\n",
                    b"GET /v1/models/ctr HTTP/1.1\n\n",
                    b"GET http://[::1/v1/models/ctr HTTP/1.1\r\nHost: a\r\n\r\n",
                    b"GET /v1/models/\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
                    b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
                    b"CONNECT localhost:1 HTTP/1.1\r\nHost: a\r\n\r\n",
                    b"HEAD /v1/models/ctr HTTP/1.1\r\nHost: a\r\n\r\n",
                    b"BREW /v1/models/ctr HTTP/1.1\r\nHost: a\r\n\r\n",
                    b"\r\n\r\n\r\n" + good,
                    line.replace(b"1.1", b"1.0") + b"\r\n" + rest,
                    line.replace(b"1.1", b"9.9") + b"\r\n" + rest,
                    good.replace(b"Host", b"Ho\x00st"),
                    good.replace(b"Host: localhost", b"Host: a\r\n folded"),
                    good.replace(b"Host", b"Upgrade: websocket\r\nConnection: Upgrade\r\nHost"),
                    good.replace(b"Host", b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHost"),
                    good.replace(b"Host", b"Expect: 100-continue\r\nHost"),
                    good.replace(b"Host", b"Expect: teapot\r\nHost"),
                    good.replace(b"Host", b"Connection: close\r\nHost"),
                    good.replace(b"Host", b"A: b\r\n" * 20_000 + b"Host"),
                    good.replace(b"Host: localhost", b"Host: " + b"a" * 200_000),
                    request(b"", "/v1/models/" + "a" * 200_000, "GET"),
                ]
            ),
            st.sampled_from(
                [b"0", b"5", b"19", b"1000", b"-1", b"abc", b"", b"1e3", b"+18", b"18, 18", b"18, 5", b"9" * 30]
            ).map(lambda value: replaced(b"Content-Length", value)),
            st.just(good.replace(b"Content-Length", b"Content-Length: 3\r\nContent-Length")),
            st.sampled_from(
                [
                    b'5\r\n{"ins\r\n0\r\n\r\n',
                    b"zz\r\n{}\r\n0\r\n\r\n",
                    b"2;a=b\r\n{}\r\n0\r\nTrailer: x\r\n\r\n",
                    b"ffffffffffffffffff\r\n{}",
                    b"2\r\n{}",
                    b"-2\r\n{}\r\n0\r\n\r\n",
                    b"2\r\n{}0\r\n\r\n",
                    b"12\r\n" + body + b"\r\n0\r\n\r\n",
                ]
            ).map(lambda chunks: replaced(b"Transfer-Encoding", b"chunked").replace(body, chunks)),
            st.sampled_from([b"gzip", b"chunked, chunked", b"identity", b"xchunked", b"\x0bchunked"]).map(
                lambda value: replaced(b"Transfer-Encoding", value)
            ),
            st.just(good.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost")),
            st.builds(
                lambda at, data: good[:at] + data + good[at + len(data) :],
                st.integers(0, len(good) - len(body)),
                st.binary(min_size=1, max_size=3),
            ),
        )
    )


_shares = st.floats(0, 1)


@st.composite
def scripts(draw: Any) -> Script:
    """Draws the requests of a connection: mostly valid HTTP, which must be answered in order, whatever came before."""
    kind = draw(st.integers(0, 19))
    if kind == 19:
        return Script((Sent(draw(_bad_http())),), False, draw(st.sampled_from(["in turn", "slowly"])), draw(_shares))
    if kind == 18:
        return Script((draw(right()),), False, draw(st.sampled_from(["cut", "reset", "deaf"])), draw(_shares))
    sent = tuple(draw(st.lists(st.one_of(wrong(), wrong(), right()), min_size=1, max_size=8)))
    manner = draw(st.sampled_from(["in turn", "in turn", "pipelined", "slowly"]))
    return Script(sent, True, manner, draw(_shares))
