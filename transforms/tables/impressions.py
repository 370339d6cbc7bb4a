"""Converts lists of impressions to rows, one for each item of a list."""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_folder, write_json
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.transforms.labels.labelled import DEAD_LETTER, LOG, REJECTS, SUMMARY, Letters
from ctrpipe.transforms.log.batches import LogBatch, Reject
from ctrpipe.transforms.log.impression_lists import ImpressionLists
from ctrpipe.transforms.log.payload import PayloadWriter
from ctrpipe.transforms.tables.sides import check_has, text_files


@dataclasses.dataclass(frozen=True)
class Shown:
    """The result of a conversion.

    Attributes:
        log: A glob of the Parquet files.
        lists: Number of lists that were read.
        rows: Number of rows written, one for each item of a list.
        rejected: Number of malformed rows, such as those without a list.
    """

    log: str
    lists: int
    rows: int
    rejected: int


def rows_of_lists(
    log: Sequence[str], lists: ImpressionLists, output: pathlib.Path, most_rows: int | None = None
) -> Shown:
    """Writes the rows of lists of impressions, in the order of the log. All columns are text.

    Args:
        log: The log's files and globs.
        lists: The column of the lists, and how they are written.
        output: The folder for `log/*.parquet`, `dead_letter/rejects.jsonl` and `summary.json`.
        most_rows: Write about this many rows; None: all.

    Raises:
        InputError: a file cannot be read, lacks the column, or has one of the columns that the rows get.
    """
    files = text_files(log, lists.columns, [])
    check_has(files, "column", [lists.column])
    kept = [name for name in files.names if name != lists.column]
    if taken := [name for name in (lists.item, lists.label) if name in kept]:
        raise InputError(f"{files.files[0]}: the log has a column {taken[0]}, which the rows get; choose another name")
    check_output(output)
    schema = pa.schema([(name, pa.binary()) for name in [*kept, lists.item, lists.label]])
    with one_run_at_a_time(output), atomic_folder(output / LOG) as unfinished:
        (output / DEAD_LETTER).mkdir(exist_ok=True)
        count = written = 0
        with open(output / DEAD_LETTER / REJECTS, "w") as file, PayloadWriter(unfinished, "part", schema) as writer:
            letters = Letters(file)
            for batch in files.batches(letters):
                rows = _rows(batch, lists, kept, schema, letters)
                count += batch.rows.num_rows
                written += rows.num_rows
                writer.write(rows)
                if most_rows is not None and written >= most_rows:
                    break
        if not written:
            raise InputError(f"{files.files[0]}: {lists.column}: no row has a list of impressions; is it the column?")
        result = Shown(str(output / LOG / "*.parquet"), count, written, letters.rejected)
        write_json(output / SUMMARY, dataclasses.asdict(result))
    return result


def _rows(
    batch: LogBatch, lists: ImpressionLists, kept: Sequence[str], schema: pa.Schema, letters: Letters
) -> pa.RecordBatch:
    values = batch.rows[lists.column].fill_null(b"")
    parts = pc.split_pattern(values, lists.separator)
    tokens, parents = parts.flatten(), pc.list_parent_indices(parts).to_numpy()
    is_token = pc.greater(pc.binary_length(tokens), 0)
    tokens, parents = tokens.filter(is_token), parents[is_token.to_numpy(zero_copy_only=False)]
    form = rf"(?s)^(?P<item>.*){re.escape(lists.label_separator)}(?P<label>.*)$"
    fields = pc.extract_regex(tokens, form)
    items, labels = pc.struct_field(fields, "item"), pc.struct_field(fields, "label")
    items = pc.if_else(fields.is_valid(), items, tokens)
    bad = set(np.setdiff1d(np.arange(len(values)), parents).tolist())
    bad |= set(parents[pc.equal(pc.binary_length(items), 0).to_numpy(zero_copy_only=False)].tolist())
    letters.add(batch.path, list(_rejects(batch, lists.column, sorted(bad))))
    good = pa.array(~np.isin(parents, list(bad)))
    rows = batch.rows.take(pa.array(parents).filter(good))
    columns = [*(rows[name] for name in kept), items.filter(good), labels.filter(good)]
    return pa.RecordBatch.from_arrays([each.cast(pa.binary()) for each in columns], schema=schema)


def _rejects(batch: LogBatch, column: str, places: Sequence[int]) -> Iterator[Reject]:
    for place in places:
        text = (batch.rows[column][place].as_py() or b"").decode("utf-8", "replace")
        reason = f"{column}: an impression has no item" if text.strip() else f"{column}: there is no impression"
        yield Reject(int(batch.lines[place]), reason, text)
