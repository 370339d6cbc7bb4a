"""Random request bodies for the contract's model: valid, with a mistake in a value, and damaged."""

import json
import random
from collections.abc import Callable, Iterable

# The inputs of the signatures, as kinds of JSON.
SIGNATURES = {
    "half_plus_two": {"x": "float"},
    "any_shape": {"x": "float"},
    "matrix": {"x": "float"},
    "strings": {"s": "text"},
    "text": {"s": "text"},
    "half": {"h": "float"},
    "brain_float": {"x": "float"},
    "total": {"x": "float", "z": "float"},
    "mixed": {"f": "float", "i": "integer", "s": "text", "b": "boolean"},
    "numbers": {name: "integer" for name in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")}
    | {"float32": "float", "float64": "float"},
}
NUMBERS = (
    *("0", "1", "-1", "-0", "-0.0", "127", "128", "-129", "255", "256", "65536", "2147483647", "2147483648"),
    *("-2147483649", "4294967295", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551615", "18446744073709551616", "1.0", "0.1", "1e3", "1E-3", "-2.5e+10", "1e39", "3.4028236e38"),
    *(
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "1e309",
        "1e-400",
        "5e-324",
        "0.30000000000000004",
        "9" * 309,
    ),
    *(
        "888.08e-302",
        "0." + "0" * 30 + "1234567890123456789",
        "1e-00000000000000000001",
        "-NaN",
        "NInf",
        "NaInf",
        "Inf.5",
    ),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "Inf",
        "00",
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "-",
        "0x1",
        "Infinit",
        "nan",
        "tru",
    ),
)
TEXTS = (
    *(
        '""',
        '"a"',
        '"é"',
        r'"\u00e9"',
        r'"\ud83d\ude00"',
        r'"\ud800"',
        r'"\udc00"',
        r'"\ud800\u0041"',
        r'"\u12"',
        r'"\x"',
    ),
    *(r'"\n\t\b\f\r\"\\\/"', r'"\u0000"', '"\x01"', '"\x00"', '"\x7f"', '"', '"a', '"\\', '"http://x: y"', r'"a\":b"'),
    *(r'"\\ud800\udc00"', '"' + "x" * 300 + '"', '"\n"'),
)
BASE64 = (
    *("", "YQ==", "YWI=", "YWJj", "YQ", "Y", "aGV.", "YQ=", "YQ=.", "YWJj=", "YWJj====", "YR==", "Y Q = =", "-_-_"),
    *("YQ==x", "=", r"YQ==\n", r"YW\u00a0I=", r"YWI\u000b", r"YQ\u0000==", "é", "YQ==YQ=="),
)
_BYTES = b'[]{}:,"\\ \n\x00\x01\xff\xc3\xef\xbb\xbf019.eE+-NIntfu'


class Bodies:
    """An endless sequence of bodies.

    Args:
        seed: The same seed gives the same bodies.
    """

    def __init__(self, seed: int):
        self._chance = random.Random(seed)

    def next(self) -> tuple[str, bytes]:
        """Returns the next method and a body for it."""
        is_predict = self._chance.random() < 0.8
        method = "predict" if is_predict else self._chance.choice(("classify", "regress"))
        body = (self._predict() if is_predict else self._examples(method)).encode("utf-8", "surrogatepass")
        kind = self._chance.random()
        if kind < 0.3:
            body = self._damaged(body)
        elif kind < 0.34:
            body = self._chance.choice((b"\xef\xbb\xbf", b"\xef", b"\xbf", b" \n\t", b"\x00")) + body
        elif kind < 0.35:
            body = self._chance.choice(NUMBERS + TEXTS).encode()
        return method, body

    def _rarely(self, share: float) -> bool:
        return self._chance.random() < share

    def _space(self) -> str:
        return self._chance.choice(("\n", "\t", "\r", "  ", "\x0b", "\x00")) if self._rarely(0.01) else ""

    def _joined(self, parts: Iterable[str]) -> str:
        return f"{self._space()},{self._space()}".join(parts)

    def _list(self, parts: Iterable[str]) -> str:
        return f"[{self._joined(parts)}{self._space()}]"

    def _object(self, members: list[tuple[str, str]]) -> str:
        members = list(members)
        if members and self._rarely(0.06):
            members.append(self._chance.choice(members))
        if members and self._rarely(0.04):
            members.pop(self._chance.randrange(len(members)))
        if self._rarely(0.03):
            members.append((self._chance.choice((r"x\u0000y", r"\u0078", "other")), self._scalar("float")))
        if self._rarely(0.1):
            self._chance.shuffle(members)
        texts = (f'"{name}"{self._space()}:{self._space()}{value}' for name, value in members)
        return f"{{{self._space()}{self._joined(texts)}}}"

    def _number(self) -> str:
        kind = self._chance.random()
        if kind < 0.3:
            return self._chance.choice(NUMBERS)
        if kind < 0.5:
            return repr(self._chance.uniform(-1000, 1000))
        if kind < 0.6:
            digits = "".join(self._chance.choices("0123456789", k=self._chance.randrange(1, 30)))
            return f"{digits[0]}.{digits}e{self._chance.randrange(-340, 320)}"
        return str(self._chance.randrange(-5, 300))

    def _base64(self) -> str:
        text = f'"{self._chance.choice(BASE64)}"'
        wrong = [f'{{"b64": {text}, "b64": {text}}}', f'{{"b64": {text}, "c": 1}}', '{"b64": 1}', "{}"]
        return self._chance.choice(wrong) if self._rarely(0.15) else f'{{"b64": {text}}}'

    def _text(self) -> str:
        if self._rarely(0.3):
            return self._base64()
        if self._rarely(0.5):
            return self._chance.choice(TEXTS)
        return json.dumps("".join(self._chance.choices('aé\n"\\😀/:,', k=3)), ensure_ascii=self._rarely(0.5))

    def _scalar(self, kind: str) -> str:
        if self._rarely(0.05):
            return self._chance.choice(("null", "true", "false", '{"q": 1.5}', '"a"', "2.5"))
        if kind == "text":
            return self._text()
        if kind == "boolean":
            return self._chance.choice(("true", "false"))
        usual = ("1", "2", "7") if kind == "integer" else ("1", "2.5", "-0.75", "0.1")
        return self._number() if self._rarely(0.3) else self._chance.choice(usual)

    def _tensor(self, kind: str, shape: list[int]) -> str:
        if not shape:
            return self._scalar(kind)
        size = self._chance.randrange(4) if self._rarely(0.03) else shape[0]
        return self._list([self._tensor(kind, shape[1:] if not self._rarely(0.02) else []) for _ in range(size)])

    def _shape(self) -> list[int]:
        return [self._chance.randrange(1, 4) for _ in range(self._chance.choice((0, 0, 1, 1, 2, 3)))]

    def _instances(self, inputs: dict[str, str]) -> str:
        named = len(inputs) > 1 or self._rarely(0.4)
        shapes = {name: self._shape() if self._rarely(0.5) else [] for name in inputs}
        rows = []
        for _ in range(self._chance.randrange(0 if self._rarely(0.1) else 1, 5)):
            if named != self._rarely(0.02):
                rows.append(self._object([(name, self._tensor(kind, shapes[name])) for name, kind in inputs.items()]))
            else:
                [(name, kind), *_] = inputs.items()
                rows.append(self._tensor(kind, shapes[name]))
        return self._list(rows)

    def _inputs(self, inputs: dict[str, str]) -> str:
        if len(inputs) > 1 or self._rarely(0.4):
            shape = [self._chance.randrange(0 if self._rarely(0.1) else 1, 4)]
            return self._object([(name, self._tensor(kind, shape)) for name, kind in inputs.items()])
        return self._tensor(*inputs.values(), self._shape() or [2])

    def _predict(self) -> str:
        name = self._chance.choice(tuple(SIGNATURES))
        members = [("signature_name", f'"{name}"' if not self._rarely(0.02) else self._scalar("text"))]
        rows, columns = ("instances", self._instances(SIGNATURES[name])), ("inputs", self._inputs(SIGNATURES[name]))
        members += self._chance.choices(([rows], [columns], [rows, columns], []), (48, 48, 2, 2))[0]
        if self._rarely(0.05):
            members.append(("other", self._chance.choice((self._number(), '{"a:b": {"c" :[1, {"d":2}]}}', "[]"))))
        return self._object(members)

    def _example(self) -> str:
        if self._rarely(0.02):
            return self._scalar("float")
        usual: dict[str, Callable[[], str]] = {
            "x": lambda: self._chance.choice(("1.5", "2e3", "3.5e38")),
            "n": lambda: self._chance.choice(("1", "-5", "true")),
            "s": lambda: '"q"' if self._rarely(0.7) else self._base64(),
        }
        members = []
        for name in self._chance.sample(tuple(usual), self._chance.randrange(4)):
            value = usual[name]() if not self._rarely(0.1) else self._scalar(self._chance.choice(("float", "text")))
            members.append((name, value if self._rarely(0.7) else self._list([value])))
        return self._object(members)

    def _examples(self, method: str) -> str:
        members = [("signature_name", f'"{method}"')]
        if self._rarely(0.2):
            members.append(("context", self._example()))
        if not self._rarely(0.03):
            count = self._chance.randrange(0 if self._rarely(0.1) else 1, 4)
            members.append(("examples", self._list([self._example() for _ in range(count)])))
        return self._object(members)

    def _damaged(self, body: bytes) -> bytes:
        damaged = bytearray(body)
        for _ in range(self._chance.choice((1, 1, 1, 2, 3))):
            at = self._chance.randrange(len(damaged) + 1)
            kind = self._chance.random()
            if kind < 0.4:
                del damaged[at : at + 1]
            elif kind < 0.8:
                damaged[at : at + (kind < 0.6)] = bytes([self._chance.choice(_BYTES)])
            elif kind < 0.9:
                del damaged[at:]
            else:
                damaged[at:at] = damaged[at // 2 : at // 2 + self._chance.randrange(12)]
        return bytes(damaged)
