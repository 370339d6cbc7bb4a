"""Ingests raw log files: writes the splits of the Parquet payload and a dead-letter file, and counts rows."""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import make_unique_folder
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.batches import LogBatch, Reject
from ctrpipe.transforms.log.column_types import Mixture
from ctrpipe.transforms.log.division import Division, find_division, order_bounds, span_of
from ctrpipe.transforms.log.files import FileState, NumberedRange, Range, check_states, check_still, numbered
from ctrpipe.transforms.log.group_sample import GroupSample
from ctrpipe.transforms.log.ordering import Value
from ctrpipe.transforms.log.payload import (
    PayloadWriter,
    payload_files,
    payload_rows,
    payload_schema,
    read_payload,
    read_rows,
)
from ctrpipe.transforms.log.readers import BYTES_PER_SECOND, LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS, Split
from ctrpipe.transforms.log.values import explained
from ctrpipe.transforms.log.vectors import as_lists, is_vector

DEAD_LETTERS = "rejects.jsonl"
DEAD_LETTERS_KEPT = 100_000
EARLY_STOP_FACTOR = 2.0  # reading stops early above this multiple of data.max_bad_row_rate
SCRATCH = ".unfinished"
FEWEST_TO_JUDGE = 10  # rows of a class of a split: with fewer the standard error of an AUC is a tenth
COPY_SECONDS = 2.5e-6  # time to copy a row in one process, measured on Criteo's 39 columns
_UNSPLIT = "log"
_LEAST_OTHERS = 2.0**-20  # of the largest weight, that all others together are: less is lost in sums of 32 bits
_SMALLEST_WEIGHT, _LARGEST_WEIGHT = 1e-30, 1e30  # on average; a batch of them, squared errors too, has 32 bits
_SHOWN_VALUE = re.compile(r" '.*' ", re.DOTALL)


@dataclasses.dataclass
class IngestResult:
    """Counts of an ingestion.

    Attributes:
        rows, positives: Rows, and rows with the primary label 1, by split.
        rates: Number of rows whose label is a rate between 0 and 1, by label column.
        rejected: Number of malformed rows.
        reasons: Number of malformed rows by reason.
        spans: First and last file of each split (`by: order` and `by: files`), or its first and last time (`by: time`).
        of_column: What is strange about the values of the split's column (`by: group` and `by: time`).
        groups: Number of groups (`by: group`), of a sample where there are thousands.
    """

    rows: dict[str, int]
    positives: dict[str, int]
    rates: dict[str, int]
    rejected: int
    reasons: dict[str, int]
    spans: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    of_column: list[str] = dataclasses.field(default_factory=list)
    groups: int = 0

    def to_json(self) -> str:
        """Returns the counts as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1)


def described_splits(split: Split, result: IngestResult) -> Iterator[str]:
    """Yields a line for each split: its rows, and its first and last file or time."""
    for name, rows in result.rows.items():
        ends = " to ".join(dict.fromkeys(result.spans.get(name, [])))
        yield f"Split by {split.by}: {name} {rows:,} rows{f', {ends}' if ends else ''}"


def few_of_a_class(label: str, result: IngestResult) -> Iterator[str]:
    """Yields a warning for each validation or test split with too few rows of one class for meaningful metrics.

    Args:
        label: The primary label's column.
        result: The counts of the splits.
    """
    for name in ("validation", "test"):
        rows, clicks = result.rows[name], result.positives[name]
        value, rarer = (1, clicks) if 2 * clicks <= rows else (0, rows - clicks)
        if 0 < rarer < FEWEST_TO_JUDGE:
            yield (
                f"{label} is {value} in {rarer} of {rows:,} {name} rows alone: an AUC of so few is mostly chance; give "
                "more data or a larger share"
            )


def ingest(
    spec: LogSpec,
    files: list[str],
    seed: int,
    split_folders: Mapping[str, pathlib.Path],
    dead_letter: pathlib.Path,
    workers: Workers,
    progress: Callable[[str], None] = lambda text: None,
    states: Mapping[str, FileState] | None = None,
) -> IngestResult:
    """Reads a log in independent ranges, each row once. The result does not depend on the workers.

    Args:
        spec: The description of the log.
        files: The files of the log, in order.
        seed: Seed of `split.by: hash` and `by: group`.
        split_folders: An existing folder for each name of SPLITS, on one file system, for the payload's parts. Parts of
            an earlier ingestion are removed.
        dead_letter: Folder for `rejects.jsonl`, one object per malformed row: file, line (from 1), reason, text.
        workers: Run the work; all of them must have access to the files and folders.
        progress: Called with a line about the number of ranges read.
        states: The files' earlier states by path, which they must still have.

    Raises:
        InputError: a file cannot be read or has changed, too many rows are malformed, a split is empty or has
            labels of one class only, a feature is missing in all training rows, or the split column's values cannot be
            compared.
    """
    scratch = split_folders["train"].parent / SCRATCH
    _clear(scratch, split_folders)
    scratch.mkdir()
    try:
        ranges = plan(files, spec, workers=workers)
        check_states(ranges, states or {})
        seconds = sum(part.size for part in ranges) / BYTES_PER_SECOND
        division = find_division(spec, files, ranges, seed, lambda work, parts: workers.map(work, parts, seconds))
        results = workers.map(
            _IngestRange(spec, division, scratch),
            numbered(ranges, files),
            seconds,
            progress=lambda done: progress(f"{done:,} of {len(ranges):,} parts of the log read"),
            judge=lambda read: _stop_early(spec, ranges, read, dead_letter),
        )
        check_still(files)
        rejected, reasons = _write_dead_letters(spec, ranges, results, dead_letter)
        _check_mixture(results)
        pieces = _move_to_splits(spec, results, split_folders)
        seconds = COPY_SECONDS * sum(piece.stop - piece.first for piece in pieces)
        here = Workers(processes=1) if workers.beam_args else workers  # a Beam job takes longer
        here.map(_CopyPiece(spec), pieces, seconds)
        result = _count(spec, split_folders, rejected, reasons)
        spans = _key_spans(results)
        result.spans = _spans(division, ranges, spans, split_folders)
        groups = _merged_groups(results)
        result.groups = len(groups.rows)
        result.of_column = [*groups.findings(), *division.far_apart(spans)]
        lines = sum(each.lines for each in results)
        if sum(result.rows.values()) + rejected != lines:
            raise RuntimeError(f"{result.rows} rows and {rejected} malformed ones of {lines} lines")
        labelled = {name: _count_values(spec.label_columns, folder) for name, folder in split_folders.items()}
        _check_splits(result, labelled, _count_values(spec.feature_columns, split_folders["train"]), division)
        if result.rates and spec.data.negative_sampling < 1:
            raise InputError(
                f"data.negative_sampling: the labels of {', '.join(result.rates)} are rates, and a row with a rate is "
                "no negative; remove negative_sampling"
            )
        if spec.data.weight:
            _check_weights(spec, split_folders)
    except BaseException:
        _clear(scratch, split_folders)
        raise
    shutil.rmtree(scratch)
    return result


def _clear(scratch: pathlib.Path, split_folders: Mapping[str, pathlib.Path]) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in split_folders.values():
        for path in folder.glob("*.parquet*"):  # unfinished files too
            path.unlink()


# One range -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class IngestedRange:
    """The result of reading a range: counts, dead letters, and parts of the payload.

    Attributes:
        lines: Number of lines, malformed ones included.
        rejected: Number of malformed lines.
        reasons: Number of malformed lines by reason.
        first: The first malformed line.
        dead_letters: The dead-letter file of the range.
        parts: The parts of the payload by split, or under one key if the splits are not known yet (`split.by: order`).
        spans: The first and last time of each split's rows (`by: time`).
        mixture: The numbers and texts in columns of categories, for a format without column types.
        groups: A sample of the rows' groups (`by: group`).
    """

    lines: int
    rejected: int
    reasons: Counter[str]
    first: Reject | None
    dead_letters: pathlib.Path
    parts: dict[str, list[pathlib.Path]]
    spans: dict[str, tuple[Value, Value]]
    mixture: Mixture
    groups: GroupSample


@dataclasses.dataclass(frozen=True)
class _IngestRange:
    """Reads a range and writes it to a new folder in the scratch folder, because a Beam runner may repeat the work."""

    spec: LogSpec
    division: Division
    scratch: pathlib.Path

    def __call__(self, item: NumberedRange) -> IngestedRange:
        folder = make_unique_folder(self.scratch / f"{item.number:06d}")
        schema = payload_schema(self.spec)
        lines = rejected = 0
        reasons: Counter[str] = Counter()
        first: Reject | None = None
        spans: dict[str, tuple[Value, Value]] = {}
        groups = GroupSample()
        with contextlib.ExitStack() as stack:
            dead_letters = stack.enter_context(open(folder / DEAD_LETTERS, "w"))
            writers: dict[str, PayloadWriter] = {}
            for name in [_UNSPLIT] if self.division.is_by_order else SPLITS:
                (folder / name).mkdir()
                writers[name] = stack.enter_context(PayloadWriter(folder / name, f"{item.number:06d}", schema))
            reader = LogReader(self.spec, ordering=self.division.ordering)
            for batch in reader.read_range(item.part):
                for name, rows in _by_split(self.division, batch, item.file, spans):
                    writers[name].write(rows)
                if self.division.split.by == "group":
                    assert isinstance(batch.keys, pa.Array)
                    groups.add(batch.keys)
                first = first or next(iter(batch.rejects), None)
                reasons.update(kind_of_reject(reject) for reject in batch.rejects)
                dead_letters.writelines(
                    dead_letter(batch.path, r) for r in batch.rejects[: DEAD_LETTERS_KEPT - rejected]
                )
                rejected += len(batch.rejects)
                lines += len(batch.lines) + len(batch.rejects)
        parts = {name: writer.parts for name, writer in writers.items()}
        letters = folder / DEAD_LETTERS
        return IngestedRange(lines, rejected, reasons, first, letters, parts, spans, reader.mixture(), groups)


def kind_of_reject(reject: Reject) -> str:
    """Returns the reason without the value it quotes."""
    return _SHOWN_VALUE.sub(" ", reject.reason).split(", found")[0]


def dead_letter(path: str, reject: Reject) -> str:
    """Returns the line of `dead_letter/rejects.jsonl` for a malformed row."""
    fields = {"file": path, "line": reject.line, "reason": reject.reason, "text": reject.text}
    return json.dumps(fields) + "\n"


def _by_split(
    division: Division, batch: LogBatch, file: int, spans: dict[str, tuple[Value, Value]]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the rows of each split, and adds their times to `spans`."""
    if division.is_by_order:
        yield _UNSPLIT, batch.rows
        return
    indices = division.indices(batch, file)
    for index, name in enumerate(SPLITS):
        chosen = pa.array(indices == index)
        if division.ordering is not None and pc.any(chosen).as_py():
            span = span_of(pa.array(batch.keys).filter(chosen))
            spans[name] = _wider(spans.get(name, span), span)
        yield name, batch.rows.filter(chosen)


def _wider(one: tuple[Value, Value], other: tuple[Value, Value]) -> tuple[Value, Value]:
    return min(one[0], other[0]), max(one[1], other[1])


# The whole log -------------------------------------------------------------------------------------------------------


def _write_dead_letters(
    spec: LogSpec, ranges: Sequence[Range], results: Sequence[IngestedRange], dead_letter: pathlib.Path
) -> tuple[int, dict[str, int]]:
    """Writes the dead letters of the ranges read so far. Returns the number of malformed rows, in total and by reason.

    Raises:
        InputError: the share of malformed rows is above data.max_bad_row_rate.
    """
    dead_letter.mkdir(parents=True, exist_ok=True)
    with open(dead_letter / DEAD_LETTERS, "w") as dead_letters:
        kept = itertools.chain.from_iterable(_lines(result.dead_letters) for result in results if result.rejected)
        dead_letters.writelines(itertools.islice(kept, DEAD_LETTERS_KEPT))
    rejected, lines = sum(result.rejected for result in results), sum(result.lines for result in results)
    reasons = sum((result.reasons for result in results), Counter[str]())
    max_rate = spec.data.max_bad_row_rate
    if rejected > max_rate * lines:
        part, reject = next((part, p.first) for part, p in zip(ranges, results, strict=False) if p.first)
        rows = f"{lines}" if len(results) == len(ranges) else f"the first {lines}"
        raise InputError(
            f"{part.path}: {rejected} of {rows} rows are malformed, above data.max_bad_row_rate {max_rate}; "
            f"the first is {spec.line_or_row} {reject.line}: {explained(reject.reason)}; all are in {dead_letter}"
        )
    return rejected, dict(reasons)


def _check_mixture(results: Sequence[IngestedRange]) -> None:
    """Raises InputError if a column of categories has both numbers and differently written texts, such as 02139."""
    whole = Mixture()
    for result in results:
        whole.add(result.mixture)
    whole.check()


def _stop_early(
    spec: LogSpec, ranges: Sequence[Range], results: Sequence[IngestedRange], dead_letter: pathlib.Path
) -> None:
    """Checks the first ranges for malformed rows, with a margin because the log's number of lines is an estimate.

    Raises:
        InputError: the log's share of malformed rows is above EARLY_STOP_FACTOR times the allowed share.
    """
    lines = sum(result.lines for result in results)
    share = sum(part.size for part in ranges[: len(results)]) / sum(part.size for part in ranges)
    limit = EARLY_STOP_FACTOR * spec.data.max_bad_row_rate * lines / share
    if sum(result.rejected for result in results) > limit and len(results) < len(ranges):
        _write_dead_letters(spec, ranges, results, dead_letter)


def _lines(path: pathlib.Path) -> Iterator[str]:
    with open(path) as file:
        yield from file


@dataclasses.dataclass(frozen=True)
class _PartPiece:
    """The rows `first` to `stop - 1` of a part that spans several splits, and the folder of their split."""

    part: pathlib.Path
    first: int
    stop: int
    folder: pathlib.Path


def _move_to_splits(
    spec: LogSpec, results: Sequence[IngestedRange], split_folders: Mapping[str, pathlib.Path]
) -> list[_PartPiece]:
    """Moves the parts of all ranges to their splits.

    Returns the pieces of the parts that span several splits, to be copied by `_CopyPiece`.
    """
    for name, folder in split_folders.items():
        for part in (part for result in results for part in result.parts.get(name, [])):
            part.replace(folder / part.name)
    parts = [part for result in results for part in result.parts.get(_UNSPLIT, [])]
    counts = [payload_rows([part]) for part in parts]
    bounds = order_bounds(spec.data.split, sum(counts))
    start, pieces = 0, []
    for part, rows in zip(parts, counts, strict=True):
        for index, name in enumerate(SPLITS):
            first, stop = max(bounds[index] - start, 0), min(bounds[index + 1] - start, rows)
            if (first, stop) == (0, rows):
                part.replace(split_folders[name] / part.name)
            elif first < stop:
                pieces.append(_PartPiece(part, first, stop, split_folders[name]))
        start += rows
    return pieces


@dataclasses.dataclass(frozen=True)
class _CopyPiece:
    """Copies a piece of a part to the folder of its split."""

    spec: LogSpec

    def __call__(self, piece: _PartPiece) -> None:
        with PayloadWriter(piece.folder, piece.part.stem, payload_schema(self.spec)) as writer:
            for rows in read_rows(piece.part, piece.first, piece.stop):
                writer.write(rows)


def whole_clicks(clicks: float, rows: int) -> int:
    """Rounds a sum of labels, which may be rates, to whole clicks. Only an exact sum of 0 or `rows` gives 0 or
    `rows`.
    """
    return min(max(round(clicks), int(clicks > 0)), rows - int(clicks < rows))


def _count(
    spec: LogSpec, split_folders: Mapping[str, pathlib.Path], rejected: int, reasons: dict[str, int]
) -> IngestResult:
    """Counts the rows, the positives and the rates in the splits' folders."""
    columns = spec.label_columns
    result = IngestResult({}, {}, dict.fromkeys(columns, 0), rejected, reasons)
    for name in SPLITS:
        files = payload_files(split_folders[name])
        result.rows[name] = payload_rows(files)
        clicks, known = 0.0, 0
        for batch in read_payload(files, columns):
            clicks += pc.sum(batch[columns[0]]).as_py() or 0.0
            known += batch.num_rows - batch[columns[0]].null_count
            for column in set(columns) - set(spec.data.number_columns):
                is_rate = pc.and_(pc.greater(batch[column], 0.0), pc.less(batch[column], 1.0))
                result.rates[column] += pc.sum(is_rate).as_py() or 0
        result.positives[name] = whole_clicks(clicks, known)
    result.rates = {column: count for column, count in result.rates.items() if count}
    return result


def _key_spans(results: Sequence[IngestedRange]) -> dict[str, tuple[Value, Value]]:
    """Returns the first and last time of each split's rows (`by: time`)."""
    spans: dict[str, tuple[Value, Value]] = {}
    for result in results:
        for name, span in result.spans.items():
            spans[name] = _wider(spans.get(name, span), span)
    return {name: spans[name] for name in SPLITS if name in spans}


def _spans(
    division: Division,
    ranges: Sequence[Range],
    of_keys: Mapping[str, tuple[Value, Value]],
    split_folders: Mapping[str, pathlib.Path],
) -> dict[str, list[str]]:
    """Returns the first and last time (`of_keys`), or the first and last file, of each split."""
    if division.ordering is not None:
        return {name: [division.shown(value) for value in span] for name, span in of_keys.items()}
    spans: dict[str, list[str]] = {}
    for name in SPLITS if division.split.by in ("order", "files") else ():
        if parts := payload_files(split_folders[name]):
            ends = (int(part.name.split("-")[0]) for part in (parts[0], parts[-1]))  # a part begins with its range
            spans[name] = [ranges[number].path for number in ends]
    return spans


def _merged_groups(results: Sequence[IngestedRange]) -> GroupSample:
    whole = GroupSample()
    for result in results:
        whole.merge(result.groups)
    return whole


def _count_values(columns: Sequence[str], folder: pathlib.Path) -> dict[str, int]:
    """Returns the number of a split's rows with a value, by column."""
    present = dict.fromkeys(columns, 0)
    for file in payload_files(folder):
        metadata = pa.parquet.read_metadata(file)
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for index in range(group.num_columns):
                if (name := group.column(index).path_in_schema) in present:
                    present[name] += group.num_rows - group.column(index).statistics.null_count
    return present


def _check_splits(
    result: IngestResult, labelled: Mapping[str, dict[str, int]], present: dict[str, int], division: Division
) -> None:
    """Checks that each split has rows, labels of both classes and weights.

    Args:
        result: The counts of the splits.
        labelled: By split, the number of rows with a label, by label column.
        present: The number of training rows with a value, by feature column.
        division: How the log was divided.
    """
    for name in SPLITS:
        if not result.rows[name]:
            values = why_empty(result, division.split)
            raise InputError(f"The {name} split has no rows{values}; give more data or change data.split")
    for name in ("train", "validation", "test"):
        label, known = next(iter(labelled[name].items()))
        for other, count in labelled[name].items():
            if not count:
                raise InputError(
                    f"{other} is missing in all {result.rows[name]} {name} rows; a task needs labels: "
                    "check the label column, give more data or change data.split"
                )
        if result.positives[name] in (0, known):
            only = int(result.positives[name] > 0)
            raise InputError(
                f"{label} is {only} in all {known} {name} rows; a model needs both classes: "
                "check the label column, give more data or change data.split"
            )
    check_present(present, result.rows["train"])


def why_empty(result: IngestResult, split: Split) -> str:
    """Returns the boundaries of the splits or the number of groups, for the error about an empty split."""
    if split.by == "time":
        ends = ", ".join(f"{name} {' to '.join(values)}" for name, values in result.spans.items())
        return f" ({split.column}: {ends})"
    if split.by == "group":
        many = "1 group, whose rows are" if result.groups == 1 else f"{result.groups} groups, each with its rows"
        return f" ({split.column} has {many} in one split)"
    return ""


def check_present(present: Mapping[str, int], rows: int) -> None:
    """Raises InputError if a feature is missing in all training rows.

    Args:
        present: The number of training rows with a value, by feature column.
        rows: The number of training rows.
    """
    if absent := [column for column, count in present.items() if rows and not count]:
        raise InputError(
            f"Always missing in all {rows} training rows: {', '.join(absent)}; "
            "remove it from features, or check the order of data.columns"
        )


def _check_weights(spec: LogSpec, folders: Mapping[str, pathlib.Path]) -> None:
    columns = [str(spec.data.weight), spec.label_columns[0]]
    for name in SPLITS:
        check_weights(spec, name, read_payload(payload_files(folders[name]), columns))


def check_weights(spec: LogSpec, split: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Checks that both classes of a split have positive weights, and that 32-bit sums of the weights are meaningful.

    Args:
        spec: The description of the log, with a weight.
        split: The name of the split.
        batches: Its rows, with the weight and the label of the first task.

    Raises:
        InputError: a class has no positive weight, one row outweighs all others, or the weights are too large or too
            small to be summed.
    """
    weight, label = str(spec.data.weight), spec.label_columns[0]
    of_clicks = of_others = rest = largest = 0.0
    rows = 0
    for batch in batches:
        weights = np.asarray(batch[weight], np.float64)
        labels = np.asarray(batch[label], np.float64)  # NaN for a row that has labels of other tasks alone
        of_clicks += float(np.nansum(weights * labels))
        of_others += float(np.nansum(weights * (1 - labels)))
        rows += len(weights)
        ordered = np.partition(np.append(weights, 0), -1)
        here = float(ordered[-1])
        rest += float(ordered[:-1].sum()) + min(here, largest)  # without the largest one, which would round it away
        largest = max(here, largest)
    if 0 < rest < _LEAST_OTHERS * largest:
        raise InputError(
            f"data.weight: {weight} is {largest:g} in one of the {split} rows, beside which the other {rows - 1:,} do "
            "not count; correct it, or leave the row out"
        )
    mean = (rest + largest) / max(rows, 1)
    if mean and not _SMALLEST_WEIGHT < mean < _LARGEST_WEIGHT:
        raise InputError(
            f"data.weight: {weight} is {mean:g} on average in the {split} rows, which 32 bits cannot add up; "
            "divide all weights by one number, as only their ratios count"
        )
    if of_clicks == of_others == 0:
        raise InputError(f"data.weight: {weight} is 0 in all {split} rows; give rows a weight, or remove data.weight")
    if of_clicks == 0 or of_others == 0:
        raise InputError(
            f"data.weight: {weight} is 0 in all {split} rows with {label} {int(of_others > 0)}; a model needs both "
            "classes: give rows of both a weight, or remove data.weight"
        )


# tf.Examples ---------------------------------------------------------------------------------------------------------


def to_examples(rows: pa.RecordBatch) -> list[bytes]:
    """Returns serialized tf.Examples [N]; a null value is an absent feature."""
    # Lazy: TensorFlow takes 4 CPU seconds, and processes that only read a log do not need it.
    from tensorflow.core.example import example_pb2

    examples = [example_pb2.Example() for _ in range(rows.num_rows)]
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if is_vector(kind):
            for example, values in zip(examples, as_lists(column).to_pylist(), strict=True):
                if values is not None:
                    example.features.feature[name].float_list.value.extend(values)
            continue
        if pa.types.is_integer(kind):
            form = "int64_list"
        elif pa.types.is_floating(kind):
            form = "float_list"
        else:
            form, column = "bytes_list", column.cast(pa.large_binary())
        for example, value in zip(examples, column.to_pylist(), strict=True):
            if value is not None:
                getattr(example.features.feature[name], form).value.append(value)
    return [example.SerializeToString(deterministic=True) for example in examples]
