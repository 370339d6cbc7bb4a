"""Bodies that grow while they are read: the memory and time that a single request may take."""

import gzip
import json
import time

from ctrpipe.serving.server.body_cost import check_cost
from ctrpipe.serving.server.errors import ServingError
from tests.attack.target import Attack, Bystander, Measure, Target, costs, until_idle
from tests.fuzz.rest_requests import MODEL, request

_MEBIBYTE = 1 << 20
# The memory allowed for a request: a fixed part, and a multiple of its decompressed size.
SPARE_BYTES, TIMES = 64 * _MEBIBYTE, 4
TIMEOUT_SECONDS, LATE_SECONDS = 30.0, 5.0


def _instances(item: bytes, size: int) -> bytes:
    """Returns `{"instances": [item, item, ...]}` of about this many bytes, for a signature that takes such an item."""
    count = max(1, size // (len(item) + 1) - 20)
    start = b"{"
    if item.startswith((b'"', b'{"b64')):
        start += b'"signature_name": "regress", '
    elif item.startswith(b'{"f":'):
        start += b'"signature_name": "mixed", '
    return start + b'"instances": [' + b",".join([item] * count) + b"]}"


def _attack(target: Target, body: bytes, packed: bool = False, method: str = "predict") -> list[Measure]:
    data = gzip.compress(body, 1) if packed else body
    raw = request(data, f"{MODEL}:{method}", headers=("Content-Encoding: gzip",) if packed else ())
    with Bystander(target) as other, costs(target) as cost, target.connect() as connection:
        connection.send(raw)
        answer = connection.response(time.monotonic() + TIMEOUT_SECONDS + 2 * LATE_SECONDS)
        until_idle(target)
    text = f"seconds of {len(body):,} bytes, answered {answer and answer[0]}"
    found = [
        Measure(text, cost.seconds, TIMEOUT_SECONDS + LATE_SECONDS, "s"),
        *other.measures(),
    ]
    if cost.peak_bytes is not None:
        allowed = SPARE_BYTES + TIMES * len(body)
        found.insert(0, Measure("memory", cost.peak_bytes / _MEBIBYTE, allowed / _MEBIBYTE, "MiB"))
    return found


def deep_lists(target: Target) -> list[Measure]:
    """`[` without an end, 24 KB as gzip."""
    return _attack(target, b"[" * target.take(24 * _MEBIBYTE, 4 * _MEBIBYTE), packed=True)


def deep_objects(target: Target) -> list[Measure]:
    """`{"a":` without an end."""
    return _attack(target, b'{"a":' * (target.take(60 * _MEBIBYTE, 4 * _MEBIBYTE) // 5), packed=True)


def short_strings(target: Target) -> list[Measure]:
    """Strings `"aaaa"`, which are eight times as large in memory."""
    return _attack(target, _instances(b'"aaaa"', target.take(62 * _MEBIBYTE, 4 * _MEBIBYTE)))


def _of(item: bytes, what: str) -> Attack:
    def attack(target: Target) -> list[Measure]:
        found = _attack(target, _instances(item, target.take(62 * _MEBIBYTE, 4 * _MEBIBYTE)))
        if target.server.process:  # what our own server takes at most, by its estimate
            found += _attack(target, _instances(item, _largest(item, target)))
        return found

    attack.__name__, attack.__doc__ = (
        what,
        f"A body of `{item.decode('latin-1')}`, as large as may be, and the largest that is read.",
    )
    return attack


def _largest(item: bytes, target: Target) -> int:
    """Returns the size of the largest body that is read."""
    low, high = 0, target.take(62 * _MEBIBYTE, 2 * _MEBIBYTE)
    while high - low > 10_000:
        middle = (low + high) // 2
        try:
            check_cost(_instances(item, middle), SPARE_BYTES, 150_000)
            low = middle
        except ServingError:
            high = middle
    return low


def one_long_string(target: Target) -> list[Measure]:
    """A string of the maximum length, to a model that echoes it, with one character that makes it wide."""
    text = ("a" * (target.take(79, 20) * _MEBIBYTE // 10) + "\U0001f600").encode()
    row = {"f": 1.0, "i": 1, "l": 1, "s": "@", "b": True, "m": [1.0, 2.0]}
    body = json.dumps({"signature_name": "mixed", "instances": [row]}).encode().replace(b"@", text)
    return _attack(target, body)


def long_names_in_json(target: Target) -> list[Measure]:
    """Names of a signature and of an input with the maximum length: an error would repeat them in full."""
    name = b"a" * target.take(8 * _MEBIBYTE, _MEBIBYTE)
    of_a_signature = b'{"signature_name": "%b", "instances": [1.0]}' % name
    of_an_input = b'{"signature_name": "mixed", "instances": [{"%b": 1}]}' % name
    return [*_attack(target, of_a_signature), *_attack(target, of_an_input)]


def escaped_string(target: Target) -> list[Measure]:
    """A string of escapes."""
    return _attack(target, b'{"instances": ["' + b"\\n" * (target.take(60 * _MEBIBYTE, 4 * _MEBIBYTE) // 2) + b'"]}')


def long_number(target: Target) -> list[Measure]:
    """A number with as many digits as a body may have."""
    return _attack(target, b'{"instances": [0.' + b"1" * target.take(60 * _MEBIBYTE, 4 * _MEBIBYTE) + b"]}")


def small_number(target: Target) -> list[Measure]:
    """A number that consists of zeros except for its last digit."""
    return _attack(target, b'{"instances": [0.' + b"0" * target.take(60 * _MEBIBYTE, 4 * _MEBIBYTE) + b"1]}")


def rows_then_a_string(target: Target) -> list[Measure]:
    """Numbers followed by a string: the rows are read one by one."""
    return _attack(target, _instances(b"1", target.take(62 * _MEBIBYTE, _MEBIBYTE // 4)).replace(b"]}", b',"a"]}'))


def large_context(target: Target) -> list[Measure]:
    """A context that is part of each of many examples."""
    size = target.take(8 * _MEBIBYTE, _MEBIBYTE)
    examples = b",".join([b"{}"] * (size // 8))
    body = b'{"signature_name": "regress", "context": {"c": "%s"}, "examples": [%s]}' % (b"a" * size, examples)
    return _attack(target, body, method="regress")


def large_examples(target: Target) -> list[Measure]:
    """One example with too many features, one with as many as are taken, and one with a feature of many values."""
    most, least = target.take(400_000, 20_000), target.take(160_000, 8_000)
    features = [b",".join(b'"%x": 1' % number for number in range(count)) for count in (most, least)]
    values = b'"f": [%b]' % b",".join([b"1"] * (most * 3 // 2))  # no more fit the memory of a request
    return [
        measure
        for example in (*features, values)
        for measure in _attack(target, b'{"signature_name": "regress", "examples": [{%b}]}' % example, method="regress")
    ]


def numbers_then_no_json(target: Target) -> list[Measure]:
    """Numbers, then a mistake: only the slowest parser reads this."""
    return _attack(target, _instances(b"1.5", target.take(62 * _MEBIBYTE, 4 * _MEBIBYTE)).replace(b"]}", b"x"))


def largest_accepted(target: Target) -> list[Measure]:
    """A request that must be answered 200: 100,000 rows of a number of usual length."""
    body = _instances(b"0.1234567", 100_000 * 10)
    with target.connect() as connection:
        connection.send(request(body))
        answer = connection.response(time.monotonic() + TIMEOUT_SECONDS)
    return [Measure("answers other than 200", not answer or answer[0] != 200, 0)]


ATTACKS = (
    deep_lists,
    deep_objects,
    short_strings,
    _of(b'""', "empty_strings"),
    _of(b"[]", "empty_lists"),
    _of(b"{}", "empty_objects"),
    _of(b"1", "short_integers"),
    _of(b"0.5", "short_floats"),
    _of(b"NaN", "not_a_number"),
    _of(b"1e39", "infinities"),
    _of(b"1e-7", "small_floats"),
    _of(b'"\xff"', "strings_of_no_utf8"),
    _of(b'{"x":1}', "short_objects"),
    _of(b'{"f":1.5,"i":5,"l":3,"s":"a","b":true,"m":[1,2]}', "rows"),
    _of(b'{"f":NaN,"i":5,"l":3,"s":"abc","b":true,"m":[1e39,1e-7]}', "rows_of_no_numbers"),
    _of(b'{"b64":"YQ=="}', "base64_strings"),
    _of(b"[1]", "short_lists"),
    _of(b"0.123456789012345678", "long_floats"),
    _of(b'"' + b"a" * 1000 + b'"', "strings_of_1000"),
    _of('"\u00e9\U0001f600"'.encode(), "wide_strings"),
    one_long_string,
    long_names_in_json,
    escaped_string,
    long_number,
    small_number,
    rows_then_a_string,
    large_context,
    large_examples,
    numbers_then_no_json,
    largest_accepted,
)
