"""Values as the log of a model writes them, for rows of another format.

A CSV that pandas wrote has True and False, one of Spark true and false; Parquet and JSON have booleans, which are 1 and
0 here. The CSV's text 02139 is a number in a DataFrame, in Parquet and in JSON, and becomes 2139. Without this module,
the same row in another format would have values that the model does not know.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.column_types import WRITTEN_OTHERWISE, differs, number_text
from ctrpipe.transforms.log.spec import LogSpec

_DIGITS = (b"1", b"0")
_WRITINGS = (_DIGITS, (b"True", b"False"), (b"true", b"false"), (b"TRUE", b"FALSE"))
_WORDS = frozenset(word for words in _WRITINGS for word in words)

_OF_TEXT = ("tsv", "csv")  # the formats in which booleans are words

Texts = Sequence[bytes]


@dataclasses.dataclass(frozen=True)
class _Column:
    """What a column of the log has.

    Attributes:
        writings: The ways in which it writes booleans. The digits are one only without any other value.
        codes: By the text of a number, a text such as 02139, which means the same number and is another category.
            Numbers that the log has too are left out.
        known: Whether these are all values that the model knows; otherwise they are examples.
    """

    writings: Sequence[tuple[bytes, bytes]]
    codes: Mapping[bytes, bytes]
    known: bool

    @classmethod
    def of(cls, values: pa.Array, known: bool) -> "_Column":
        """Returns the summary of values of the log, binary."""
        words = set(values.filter(pc.is_in(values, value_set=pa.array(sorted(_WORDS), pa.binary()))).to_pylist())
        writings = [writing for writing in _WRITINGS if words.intersection(writing)]
        if writings == [_DIGITS] and len(words) < len(pc.unique(values)):
            writings = []
        found = values.filter(pc.match_substring_regex(values, WRITTEN_OTHERWISE))
        texts = filter(differs, map(bytes.decode, found.to_pylist()))
        codes = {number_text(text).encode(): text.encode() for text in texts}
        if codes:
            numbers = pa.array(list(codes), pa.binary())
            for number in numbers.filter(pc.is_in(numbers, value_set=values)).to_pylist():
                del codes[number]
        return cls(writings, codes, known)

    def code(self, texts: Collection[bytes]) -> bytes | None:
        """Returns the log's text for one of some numbers, given by their texts; None if each is another category."""
        if not self.known and texts:
            return next(iter(self.codes.values()), None)
        return next((self.codes[text] for text in texts if text in self.codes), None)

    @functools.cached_property
    def changes(self) -> Mapping[bytes, bytes]:
        """The log's own word for each other one; none if the log has booleans in several ways, or not at all."""
        if len(self.writings) != 1:
            return {}
        [own] = self.writings
        return {word: of_log for words in _WRITINGS if words != own for word, of_log in zip(words, own, strict=True)}


class OwnValues:
    """Writes values as the log of a model does, or refuses them: booleans, and numbers where the log has codes.

    Args:
        spec: The description of the model's log.
        rows: A few rows of the log, by column: bytes, or numbers for a column of numbers.
        vocabulary: Returns all values of a column that the model knows, binary; None if they are not listed.
        has_log: Whether these are the model's. If not, as with a model behind a URL, booleans are refused where its log
            is text, because its words for them are not known.

    Attributes:
        truths: The columns with booleans in these rows. Their texts may be of other words too.
    """

    def __init__(
        self,
        spec: LogSpec,
        rows: Mapping[str, Iterable[bytes | float]],
        vocabulary: Callable[[str], pa.Array | None] = lambda column: None,
        has_log: bool = True,
    ) -> None:
        of_text = spec.text.columns if spec.text else []
        self._columns = frozenset(spec.compared_columns) - {*of_text}
        self._separators = {
            name: [each for each in (spec.separators.get(name), spec.inner_separators.get(name)) if each]
            for name in self._columns
        }
        self._owners = spec.vocabulary_owners
        self._has_words = has_log or spec.data.format not in _OF_TEXT
        self._rows = rows
        self._vocabulary = vocabulary
        self._summaries: dict[str, _Column] = {}
        self.truths = frozenset(name for name in self._columns if _Column.of(self._seen(name), known=False).writings)

    def of_rows(
        self, rows: pa.RecordBatch, path: str, numbers: Collection[str] = (), truths: Collection[str] = ()
    ) -> pa.RecordBatch:
        """Returns rows of a file as the log writes them; `rows` itself if there is nothing to change.

        Args:
            rows: The columns from the log's reader.
            path: The file.
            numbers, truths: The columns that have numbers, and booleans, in the file.

        Raises:
            InputError: see `of_array`.
        """
        for name in rows.schema.names:
            given = (name in numbers, name in truths)
            values = self.of_array(name, rows[name], f"{path}: column {name}", *given)
            if values is not rows[name]:
                rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        return rows

    def of_array(
        self, column: str, values: pa.Array, place: str, numbers: bool = False, truths: bool = False
    ) -> pa.Array:
        """Returns the values of a column as the log writes them; `values` itself if there is nothing to change.

        Args:
            column: The column.
            values: Its values as texts, binary.
            place: The place of the column, for the error message.
            numbers, truths: Whether some of the texts were numbers, and booleans, before.

        Raises:
            InputError: the log writes booleans in several ways, or has a number's text as in 02139.
        """
        if not self._concerns(column, numbers, truths):
            return values
        coded = values.dictionary_encode()
        texts = coded.dictionary.to_pylist()
        own = self.of_texts(column, texts, place, numbers, truths)
        return values if own is texts else pa.array(own, pa.binary()).take(coded.indices)

    def of_texts(self, column: str, texts: Texts, place: str, numbers: bool = False, truths: bool = False) -> Texts:
        """Does what `of_array` does for a list of texts."""
        if not self._concerns(column, numbers, truths):
            return texts
        summary, separators = self._summary(column), self._separators[column]
        elements = {element for text in texts for element in _elements(text, separators)}
        if truths and not self._has_words:
            raise InputError(
                f"{place}: booleans, and only the files of the model say how its log writes them; give the model's "
                "folder, or texts such as 'True' or '1'"
            )
        if truths and len(summary.writings) > 1:
            one, other = (writing[0].decode() for writing in summary.writings[:2])
            raise InputError(
                f"{place}: booleans, and the model's log writes them in several ways, as '{one}' and '{other}'; give "
                "its texts"
            )
        if numbers and (code := summary.code(elements - _WORDS if truths else elements)):
            raise InputError(
                f"{place}: numbers, and the model's log has texts such as '{excerpt(code)}', which are other "
                "categories than their numbers; give its texts, as by dtype=str in pandas.read_csv"
            )
        changes = summary.changes
        if changes.keys().isdisjoint(elements):
            return texts
        return [_changed(text, changes, separators) for text in texts]

    def _concerns(self, column: str, numbers: bool, truths: bool) -> bool:
        return column in self.truths or (column in self._columns and (numbers or truths))

    def _summary(self, column: str) -> _Column:
        if column not in self._summaries:
            known = self._vocabulary(self._owners.get(column, column))
            values = self._seen(column) if known is None else known
            self._summaries[column] = _Column.of(values, known is not None)
        return self._summaries[column]

    def _seen(self, column: str) -> pa.Array:
        """Returns the values, or elements of lists, of the few rows, binary."""
        texts = (text for text in self._rows.get(column, ()) if isinstance(text, bytes))
        elements = {element for text in texts for element in _elements(text, self._separators[column])}
        return pa.array(sorted(elements), pa.binary())


def _elements(text: bytes, separators: Sequence[str]) -> Iterable[bytes]:
    """Yields a value, or the elements of a list; none for a missing one."""
    if not separators:
        return (text,) if text else ()
    return (each for part in text.split(separators[0].encode()) for each in _elements(part, separators[1:]))


def _changed(text: bytes, changes: Mapping[bytes, bytes], separators: Sequence[str]) -> bytes:
    if not separators:
        return changes.get(text, text)
    between = separators[0].encode()
    return between.join(_changed(part, changes, separators[1:]) for part in text.split(between))
