"""Draft a configuration from a log."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from ctrpipe.data import Data, is_frame, needed_files_of, path_or_url
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result
from ctrpipe.table import Table

NAME = "log"  # name of a configuration drafted from an in-memory table, which has no file name


@dataclasses.dataclass(frozen=True, repr=False)
class Draft(Result):
    """A configuration drafted by `init`.

    The table and `to_pandas` have one row per column that a run reads.

    Attributes:
        text: The configuration as commented YAML, as `ctrpipe init` writes it.
        unsure: The guesses to check by hand, one sentence each.
        path: The file written, or its URL; None if no `output` was given.
        data: The data given to `init`. Functions that get this draft as `config`, and no `data`, read it.
    """

    text: str
    unsure: tuple[str, ...]
    path: pathlib.Path | str | None
    data: Data

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as a new dict. Edit it and pass it to any function as `config`."""
        from ctrpipe.pipeline.config import read_yaml  # lazy: pydantic takes 0.2 s

        values: dict[str, Any] = read_yaml(self.text)
        return values

    def _records(self) -> list[dict[str, Any]]:
        return [
            {"column": column, **{key: value for key, value in feature.items() if key != "columns"}}
            for feature in self.config["features"]
            for column in feature["columns"]
        ]

    def _table(self) -> Table:
        rows = [[record.pop("column"), record.pop("kind"), _settings(record)] for record in self._records()]
        return Table(["column", "kind", "settings"], rows, " ".join(self.unsure))


def _settings(record: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in record.items())


@in_one_line
def init(
    data: Data,
    output: pathlib.Path | str | None = None,
    *,
    label: str | None = None,
    time: str | None = None,
    user: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    drop: Sequence[str] = (),
    delimiter: str | None = None,
    dataset: str | None = None,
) -> Draft:
    """Drafts a commented configuration from the first 10,000 rows of a log.

    Infers the file format, the header, the kind of each column and the label, and proposes a model, its training and
    its gates. The configuration runs without changes.

    Args:
        data: The log: files or globs, a DataFrame or a pyarrow Table.
        output: YAML file to write, or its URL. None writes no file.
        label: The label column. None takes the most likely one.
        time: The time column to split the log by: the last tenth of the time is the test split.
        user: The user column. It is a feature; without `time`, all rows of a user are in the same split.
        group: The column to split the log by: all rows with the same value are in the same split.
        weight: The column of row weights.
        drop: Columns that are not features.
        delimiter: The delimiter between two values of a text file. None infers it.
        dataset: The name of a published data set whose folder is `data`: criteo, criteo_1tb, avazu, kddcup2012,
            movielens, mind, taobao, kuairand or amazon.

    Returns:
        A `Draft`, which the other functions accept as `config`.

    Raises:
        InputError: the log cannot be read, no column looks like a label, or the output file exists.

    Example:
        >>> draft = ctrpipe.init(frame, label="clicked")
        >>> ctrpipe.run(draft, output="runs/mine", model__name="deepfm")
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.draft.page import Said, draft, draft_of_known, write_draft

    name = NAME if is_frame(data) else None
    files = needed_files_of(data, None)
    said = Said(label, time, user, group, weight, tuple(drop), delimiter)
    text, unsure = draft_of_known(dataset, files, said) if dataset else draft(files, name=name, said=said)
    path = None if output is None else write_draft(text, path_or_url(output))
    return Draft(text, tuple(unsure), path, data)
