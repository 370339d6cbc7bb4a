"""Detects the type of a file from its first bytes instead of its name: compressed, text, Parquet or another type."""

import codecs
import dataclasses
import re

from ctrpipe.common.errors import InputError

HEAD_BYTES = 1 << 12
ONE_BYTE_ENCODING = "cp1252"  # the most frequent one that is not UTF-8
BYTE_ORDER_MARK = codecs.BOM_UTF8
PARQUET_MARK, ORC_MARK, AVRO_MARK = b"PAR1", b"ORC", b"Obj\x01"
_BINARY = {PARQUET_MARK: "Parquet", ORC_MARK: "ORC", AVRO_MARK: "Avro"}

_GZIP, _BZ2, _ZSTD = "gzip", "bz2", "zstd"
_ZSTD_FRAME, _ZSTD_SKIPPABLE = b"\x28\xb5\x2f\xfd", re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
_BZ2_START = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")

# Control bytes that texts have: white space, separators of Hive (1 to 3) and of ASCII (28 to 31), and escape.
_USUAL_CONTROLS = frozenset(b"\x01\x02\x03\t\n\v\f\r\x1b\x1c\x1d\x1e\x1f")
_UNUSUAL = bytes(sorted({*range(32), 127} - _USUAL_CONTROLS))
_BINARY_SHARE = 0.02  # of unusual control bytes, above which a file is binary; compressed bytes have .08 of them
_ENOUGH = 8  # bytes beyond ASCII that are UTF-8 by no accident
_BEGINNING = 64  # bytes; each ORC file has at least eight unusual ones
_FEW_RETURNS = 2  # carriage returns that a single row may have in its values
_FEW = 4  # unusual control bytes that even a short text may have

_CONVERT = "write it as CSV, JSON lines or Parquet"
ENCODING_HINT = f" (data.encoding names another encoding, such as {ONE_BYTE_ENCODING})"
_UNPACK = "unpack it, and name the files in it"
_DECOMPRESS = "decompress it, or compress it with gzip, bz2 or zstd"
_DOWNLOAD = "fetch the file itself"


@dataclasses.dataclass(frozen=True)
class Unread:
    """An unsupported type of file: its name with an article, and what to do."""

    name: str
    advice: str


# By the bytes at the beginning of a file.
_UNREAD: dict[bytes, Unread] = {
    b"PK\x03\x04": Unread("a zip archive", _UNPACK),
    b"PK\x05\x06": Unread("an empty zip archive", _UNPACK),
    b"\xfd7zXZ\0": Unread("an xz file", _DECOMPRESS + ", as in: xz -d FILE"),
    b"7z\xbc\xaf\x27\x1c": Unread("a 7z archive", _UNPACK),
    b"Rar!\x1a\x07": Unread("a RAR archive", _UNPACK),
    b"\x04\x22\x4d\x18": Unread("an lz4 file", _DECOMPRESS + ", as in: lz4 -d FILE"),
    b"\xff\x06\0\0sNaPpY": Unread("a snappy file", _DECOMPRESS),
    b"\x89LZO\0\r\n\x1a\n": Unread("an lzop file", _DECOMPRESS),
    b"LZIP": Unread("an lzip file", _DECOMPRESS),
    b"\x1f\x9d": Unread("a file of Unix compress (.Z)", _DECOMPRESS),
    b"ARROW1\0\0": Unread("an Arrow IPC (Feather) file", _CONVERT + ", as in: pyarrow.parquet.write_table"),
    b"FEA1": Unread("a Feather file", _CONVERT),
    b"PARE": Unread("an encrypted Parquet file", "write it without encryption"),
    b"SEQ\x06": Unread("a Hadoop sequence file", _CONVERT),
    b"RCF\x01": Unread("an RCFile of Hive", _CONVERT),
    b"SQLite format 3\0": Unread("an SQLite database", "export its table, as in: sqlite3 -csv FILE 'select ...'"),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": Unread("an Excel (.xls) or other file of old Microsoft Office", _CONVERT),
    b"\x89HDF\r\n\x1a\n": Unread("an HDF5 file", _CONVERT),
    b"\x93NUMPY": Unread("a NumPy array", _CONVERT),
    b"%PDF-": Unread("a PDF document", _CONVERT),
    b"{\\rtf": Unread("an RTF document", _CONVERT),
    b"\x89PNG\r\n\x1a\n": Unread("a PNG image", "name the log's own files"),
    b"\xff\xd8\xff": Unread("a JPEG image", "name the log's own files"),
    b"GIF8": Unread("a GIF image", "name the log's own files"),
    b"\x7fELF": Unread("a program", "name the log's own files"),
    b"RDX2\n": Unread("a file of R (.RData)", _CONVERT),
    b"RDX3\n": Unread("a file of R (.RData)", _CONVERT),
    b"$FL2": Unread("an SPSS file", _CONVERT),
    b"<stata_dta>": Unread("a Stata file", _CONVERT),
    b"version https://git-lfs.github.com/spec/": Unread("a pointer of Git LFS", _DOWNLOAD + ", as in: git lfs pull"),
}
_MAY_BE_TEXT = (b"FEA1", b"PARE", b"LZIP", b"GIF8", b"$FL2")  # a text may begin so: then it is no binary file
_PICKLE = re.compile(rb"\x80[\x02-\x05][^\n]")
_SPREADSHEET = re.compile(rb"\[Content_Types\]\.xml|_rels/|xl/|mimetypeapplication/vnd\.")
_MARKUP = re.compile(rb"\s*<(!doctype\s+html|html[\s>]|head[\s>]|\?xml\s)", re.IGNORECASE)
_NO_ROW = re.compile(rb"#|//|sep=.{1,2}$", re.IGNORECASE)
_JSON_ARRAY = re.compile(rb"\s*\[\s*(\{\s*[\"}]|$)")
_JSON_OBJECT = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:')
_JSON_OVER_LINES = re.compile(rb"\s*\{[ \t]*\r?\n")


def compression_of(head: bytes) -> str | None:
    """Returns the name of the supported compression that a file's first bytes show; None for no compression."""
    if head.startswith(b"\x1f\x8b"):
        return _GZIP
    if _BZ2_START.match(head):
        return _BZ2
    if head.startswith(_ZSTD_FRAME) or _ZSTD_SKIPPABLE.match(head):
        return _ZSTD
    return None


def binary_format(head: bytes) -> str | None:
    """Returns the columnar format that a file's first bytes show: Parquet, ORC or Avro; None for others.

    A file that begins with "ORC" may also be text.
    """
    magic = next((mark for mark in _BINARY if head.startswith(mark)), None)
    return None if magic is None or (magic == ORC_MARK and not is_binary(head[:_BEGINNING])) else _BINARY[magic]


def unread_kind(head: bytes) -> Unread | None:
    """Returns the unsupported type of a file; None for a supported one.

    Args:
        head: The first HEAD_BYTES of the file or of its decompressed contents.
    """
    for mark, kind in _UNREAD.items():
        if head.startswith(mark) and (mark not in _MAY_BE_TEXT or is_binary(head)):
            if mark == b"PK\x03\x04" and _SPREADSHEET.search(head):
                return Unread("an Excel workbook or another office document", "save its sheet as CSV")
            return kind
    if head[8:12] == b"DUCK" and b"\0" in head:
        return Unread("a DuckDB database", "export its table, as in: copy (select ...) to 'log.parquet'")
    if head[257:262] == b"ustar":
        return Unread("a tar archive", _UNPACK)
    if _PICKLE.match(head):
        return Unread("a pickle of Python", _CONVERT)
    if match := _MARKUP.match(head.removeprefix(BYTE_ORDER_MARK)):
        name = "an XML document" if b"?xml" in match[1] else "an HTML page"
        return Unread(name, "was it downloaded from behind a login? " + _CONVERT)
    return None


def is_binary(head: bytes) -> bool:
    """Returns whether bytes are not text in any encoding that extends ASCII."""
    unusual = len(head) - len(head.translate(None, _UNUSUAL))
    return unusual > max(_FEW, _BINARY_SHARE * len(head))


def is_json_array(head: bytes) -> bool:
    """Returns whether a text begins as a JSON array of objects, or as an array over several lines."""
    return bool(_JSON_ARRAY.match(head.removeprefix(BYTE_ORDER_MARK)))


def is_json_over_lines(head: bytes) -> bool:
    """Returns whether a text begins as a JSON object that is written over several lines."""
    return bool(_JSON_OVER_LINES.match(head.removeprefix(BYTE_ORDER_MARK)))


def is_json_lines(head: bytes) -> bool:
    """Returns whether a text's first line begins as a JSON object."""
    return bool(_JSON_OBJECT.match(head.removeprefix(BYTE_ORDER_MARK)))


def is_no_row(line: bytes) -> bool:
    """Returns whether a text's first line is a comment, or Excel's delimiter line (`sep=;`)."""
    return bool(_NO_ROW.match(line))


def json_document(path: str) -> InputError:
    """Returns the error for a file of multi-line JSON objects that are not in an array."""
    return InputError(
        f"{path}: a JSON object over several lines, which is not supported; write one object per line (data.format: "
        "jsonl) or an array of objects (data.format: json), as in: jq -c . FILE"
    )


# Encodings -----------------------------------------------------------------------------------------------------------


def codec_of(encoding: str) -> str:
    """Returns Python's name of a text encoding.

    Raises:
        LookupError: there is no such encoding, or it is not a text encoding.
    """
    codec = codecs.lookup(encoding)
    "a".encode(encoding)  # refuses codecs such as base64
    return codec.name


def is_utf8_codec(encoding: str) -> bool:
    """Returns whether an encoding is UTF-8, with or without a byte order mark, or ASCII, which need no decoding."""
    return codec_of(encoding) in ("utf-8", "utf-8-sig", "ascii")


def wide_encoding(head: bytes) -> str | None:
    """Returns the encoding with two or four bytes per character that a text's first bytes show; None for others.

    Without a byte order mark, the zero bytes of ASCII characters determine the encoding.
    """
    for mark, name in ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32")):
        if head.startswith(mark):
            return name
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even = head[: len(head) // 2 * 2]
    first, second = even[::2], even[1::2]
    if len(first) < 2:
        return None
    zeros_first, zeros_second = first.count(0) / len(first), second.count(0) / len(second)
    if zeros_second > 0.4 and zeros_first < 0.1:
        return "utf-16-le"
    if zeros_first > 0.4 and zeros_second < 0.1:
        return "utf-16-be"
    return None


def usual_encoding(head: bytes) -> str | None:
    """Returns the likely encoding of a text, by its first bytes; None for UTF-8 and for bytes that are not text."""
    wide = wide_encoding(head)
    if wide or _is_utf8_beginning(head):
        return wide
    return None if is_binary(head) else ONE_BYTE_ENCODING


def decoding_of(head: bytes, encoding: str) -> str:
    """Returns Python's name of a text's encoding. A byte order mark selects the variant of UTF-16 or UTF-32.

    Args:
        head: The first bytes of the text.
        encoding: `data.encoding`.
    """
    codec, wide = codec_of(encoding), wide_encoding(head)
    if wide and codec[:6] == wide[:6] and (codec in ("utf-16", "utf-32") or wide in ("utf-16", "utf-32")):
        return wide
    return codec


def check_encoding(path: str, head: bytes, encoding: str) -> None:
    """Checks that a text can have the configured encoding.

    Args:
        path: The file, for the message.
        head: The first HEAD_BYTES of the text, decompressed.
        encoding: `data.encoding`.

    Raises:
        InputError: the text looks like another encoding.
    """
    wide, codec = wide_encoding(head), codec_of(encoding)
    if codec.startswith(("utf-16", "utf-32")):
        likely = None if wide and wide[:6] == codec[:6] else usual_encoding(head) or "utf-8"
    elif wide:
        likely = wide
    else:
        beyond_ascii = sum(byte > 127 for byte in head)
        looks_utf8 = head.startswith(BYTE_ORDER_MARK) or (beyond_ascii >= _ENOUGH and _is_utf8_beginning(head))
        likely = "utf-8" if looks_utf8 and not is_utf8_codec(encoding) else None
    if likely:
        raise InputError(
            f"{path}: looks like {likely.upper()}, but data.encoding is {encoding}; write data.encoding: {likely}, "
            "or convert the file"
        )


def _is_utf8_beginning(head: bytes) -> bool:
    """Returns whether bytes are valid UTF-8; the last character may be incomplete."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def _check_is_read(path: str, head: bytes) -> None:
    if kind := unread_kind(head):
        raise InputError(f"{path}: {kind.name}, which is not supported; {kind.advice}")


def check_text(path: str, head: bytes, encoding: str) -> None:
    """Checks that a file is readable text.

    Args:
        path: The file, for the message.
        head: Its first HEAD_BYTES, decompressed.
        encoding: `data.encoding`.

    Raises:
        InputError: the file is of another type, compressed twice, in another encoding, or without line feeds.
    """
    if name := binary_format(head):  # only if it was compressed: a plain one is read
        raise InputError(
            f"{path}: a compressed {name} file, which is not supported; decompress it, as {name} is compact"
        )
    if again := compression_of(head):
        raise InputError(f"{path}: compressed twice, the second time with {again}; decompress it once")
    _check_is_read(path, head)
    check_encoding(path, head, encoding)
    if head.count(b"\r") > _FEW_RETURNS and b"\n" not in head:
        raise InputError(
            f"{path}: its lines end in carriage returns only, as on old Macs; write line feeds, as in: "
            "tr '\\r' '\\n' < FILE"
        )
    if is_binary(head) and not codec_of(encoding).startswith(("utf-16", "utf-32")):
        raise _nul_bytes(path, head) or InputError(
            f"{path}: an unknown binary file; name files of CSV, TSV, JSON, Parquet, ORC or Avro"
        )


def _nul_bytes(path: str, head: bytes) -> InputError | None:
    """Returns the error for a text with NUL bytes in it; None for bytes that are no text without these either."""
    without = head.replace(b"\0", b"")
    if not without or is_binary(without) or not _is_utf8_beginning(without):
        return None
    line = 1 + head[: head.index(b"\0")].count(b"\n")
    return InputError(
        f"{path}: line {line}: a NUL byte, and more follow, so that the file looks binary; correct the program that "
        "writes them, or remove them, as in: tr -d '\\000' < FILE"
    )


def check_binary(path: str, head: bytes, name: str) -> None:
    """Checks that a file has a columnar format. An empty file passes; its reader reports the error.

    Args:
        path: The file, for the message.
        head: Its first HEAD_BYTES, as they are stored.
        name: The format.

    Raises:
        InputError: the file is of another type.
    """
    if binary_format(head) == name or not head:
        return
    _check_is_read(path, head)
    form = name.lower()
    if compression := compression_of(head):
        raise InputError(
            f"{path}: a {compression} file, but data.format is {form}; decompress {name}, or write a text's format"
        )
    if wide_encoding(head) or not is_binary(head):
        form_of_text = "json" if is_json_array(head) else "jsonl" if is_json_lines(head) else "csv or tsv"
        raise InputError(f"{path}: a text, but data.format is {form}; write data.format: {form_of_text}")
    raise InputError(f"{path}: not {name}, but an unknown binary file; name files of the log")
