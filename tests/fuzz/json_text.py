"""Strategies for bodies: valid requests, other JSON, and text that is not JSON."""

import json
from typing import Any

from hypothesis import strategies as st

# Numbers as they may be typed, among them what no type holds and what is no number.
LITERALS = (
    *("0", "-0", "1", "1.0", "1.5", "-2.25", "1e3", "1E+3", "1e400", "-1e400", "1e-400", "1e39", "0.1e", "1.", ".5"),
    *("2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "18446744073709551616"),
    *(
        "NaN",
        "-NaN",
        "nan",
        "Infinity",
        "-Infinity",
        "Inf",
        "-Inf",
        "+1",
        "01",
        "0x10",
        "1_000",
        "--1",
        "1e",
        "1" * 5000,
    ),
    *(
        "true",
        "false",
        "null",
        "True",
        "None",
        "undefined",
        "tru",
        "'a'",
        '"',
        '"\\u12"',
        '"\\ud800"',
        '"\\x"',
        '"a\nb"',
    ),
)
KEYS = (
    "instances",
    "inputs",
    "examples",
    "context",
    "signature_name",
    "x",
    "f",
    "i",
    "l",
    "s",
    "b",
    "m",
    "b64",
    "",
    "é",
)
SIGNATURES = ("serving_default", "mixed", "regress", "classify", "absent", "")


class Literal(str):
    """Text that is put into JSON unchanged."""


def dump(value: Any) -> str:
    """Formats JSON; a Literal is written as it is."""
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


literals = st.sampled_from(LITERALS).map(Literal)
scalars = st.one_of(
    literals, st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=8), st.sampled_from(SIGNATURES)
)
keys = st.one_of(st.sampled_from(KEYS), st.text(max_size=4))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


def _nested(depth: int, opening: str, closing: str, complete: bool, inner: str) -> str:
    return opening * depth + inner + (closing * depth if complete else "")


deep = st.builds(
    _nested,
    st.sampled_from([2, 10, 100, 1_000, 10_000, 200_000]),
    st.just("["),
    st.just("]"),
    st.booleans(),
    st.sampled_from(["", "1", "[]", '"a"']),
) | st.builds(
    _nested,
    st.sampled_from([2, 10, 100, 1_000, 50_000]),
    st.sampled_from(['{"x":', '{"instances":', '[{"b64":']),
    st.sampled_from(["}", "]", "}]"]),
    st.booleans(),
    st.sampled_from(["", "1", "{}"]),
)


def typed_request(columns: dict[str, Any], signature: str, by_row: bool) -> dict[str, Any]:
    """Draws a request to the signature `mixed` with a value of any type in each place."""
    request: dict[str, Any] = {"signature_name": signature}
    if by_row:
        request["instances"] = [columns]
    else:
        request["inputs"] = columns
    return request


typed = st.builds(
    typed_request,
    st.fixed_dictionaries({name: values for name in ("f", "i", "l", "s", "b", "m")}),
    st.sampled_from(["mixed", "mixed", "mixed", "serving_default", "absent"]),
    st.booleans(),
)
requests = st.one_of(
    values,
    typed,
    st.dictionaries(st.sampled_from(KEYS), values, max_size=4),
    st.fixed_dictionaries({"instances": values}),
    st.fixed_dictionaries({"inputs": values, "signature_name": st.sampled_from(SIGNATURES)}),
    st.fixed_dictionaries(
        {"examples": values, "signature_name": st.sampled_from(("regress", "classify"))}, optional={"context": values}
    ),
)


@st.composite
def mutated(draw: Any, text: str) -> bytes:
    """Draws a body with some of its bytes replaced, left out, doubled or cut off."""
    data = bytearray(text.encode())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 4)))
        data[at:until] = draw(
            st.one_of(st.binary(max_size=3), st.just(bytes(data[at:until]) * 2), literals.map(str.encode))
        )
    return bytes(data)


bodies = st.one_of(
    requests.map(lambda value: dump(value).encode("utf-8", "surrogatepass")),
    requests.map(dump).flatmap(mutated),
    deep.map(str.encode),
    deep.map(lambda text: f'{{"instances":{text}}}'.encode()),
    deep.map(lambda text: f'{{"signature_name":"regress","examples":[{{"x":{text}}}]}}'.encode()),
    st.binary(max_size=40),
    requests.map(lambda value: dump(value).encode("utf-16", "replace")),
    requests.map(lambda value: b"\xef\xbb\xbf" + dump(value).encode("utf-8", "replace")),
    requests.map(lambda value: dump(value).encode("latin-1", "replace")),
    st.just(b""),
)
