"""Base class of results: shown as a table, converted to a DataFrame."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctrpipe.mistakes import in_one_line
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd


class Result:
    """The result of a function. Terminals and notebooks show it as a table."""

    def _table(self) -> Table:
        """Returns the table to show."""
        raise NotImplementedError

    def _records(self) -> Sequence[dict[str, Any]]:
        """Returns the rows of `to_pandas`, values by column."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """Returns the result as a pandas DataFrame. See the class for the meaning of its rows."""
        return data_frame(self._records())

    def __repr__(self) -> str:
        return self._table().text

    def _repr_html_(self) -> str:
        return self._table().html


@in_one_line
def data_frame(records: Sequence[dict[str, Any]]) -> "pd.DataFrame":
    """Returns a pandas DataFrame of rows given as values by column."""
    import pandas as pd  # lazy: takes 0.4 s, and showing a result does not need it

    return pd.DataFrame.from_records(list(records))


def evaluations(trained: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> "pd.DataFrame":
    """Returns the evaluations of several training runs as one pandas DataFrame.

    Args:
        trained: Per training run, the columns that identify it, and the contents of its history.json.
    """
    rows = []
    for names, history in trained:
        for number, row in enumerate(history["evaluations"]):
            kept = {"best": number == history["best"]} if "best" in history else {}
            rows.append({**names, "evaluation": number, **row, **kept})
    return data_frame(rows)
