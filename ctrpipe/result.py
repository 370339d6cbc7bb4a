"""What all results have: they show themselves as a table, and are a DataFrame."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctrpipe.mistakes import in_one_line
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd


class Result:
    """What a function has found. It shows itself as a table in a terminal and in a notebook."""

    def _table(self) -> Table:
        """Returns what the result shows of itself."""
        raise NotImplementedError

    def _records(self) -> Sequence[dict[str, Any]]:
        """Returns the rows of `to_pandas`, values by column."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """Returns the result as a pandas DataFrame; the class says what its rows are."""
        return data_frame(self._records())

    def __repr__(self) -> str:
        return self._table().text

    def _repr_html_(self) -> str:
        return self._table().html


@in_one_line
def data_frame(records: Sequence[dict[str, Any]]) -> "pd.DataFrame":
    """Returns rows, values by column, as a pandas DataFrame."""
    import pandas as pd  # 0.4 s that results which are only shown do without

    return pd.DataFrame.from_records(list(records))


def evaluations(trained: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> "pd.DataFrame":
    """Returns the evaluations of trainings as a pandas DataFrame.

    Args:
        trained: Each training as what names it, values by column, and its history.json.
    """
    rows = []
    for names, history in trained:
        for number, row in enumerate(history["evaluations"]):
            kept = {"best": number == history["best"]} if "best" in history else {}
            rows.append({**names, "evaluation": number, **row, **kept})
    return data_frame(rows)
