"""A REST request's memory is reserved before it is decompressed and parsed, and released after the answer."""

import concurrent.futures
import gzip
import json
import time
import zlib

import pytest

from ctrpipe.serving.server import inflate, rest
from ctrpipe.serving.server.admission import Admission
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.http_request import Request
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.options import ServerOptions
from ctrpipe.serving.server.rest import RestApi

MIB = 1 << 20
GZIP = {b"content-encoding": b"gzip"}


class Core:
    """Models that are not there: a request that is read ends with 404."""

    def __init__(self, max_memory):
        self.budget = Budget(max_memory, resident=lambda: 0)
        self.admission = Admission(self.budget)
        self.most = 0

    def use(self, name, number, label):
        self.most = self.budget.held_bytes
        raise ServingError("NOT_FOUND", "not there")


@pytest.fixture
def ask(tmp_path):
    def ask(body, headers=None, max_memory=1 << 40, method="predict", **flags):
        options = ServerOptions(model_base_path=tmp_path, **flags)
        core = Core(max_memory)
        request = Request("POST", f"/v1/models/m:{method}", headers or {}, body)
        answer = RestApi(core, options, Metrics()).answer(request)
        request.release()
        assert core.budget.held_bytes == 0
        return answer.status, json.loads(answer.body)["error"], core.most

    return ask


def strings(count):
    return b'{"instances": [' + b",".join([b'""'] * count) + b"]}"


def test_what_gzip_makes_of_a_body_is_held_before_it_is_decompressed(ask, monkeypatch):
    packed = gzip.compress(b" " * MIB + strings(10))
    status, message, held = ask(packed, GZIP)
    assert (status, message) == (404, "not there") and MIB < held < 20 * MIB

    def unpacked(*_):
        raise AssertionError("decompressed")

    monkeypatch.setattr(rest, "inflate", unpacked)
    status, message, _ = ask(packed, GZIP, max_memory=MIB)
    assert status == 503 and "try again later" in message


def test_large_bodies_are_decompressed_one_at_a_time(tmp_path, monkeypatch):
    """Eight clients' 58 kB of gzip, 60 MB of white space, had all threads: another client waited 12 s for one."""
    api = RestApi(Core(1 << 40), ServerOptions(model_base_path=tmp_path), Metrics())
    inside, most = [], []

    def slow(*arguments):
        inside.append(None)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        return inflate.inflate(*arguments)

    monkeypatch.setattr(rest, "inflate", slow)
    packed = gzip.compress(b" " * MIB + strings(10))

    def post(_):
        request = Request("POST", "/v1/models/m:predict", GZIP, packed)
        return api.answer(request).status

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(post, range(4))) == [404] * 4
    assert most == [1] * 4


def test_the_values_of_a_body_are_held_before_they_are_parsed(ask, monkeypatch):
    body = strings(340_000)
    packed = gzip.compress(body)
    assert len(packed) < 1100
    status, _, held = ask(packed, GZIP)
    assert status == 404 and held > 340_000 * 180

    def parsed(*_):
        raise AssertionError("parsed")

    monkeypatch.setattr(rest, "parse_body", parsed)
    assert ask(packed, GZIP, max_memory=50 * MIB)[0] == 503
    assert ask(body, max_memory=50 * MIB)[0] == 503
    assert ask(body, max_memory=50 * MIB, method="classify")[0] == 503


@pytest.mark.parametrize("size", [5_000, 50_000, 500_000])
def test_numbers_hold_at_least_what_their_arrays_and_lists_take(ask, size):
    status, _, held = ask(b'{"instances": [' + b"1.5," * (size // 4) + b"1]}")
    assert status == 404 and held > size // 4 * 8


def test_a_row_of_a_usual_size_holds_nothing(ask):
    row = json.dumps({"instances": [{f"C{number}": "0a1b2c3d" for number in range(39)}]}).encode()
    assert ask(row)[1:] == ("not there", 0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda packed: packed[:-4] + (10).to_bytes(4, "little"),  # another size than it is
        lambda packed: packed[:-4] + (1000).to_bytes(4, "little"),
        lambda packed: packed[:-4] + b"\xff\xff\xff\xff",
        lambda packed: packed[:-8] + b"\0\0\0\0" + packed[-4:],  # another checksum
        lambda packed: packed[:-1],
        lambda packed: packed + b"x",
        lambda packed: packed + packed,
        lambda packed: packed[:2],
        lambda packed: b"",
        lambda packed: b"\x1f\x8b" + b"\0" * 20,
    ],
)
def test_R11_damaged_gzip_is_an_empty_body(ask, damage):
    assert ask(damage(gzip.compress(strings(20))), GZIP)[:2] == (400, "JSON Parse error: The document is empty")


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 65536, 65537])
def test_gzip_of_any_size_is_read_whole(ask, count):
    assert ask(gzip.compress(strings(3) + b" " * count), GZIP)[0] == 404


def test_a_body_above_the_limit_once_decompressed_is_refused(ask):
    packed = gzip.compress(b" " * (2 * MIB))
    status, message, _ = ask(packed, GZIP, max_request_bytes=MIB)
    assert status == 400 and "--max_request_bytes" in message
    lying = packed[:-4] + (100).to_bytes(4, "little")
    assert ask(lying, GZIP, max_request_bytes=MIB)[:2] == (400, "JSON Parse error: The document is empty")


def test_a_size_that_lies_decompresses_no_more_than_it_says(monkeypatch):
    made = []

    class Recorded:
        def __init__(self, *arguments):
            self._decompressor = zlib.decompressobj(*arguments)

        def __getattr__(self, name):
            return getattr(self._decompressor, name)

        def decompress(self, data, most=0):
            made.append(len(plain := self._decompressor.decompress(data, most)))
            return plain

    class Zlib:
        MAX_WBITS, error, decompressobj = zlib.MAX_WBITS, zlib.error, Recorded

    monkeypatch.setattr(inflate, "zlib", Zlib)
    packed = gzip.compress(b" " * (2 * MIB))
    request = Request("POST", "/v1/models/m:predict", GZIP, packed[:-4] + (100).to_bytes(4, "little"))
    api = RestApi(Core(1 << 40), ServerOptions(model_base_path="x"), Metrics())
    assert api.answer(request).status == 400
    assert made == [101]
