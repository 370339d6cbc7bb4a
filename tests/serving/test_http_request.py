"""The bytes of a connection become requests and refusals, within the memory budget. No socket is opened."""

import pytest

from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.http_request import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    Limits,
    Phase,
    Refusal,
    Request,
    RequestReader,
)

MIB = 1 << 20
PIECE = 16 << 10
HEAD = b"POST /x HTTP/1.1\r\nHost: x\r\n"


def a_reader(max_memory=1 << 40, max_request_bytes=64 * MIB):
    budget = Budget(max_memory, resident=lambda: 0)
    return RequestReader(Limits(max_request_bytes, 5.0), budget), budget


def fed(reader, data, piece=PIECE):
    """The parsed requests, and the number of bytes read by then."""
    found = []
    for start in range(0, len(data), piece):
        found += reader.feed(data[start : start + piece])
        if found and isinstance(found[-1], Refusal):
            return found, start + piece
    return found, len(data)


def post(body, *headers):
    return b"".join([HEAD, *headers, b"Content-Length: %d\r\n\r\n" % len(body), body])


@pytest.mark.parametrize("piece", [1, 7, 100, PIECE])
def test_requests_are_the_same_however_they_arrive(piece):
    reader, _ = a_reader()
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"
    found, _ = fed(reader, post(b"first") + chunked + b"GET /y HTTP/1.1\r\nHost: x\r\n\r\n", piece)
    assert [(one.method, one.target, one.body) for one in found] == [
        ("POST", "/x", b"first"),
        ("POST", "/x", b"abcde"),
        ("GET", "/y", b""),
    ]
    assert reader.phase is Phase.IDLE


@pytest.mark.parametrize(
    "line",
    [
        b"a:\r\n",
        b"a:" + b" " * 1000 + b"\r\n",
        b"a: b" + b"\t" * 100 + b"\r\n",
        b"X-Long: " + b"a" * 5000 + b"\r\n",
        b"a" * 300 + b":\r\n",
    ],
)
@pytest.mark.parametrize("piece", [333, PIECE])
def test_headers_are_refused_at_64_kib_with_all_that_belongs_to_them(line, piece):
    reader, _ = a_reader()
    found, read = fed(reader, HEAD + line * (4 * MAX_HEADER_BYTES // len(line)) + b"\r\n", piece)
    assert [one.status for one in found] == [431]
    assert read <= MAX_HEADER_BYTES + 2 * PIECE  # the piece in which they begin is not counted with its white space


@pytest.mark.parametrize("line", [b"a:" + b" " * 60 + b"\r\n", b"X-Long: " + b"a" * 500 + b"\r\n"])
def test_headers_of_60_kb_are_taken(line):
    reader, _ = a_reader()
    found, _ = fed(reader, post(b"a", line * (60_000 // len(line))))
    assert [one.body for one in found] == [b"a"]


@pytest.mark.parametrize("piece", [333, PIECE])
@pytest.mark.parametrize(("size", "statuses"), [(60_000, []), (MAX_HEADER_BYTES + 1, [431])])
def test_a_path_of_60_kb_is_taken(size, statuses, piece):
    reader, _ = a_reader()
    found, _ = fed(reader, b"GET /" + b"a" * (size - 1) + b" HTTP/1.1\r\nHost: a\r\n\r\n", piece)
    assert [one.status for one in found if isinstance(one, Refusal)] == statuses
    assert statuses or [len(one.target) for one in found] == [size]


def test_a_body_is_held_from_its_first_bytes_until_its_request_is_released():
    reader, budget = a_reader()
    data = post(b"a" * MIB)
    assert fed(reader, data[: MIB // 2])[0] == []
    assert MIB // 2 - 1000 < budget.held_bytes <= MIB // 2
    [request], _ = fed(reader, data[MIB // 2 :])
    assert budget.held_bytes == MIB
    request.join_parts()
    assert request.body == b"a" * MIB and budget.held_bytes == MIB
    request.release()
    request.release()
    assert budget.held_bytes == 0


def test_a_short_body_is_not_counted():
    reader, budget = a_reader(max_memory=8)
    [request], _ = fed(reader, post(b"a" * 4096))
    assert request.body == b"a" * 4096 and budget.held_bytes == 0


@pytest.mark.parametrize("framing", [post(b"a" * 2 * MIB), HEAD + b"Transfer-Encoding: chunked\r\n\r\n"])
def test_a_body_beyond_the_budget_is_refused_while_it_arrives(framing):
    reader, budget = a_reader(max_memory=MIB)
    data = framing if len(framing) > MIB else framing + (b"1000\r\n" + b"a" * 0x1000 + b"\r\n") * 512
    found, read = fed(reader, data)
    assert [one.status for one in found] == [503] and "--max_memory" in found[0].message
    assert read <= MIB // 2 + 2 * PIECE and budget.held_bytes == 0
    assert reader.feed(post(b"more")) == []


def test_bodies_in_advance_count_together():
    reader, budget = a_reader(max_memory=10 * MIB)
    found, _ = fed(reader, post(b"a" * MIB) * 17)
    assert [type(one) for one in found] == [Request] * 5 + [Refusal]  # half of the budget
    for request in found[:-1]:
        request.release()
    assert budget.held_bytes == 0


def test_connections_count_together_and_give_back_what_they_drop():
    budget = Budget(10 * MIB, resident=lambda: 0)
    readers = [RequestReader(Limits(64 * MIB, 5.0), budget) for _ in range(20)]
    refused = [reader for reader in readers if fed(reader, post(b"a" * MIB)[:-1])[0]]
    assert len(refused) == 15
    for reader in readers:
        reader.close()
    assert budget.held_bytes == 0


def test_no_second_copy_is_made_of_a_body_for_which_there_is_no_memory():
    reader, budget = a_reader(max_memory=3 * MIB)
    [request], _ = fed(reader, post(b"a" * MIB))
    others = budget.hold(MIB * 3 // 2)
    with pytest.raises(Exception, match="max_memory"):
        request.join_parts()
    request.release()
    others.close()
    assert budget.held_bytes == 0


def test_room_is_made_for_a_body_while_there_is_some():
    budget = Budget(10 * MIB, resident=lambda: 0)
    others = [budget.hold(2 * MIB), budget.hold(2 * MIB)]

    def make_room():
        if others:
            others.pop().close()
            return True
        return False

    reader = RequestReader(Limits(64 * MIB, 5.0), budget, make_room)
    [request], _ = fed(reader, post(b"a" * 3 * MIB))
    assert len(others) == 1 and len(request.parts) > 1
    [refusal], _ = fed(reader, post(b"a" * 6 * MIB))
    assert refusal.status == 503 and not others and budget.held_bytes == 3 * MIB


@pytest.mark.parametrize("name", [b"a", b"a%d"])
def test_many_headers_are_refused_however_short_they_are(name):
    def read(count):
        names = b"".join((name % number if b"%" in name else name) + b":\r\n" for number in range(count - 1))
        return RequestReader(Limits(1000, 5.0), Budget()).feed(b"GET / HTTP/1.1\r\nHost: a\r\n" + names + b"\r\n")

    assert [type(item) for item in read(MAX_HEADERS)] == [Request]
    [refusal] = read(MAX_HEADERS + 1)
    assert refusal.status == 431
