"""A configuration for a log that nobody has described."""

import dataclasses
import pathlib
from typing import Any

from ctrpipe.data import Data, files_of, is_frame
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result
from ctrpipe.table import Table

NAME = "log"  # of the configuration of a table that has no file's name


@dataclasses.dataclass(frozen=True, repr=False)
class Draft(Result):
    """A configuration that `init` wrote. Its table, and `to_pandas`, have a row for each column that is read.

    Attributes:
        text: The commented YAML, as `ctrpipe init` writes it.
        unsure: What its writer was unsure of, in sentences.
        path: The file that it was written to; None where it was not.
        data: What it was made for, which functions read that get the draft and no data.
    """

    text: str
    unsure: tuple[str, ...]
    path: pathlib.Path | None
    data: Data

    @property
    def config(self) -> dict[str, Any]:
        """The values of the configuration, which may be changed and given to every function."""
        from ctrpipe.pipeline.config import read_yaml  # pydantic: 0.2 s that `import ctrpipe` does without

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
def init(data: Data, output: pathlib.Path | str | None = None, *, label: str | None = None) -> Draft:
    """Looks at a log and returns a commented configuration that runs as it is, as `ctrpipe init` writes one.

    The first 10,000 rows decide: format, header, the kinds of the columns, the label.

    Args:
        data: The log: files or globs, a DataFrame or a pyarrow Table.
        output: The file to write; None for none.
        label: The column of the label; None for the one that looks most like it.

    Raises:
        InputError: the log cannot be read, no column looks like a label, or the file exists.

    Example:
        >>> draft = ctrpipe.init(frame, label="clicked")
        >>> ctrpipe.run(draft, output="runs/mine", model__name="deepfm")
    """
    # numpy, pyarrow and pydantic: 0.4 s that `import ctrpipe` does without.
    from ctrpipe.pipeline.draft.page import draft, write_draft

    name = NAME if is_frame(data) else None
    text, unsure = draft(files_of(data, None), label, name)
    path = None if output is None else write_draft(text, pathlib.Path(output))
    return Draft(text, tuple(unsure), path, data)
