"""Checks a configuration and the first rows of a log, and lists every problem that a run would meet."""

import collections
import dataclasses
import itertools
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common import hooks
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.printable import excerpt
from ctrpipe.common.stores import in_parallel
from ctrpipe.models.base.registry import check_none_missing, check_values, known_options
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.config.groups import GroupedRows, check_pairs
from ctrpipe.pipeline.config.model import Model
from ctrpipe.pipeline.config.model_table import read_reference
from ctrpipe.transforms.kddcup2012 import is_kddcup2012
from ctrpipe.transforms.log.dated_names import dated_names
from ctrpipe.transforms.log.described_files import describe_files, same_contents
from ctrpipe.transforms.log.division import find_ordering
from ctrpipe.transforms.log.epochs import eight_digits
from ctrpipe.transforms.log.files import find_files, size_of
from ctrpipe.transforms.log.footers import footers
from ctrpipe.transforms.log.groups import group_numbers
from ctrpipe.transforms.log.held_objects import held_objects
from ctrpipe.transforms.log.ingest import (
    check_present,
    check_weights,
    described_splits,
    few_of_a_class,
    kind_of_reject,
    why_empty,
)
from ctrpipe.transforms.log.kinds.kind import Seen
from ctrpipe.transforms.log.pretrained_table import pretrained_tables, read_table
from ctrpipe.transforms.log.queries import told_of_order
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.repeats import hash_rows, repeats
from ctrpipe.transforms.log.split_counts import count_splits, is_countable, is_readable, rows_of_splits
from ctrpipe.transforms.log.split_suspects import of_all_splits
from ctrpipe.transforms.log.suspects import suspects
from ctrpipe.transforms.log.values import explained
from ctrpipe.transforms.tables.impressions import rows_of_lists
from ctrpipe.transforms.tables.join import join_tables

ROWS = 10_000
_HELD_BYTES = 1 << 18  # of an object that is fetched whole, though a check looks at a part of it
_FILES = 100  # files whose columns are compared with the configuration
_REASONS = 5  # malformed-row reasons that are listed
_SHOWN = 40  # characters of a value that are printed
# What other libraries call a model.
_USUAL = {
    **dict.fromkeys(("xgboost", "catboost", "gbdt", "gbm", "trees"), "lightgbm"),
    **dict.fromkeys(("logistic", "logistic_regression", "logreg", "linear"), "lr"),
}
IN_ORDER = ("esmm",)  # models whose labels each imply the one before; their classes say so, but take 5 s to import


@dataclasses.dataclass
class Findings:
    """The results of a check.

    Attributes:
        rows: Number of good rows that were read.
        rejected: Number of malformed rows.
        is_whole: Whether all rows of the log were read.
        errors: Problems that would end the run.
        notes: Possible mistakes.
        splits: The number of rows of each split; empty if the log is too large to be read in a check.
        divided: A line about each split.
    """

    rows: int = 0
    rejected: int = 0
    is_whole: bool = False
    errors: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    splits: dict[str, int] = dataclasses.field(default_factory=dict)
    divided: list[str] = dataclasses.field(default_factory=list)

    @property
    def read(self) -> str:
        """The number of rows read, such as `the first 16,384 rows read, 3 malformed`."""
        if not (total := self.rows + self.rejected):
            return "no rows read"
        counted = f"{total:,} rows read, {self.rejected:,} malformed"
        return f"all {counted}" if self.is_whole else f"the first {counted}"


def check_log(config: RunConfig, patterns: Sequence[str]) -> Findings:
    """Checks the models' options, the files' columns and the first ROWS rows of the log."""
    with held_objects(patterns, _HELD_BYTES):
        return _checked(config, patterns)


def _checked(config: RunConfig, patterns: Sequence[str]) -> Findings:
    findings = Findings()
    for key, model in (("model", config.model), ("evaluation.baseline", config.evaluation.baseline)):
        if model:
            findings.errors += [f"{key}: {text}" for text in _model_faults(model)]
    for column, table in pretrained_tables(config.log_spec).items():
        whole = column in config.whole_number_columns
        _collect(findings, "", lambda table=table, whole=whole: read_table(table, whole))  # type: ignore[misc]
    for kind, name in config.hooks.named:
        _collect(findings, "hooks: ", lambda kind=kind, name=name: hooks.load(kind, name))  # type: ignore[misc]
    for key in ("previous", "serving"):
        if named := getattr(config.monitoring, key):
            _collect(findings, f"monitoring.{key}: ", lambda named=named: find_files(named))  # type: ignore[misc]
    if len(patterns) == 1 and is_kddcup2012(pathlib.Path(patterns[0])):
        findings.notes.append(f"{patterns[0]}: a run joins these files before it reads them, which is not checked")
        return findings
    if config.events:
        for named in (list(patterns), *_side_tables(config)):
            _collect(findings, "", lambda named=named: find_files(named))  # type: ignore[misc]
        findings.notes.append("events: a run makes impressions of the log before it reads them, which is not checked")
        return findings
    if config.data.label_delay:
        labels = config.data.label_delay.labels or list(patterns)
        for named in (list(patterns), labels, *_side_tables(config)):
            _collect(findings, "", lambda named=named: find_files(named))  # type: ignore[misc]
        findings.notes.append("data.label_delay: a run joins the log with its labels before it reads it; not checked")
        return findings
    if config.data.join or config.data.impressions:
        with tempfile.TemporaryDirectory(prefix="ctrpipe-check-") as folder:
            try:
                log = _first_rows(config, patterns, pathlib.Path(folder), findings)
            except InputError as error:
                findings.errors.append(str(error))
                return findings
            _check_files(config, [log], findings, is_whole_log=False)
        return findings
    _check_files(config, patterns, findings)
    return findings


def _first_rows(config: RunConfig, patterns: Sequence[str], folder: pathlib.Path, findings: Findings) -> str:
    """Writes the first rows of the prepared log (lists of impressions, side tables) and returns their glob.

    Raises:
        InputError: see `rows_of_lists` and `join_tables`.
    """
    log = list(patterns)
    if config.data.impressions:
        shown = rows_of_lists(log, config.data.impressions, folder / "impressions", ROWS)
        findings.rejected += shown.rejected
        log = [shown.log]
    if config.data.join:
        made = join_tables(log, config.data.join, folder / "joined", ROWS)
        findings.rejected += made.rejected
        log = [made.log]
        findings.notes += [
            f"data.join: {count:,} of the first {made.rows:,} rows have no partner in {path}"
            for path, count in made.unmatched.items()
            if count
        ]
        findings.notes += [f"data.join: {line}" for line in made.told]
    return log[0]


def _side_tables(config: RunConfig) -> list[list[str]]:
    """Returns the files and globs of each side table."""
    return [table.paths for table in config.data.join.tables] if config.data.join else []


def _check_files(config: RunConfig, patterns: Sequence[str], findings: Findings, is_whole_log: bool = True) -> None:
    """Checks the columns and the first rows of files, and, of a whole log, the rows of its splits."""
    files: list[str] = []
    try:
        given = config
        config, files = config.placed(patterns)
        findings.notes += given.items_found(files).told
    except InputError as error:
        findings.errors.append(str(error))
    reader = LogReader(config.log_spec)
    before = len(findings.errors)
    for path in files[:_FILES]:
        _collect(findings, "", lambda path=path: reader.check_columns(path))  # type: ignore[misc]
    if len(findings.errors) == before:
        _collect(findings, "", lambda: reader.check_types(files[:_FILES]))
    if files and len(findings.errors) == before:
        try:
            if config.data.split.by == "time":
                ordering = find_ordering(config.log_spec, [part for path in files for part in reader.ranges(path)])
                reader = LogReader(config.log_spec, ordering=ordering)
            _check_rows(config, reader, files, findings)
            if is_whole_log:
                findings.notes += [*_same_files(files), *footers(config.data, files)]
                if config.data.split.by == "order":
                    findings.notes += [*told_of_order(patterns), *dated_names(files)]
                if findings.rows or not findings.rejected:  # a log of malformed rows alone has no splits
                    _check_splits(config, files, findings)
        except InputError as error:
            findings.errors.append(str(error))


def _collect(findings: Findings, where: str, work: collections.abc.Callable[[], object]) -> None:
    try:
        work()
    except InputError as error:
        findings.errors.append(f"{where}{error}")


def _model_faults(model: Model) -> list[str]:
    """Returns the mistakes in a model's name and options. A user's own model is loaded, as a run loads it."""
    if ":" in model.name:
        try:
            options = known_options(model.name)
        except ValueError as error:
            return [one_line(error)]
    else:
        known = {each["name"]: each["options"] for each in read_reference().models}
        if model.name not in known:
            meant = _USUAL.get(model.name.casefold())
            near = f"; did you mean {meant}?" if meant else did_you_mean(model.name, known)
            return [f"there is no model {model.name}; `ctrpipe models` lists them{near}"]
        options = known[model.name]
    faults = []
    for name, value in model.hyperparameters.items():
        try:
            check_values(model.name, options, {name: value})
        except ValueError as error:
            faults.append(one_line(error))
    if ":" in model.name and not faults:  # a misspelt name is said once
        try:
            check_none_missing(model.name, model.hyperparameters)
        except ValueError as error:
            faults.append(one_line(error))
    return faults


# Rows ----------------------------------------------------------------------------------------------------------------


def _check_rows(config: RunConfig, reader: LogReader, files: Sequence[str], findings: Findings) -> None:
    batches: list[pa.RecordBatch] = []
    reasons: collections.Counter[str] = collections.Counter()
    first: dict[str, str] = {}
    is_whole = True
    for path, batch in ((file, batch) for file in files for batch in reader.read(file)):
        batches.append(batch.rows)
        findings.rows += batch.rows.num_rows
        findings.rejected += len(batch.rejects)
        for reject in batch.rejects:
            kind = kind_of_reject(reject)
            reasons[kind] += 1
            first.setdefault(kind, f"{path}: {config.line_or_row} {reject.line}: {explained(reject.reason)}")
        if findings.rows + findings.rejected >= ROWS:
            is_whole = False
            break
    findings.is_whole = is_whole
    _collect(findings, "", lambda: reader.mixture().check())
    total = findings.rows + findings.rejected
    listed = findings.errors if findings.rejected > config.data.max_bad_row_rate * total else findings.notes
    for kind, count in reasons.most_common(_REASONS):
        listed.append(f"{count:,} of {total:,} rows are malformed, as {first[kind]}")
    if not findings.rows:
        return
    rows = pa.Table.from_batches(batches)
    # A finding about the whole log would end the run. About its first rows only, it may be a mistake.
    (findings.errors if is_whole else findings.notes).extend(_faults(config, rows))
    for column in config.feature_columns:
        findings.notes += _column_notes(config, column, rows[column])
    findings.notes += [f"Column: {each.column}: {each.text}" for each in suspects(config, rows)]


def _faults(config: RunConfig, rows: pa.Table) -> Iterator[str]:
    seen = f"all of the first {rows.num_rows:,} rows"
    for task in config.data.click_tasks:
        column = config.data.columns_by_task[task]
        rate = pc.mean(rows[column]).as_py()
        if rate in (0.0, 1.0):
            yield f"data.labels.{task}: {column} is {rate:.0f} in {seen}; a model needs both"
    if config.model.name in IN_ORDER:
        labels = list(config.data.columns_by_task.items())
        for (before, first), (task, second) in itertools.pairwise(labels):
            if count := pc.sum(pc.greater(rows[second], rows[first])).as_py():
                yield f"data.labels: {count:,} of the first {rows.num_rows:,} rows have {task} without {before}"
    for column, feature in config.inputs.items():
        if feature.time_format == "auto":
            try:
                eight_digits(rows[column].combine_chunks()).are_dates(column)
            except InputError as error:
                yield str(error)
        if rows[column].null_count == rows.num_rows:
            yield f"{column}: missing in {seen}; a run fails if it is missing in all training rows"


def _column_notes(config: RunConfig, column: str, values: pa.ChunkedArray) -> Iterator[str]:
    feature = config.inputs[column]
    rows, present = len(values), values.drop_null()
    if not len(present):
        return
    if feature.vector_length:
        present = present.cast(pa.binary())
    counts = pc.value_counts(present)
    if len(present) == rows and len(counts) == 1:
        value = counts[0]["values"].as_py()
        text = f"{value:g}" if isinstance(value, float) else excerpt(value, _SHOWN)
        yield f"{column}: one value in all of the first {rows:,} rows{'' if feature.vector_length else f': {text}'}"
    distinct, most = counts.field("values"), pc.max(counts.field("counts")).as_py()

    def holds(text: str) -> bool:
        return bool(pc.any(pc.match_substring(distinct, text)).as_py())

    yield from feature.notes(column, Seen(rows, len(present), len(distinct), most, holds))


def _same_files(files: Sequence[str]) -> list[str]:
    """Returns a line about each file that has the same bytes as an earlier one, among files small enough to read."""
    by_size: dict[int, list[str]] = collections.defaultdict(list)
    paths = list(dict.fromkeys(files))
    for path, size in zip(paths, in_parallel(size_of, paths), strict=True):
        by_size[size].append(path)
    alike = [path for paths in by_size.values() if len(paths) > 1 for path in paths]
    return same_contents(describe_files(alike)) if is_countable(alike) else []


def _check_splits(config: RunConfig, files: Sequence[str], findings: Findings) -> None:
    """Counts the rows of each split, and adds errors that would end a run."""
    if not is_countable(files):
        findings.notes.append(
            "data.split: the log is too large to count the rows of each split here; a run prints them"
        )
        return
    counted = count_splits(config.log_spec, files)
    findings.splits = counted.rows
    findings.divided = list(described_splits(config.data.split, counted))
    findings.notes += [f"Column: {config.data.split.column}, all rows: {text}" for text in counted.of_column]
    if is_readable(files):
        rows_by_split = rows_of_splits(config.log_spec, files)
        if config.data.weight and config.data.click_tasks:
            for name, rows in rows_by_split.items():
                batches = rows.to_batches()
                _collect(findings, "", lambda name=name, batches=batches: check_weights(config.log_spec, name, batches))  # type: ignore[misc]
        _collect(findings, "", lambda: _check_pairs(config, rows_by_split))
        if (train := rows_by_split.get("train")) and not any("missing in" in error for error in findings.errors):
            present = {name: len(train) - train[name].null_count for name in config.feature_columns}
            _collect(findings, "", lambda: check_present(present, len(train)))
        hashed = {name: hash_rows(config, rows.to_batches()) for name, rows in rows_by_split.items()}
        of_splits = [*of_all_splits(config.log_spec, rows_by_split), *repeats(hashed)]
        findings.notes += [f"Column: {each.column}, {each.split} rows: {each.text}" for each in of_splits]
    findings.notes += few_of_a_class(config.label_columns[0], counted)
    for name, rows in counted.rows.items():
        if not rows:
            values = why_empty(counted, config.data.split)
            findings.errors.append(
                f"data.split: the {name} split has no rows{values}; give more data or change data.split"
            )
        elif counted.positives[name] in (0, rows):
            only = int(counted.positives[name] > 0)
            of_all = f"{config.label_columns[0]} is {only} in all {rows:,} {name} rows"
            findings.errors.append(
                f"data.split: {of_all}; a model needs both classes: give more data or change data.split"
            )


def _check_pairs(config: RunConfig, rows_by_split: Mapping[str, pa.Table]) -> None:
    """Raises InputError if a key compares the rows of a group, but no group of the split has both classes."""
    group, tasks = config.evaluation.group, config.data.click_tasks
    if group is None:
        return

    def rows_of(split: str) -> GroupedRows:
        rows = rows_by_split[split]
        return group_numbers(rows[group]), {task: rows[config.data.columns_by_task[task]].to_numpy() for task in tasks}

    check_pairs(config.training, tasks, group, rows_of)
