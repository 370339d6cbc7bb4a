"""Reads rows for a trained model: rows of a log, or its run's own test rows."""

import pathlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import yaml

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.common.output_folder import METADATA
from ctrpipe.pipeline.run.trained_model import TrainedModel
from ctrpipe.serving.logged_values import own_values
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec


def read_rows(source: TrainedModel, data: Sequence[str], spec: LogSpec) -> Iterator[pa.RecordBatch]:
    """Yields rows with labels: the good rows of a log, or without a log the run's test rows.

    Args:
        source: The model.
        data: Files and globs of a raw log that the model reads. Empty for the run's test rows.
        spec: The description of the model's log.

    Raises:
        InputError: the log has other columns, cannot be read, or has too many malformed rows; or there is neither a
            log nor a run.
    """
    if data:
        yield from good_rows(find_files(list(data)), spec, own_values(source.version, spec))
        return
    if source.run is None:
        raise InputError(f"{source.version}: a version has no rows; give --data, a log with labels that it reads")
    yield from read_payload(split_files(source.run, "test"))


def good_rows(paths: Sequence[str], spec: LogSpec, own: OwnValues, labels: bool = True) -> Iterator[pa.RecordBatch]:
    """Yields the good rows of files. Raises InputError at the end if too many rows are malformed."""
    reader = LogReader(spec, labels=labels, own=own)
    good = rejected = 0
    first = ""
    for path in paths:
        for batch in reader.read(path):
            good += batch.rows.num_rows
            rejected += len(batch.rejects)
            if batch.rejects and not first:
                first = f"{path}: {spec.line_or_row} {batch.rejects[0].line}: {batch.rejects[0].reason}"
            yield batch.rows
    if rejected > spec.data.max_bad_row_rate * (good + rejected):
        raise InputError(
            f"{first}; {rejected} of {good + rejected} rows are malformed, above data.max_bad_row_rate "
            f"{spec.data.max_bad_row_rate}; is this a log of the model?"
        )


def split_files(run: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Returns the files of a split of a run's log.

    Raises:
        InputError: the files are not known, or were removed.
    """
    require("pipeline", f"{run}: to read its {split} rows", "give one of its models, and --data")
    from ctrpipe.pipeline.run.artifacts import (
        Artifacts,  # lazy: ML Metadata takes 0.3 s, and reading a log does not need it
    )

    try:
        name = yaml.safe_load((run / "report_data" / "config.yaml").read_text())["name"]
        if not (run / METADATA).exists():
            raise FileNotFoundError(f"no {METADATA}")
        files = payload_files(Artifacts(run / METADATA, name).folder("LogExampleGen", "examples") / f"Split-{split}")
    except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{run}: its {split} rows are not known ({one_line(error, 100)}); give --data") from error
    if not files:
        raise InputError(f"{run}: its {split} rows were removed; give --data, a log with labels")
    return files


def read_row(text: str, spec: LogSpec, own: OwnValues, option: str = "--row") -> pa.RecordBatch:
    """Returns one row of a file, without labels.

    Args:
        text: FILE:LINE, with lines counted from 1. For Parquet, the row number.
        spec: The description of the model's log.
        own: Its values.
        option: The option that names the row, for error messages.

    Raises:
        InputError: the text has no line number, the file cannot be read, or the line is malformed or does not exist.
    """
    file, colon, number = text.rpartition(":")
    if not colon or not file or not number.isdecimal() or int(number) < 1:
        raise InputError(f"{option} {text}: expected FILE:LINE, as in test.tsv:12, lines counted from 1")
    line = int(number)
    [path, *_] = find_files([file])
    for batch in LogReader(spec, labels=False, own=own).read(path):
        for reject in batch.rejects:
            if reject.line == line:
                raise InputError(f"{path}: {spec.line_or_row} {line} is malformed: {reject.reason}")
        places = (batch.lines == line).nonzero()[0]
        if len(places):
            return batch.rows.slice(int(places[0]), 1)
    raise InputError(f"{path}: has no row at {spec.line_or_row} {line}; name one with {option} FILE:LINE")
