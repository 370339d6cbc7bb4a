"""Two notations of delimited text that Arrow does not read: backslash escapes, and blanks around values.

A text is rewritten before Arrow parses it. An escaped character becomes a placeholder, which is replaced in the parsed
values. The placeholders are Unicode noncharacters, which texts should not contain.
"""

import functools
import re

import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError

_BACKSLASH, _QUOTE, _DELIMITER = ("\ufdd0".encode(), "\ufdd1".encode(), "\ufdd2".encode())
_NONCHARACTERS = b"\xef\xb7"  # the first bytes of all three
_NULL = b"\\N"
_SIGNS = {b"\\n": b"\n", b"\\t": b"\t", b"\\r": b"\r"}  # as MySQL, PostgreSQL and Hive write them in tab-separated text


class Notation:
    """How a delimited text writes its values.

    Args:
        delimiter: The delimiter of the values.
        quoted: Whether values may be quoted.
        escapes: Whether a backslash escapes the next character (`data.escape`).
        trims: Whether blanks around values are removed (`data.trim_spaces`).
    """

    def __init__(self, delimiter: bytes, quoted: bool, escapes: bool, trims: bool):
        self._delimiter, self._quoted, self._escapes, self._trims = delimiter, quoted, escapes, trims

    @property
    def null_values(self) -> list[str]:
        """The values that mean a missing one."""
        return ["", _NULL.decode()] if self._escapes else [""]

    def prepared(self, text: bytes) -> bytes:
        """Rewrites whole lines for Arrow. The number of lines is unchanged.

        Raises:
            InputError: the text contains a placeholder.
        """
        if self._escapes and b"\\" in text:
            if any(sign in text for sign in (_BACKSLASH, _QUOTE, _DELIMITER)):
                raise InputError("data.escape: the text has U+FDD0, U+FDD1 or U+FDD2, noncharacters; remove them")
            text = text.replace(b"\\\\", _BACKSLASH).replace(b"\\" + self._delimiter, _DELIMITER)
            text = text.replace(b'\\"', _QUOTE) if self._quoted else text
        return self._trimmed(text) if self._trims and b" " in text else text

    def _trimmed(self, text: bytes) -> bytes:
        blanks, quoted_value = _patterns(self._delimiter)
        if not self._quoted or b'"' not in text:
            return blanks.sub(rb"\1", text)
        lines = text.split(b"\n")
        return b"\n".join(
            quoted_value.sub(lambda match: match[1] + match[2], line) if b'"' in line else blanks.sub(rb"\1", line)
            for line in lines
        )

    def written(self, line: bytes) -> bytes:
        """Returns the original of a prepared line, without the blanks around values."""
        if not self._escapes or _NONCHARACTERS not in line:
            return line
        line = line.replace(_BACKSLASH, b"\\\\").replace(_QUOTE, b'\\"')
        return line.replace(_DELIMITER, b"\\" + self._delimiter)

    def value(self, parsed: bytes) -> bytes:
        """Returns the value of one parsed field."""
        return self.values(pa.array([parsed], pa.binary()))[0].as_py() or b""

    def values(self, parsed: pa.Array) -> pa.Array:
        """Returns the values of parsed binary fields."""
        if not self._escapes or not len(parsed):
            return parsed
        _, _, contents = parsed.buffers()
        held = contents.to_pybytes() if contents is not None else b""
        if not self._quoted and b"\\" in held:
            for written, sign in _SIGNS.items():
                parsed = pc.replace_substring(parsed, written, sign)
        if _NONCHARACTERS not in held:
            return parsed
        for placeholder, sign in ((_DELIMITER, self._delimiter), (_QUOTE, b'"'), (_BACKSLASH, b"\\")):
            parsed = pc.replace_substring(parsed, placeholder, sign)
        return parsed


@functools.cache
def _patterns(delimiter: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Returns two patterns for trimming a text.

    The first pattern matches blanks next to a delimiter or at an end of a line; its group is kept. The second pattern,
    for lines with quotes, matches a value and the text before it; its groups are the delimiter and the value.
    """
    d = re.escape(delimiter)
    blanks = re.compile(rb"(?m: *(%b) *|^ +()| +()(?=\r?$))" % d)
    quoted = re.compile(rb'(^|%b) *("(?:[^"]|"")*"|(?:(?! *(?:%b|\r?$)).)*)(?: +(?=%b|\r?$))?' % (d, d, d), re.DOTALL)
    return blanks, quoted
