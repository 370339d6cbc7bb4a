"""Evaluate how well a model ranks lists of candidates, and how much of the catalogue it shows."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctrpipe.bar import with_bar
from ctrpipe.common.charts import chart_figure
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.data import FOLDER, Data, PathLike, files_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.pipeline.ranking.show import charts, write_ranking
from ctrpipe.pipeline.run.trained_model import find_model
from ctrpipe.result import Result
from ctrpipe.runs import ModelLike, folder_of
from ctrpipe.settings import results_folder
from ctrpipe.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False)
class Ranking(Result):
    """Ranking metrics. The table and `to_pandas` have one row per order ("model", "popularity") and k.

    Attributes:
        report: The contents of ranking.json.
    """

    report: dict[str, Any]

    def _records(self) -> list[dict[str, Any]]:
        return [
            {"order": name, "k": int(k), "gauc": side["gauc"], "mrr": side["mrr"], **metrics}
            for name, side in self.report["sides"].items()
            for k, metrics in side["at"].items()
        ]

    def _table(self) -> Table:
        records = self._records()
        below = f"{self.report['lists']:,} lists of {self.report['rows']:,} candidates"
        return Table(list(records[0]), [list(record.values()) for record in records], below)

    @in_one_line
    def plot(self) -> "Figure":
        """Plots the effective catalogue size and the take-rate by k."""
        return chart_figure(list(charts(self.report).values()))


@in_one_line
@with_bar
def ranking(
    model: ModelLike,
    data: Data | None = None,
    *,
    group: str | None = None,
    item: str | None = None,
    k: int | Sequence[int] = 10,
    output: PathLike | None = None,
) -> Ranking:
    """Ranks lists of candidates by the model and by popularity, and computes ranking metrics for both.

    The metrics are hit rate, NDCG, MRR, GAUC, effective catalogue size and take-rate.

    Args:
        model: A finished run (pushed or not), the folder of a model's versions, or one version.
        data: A log with labels: files or globs, a DataFrame or a pyarrow Table. None uses the run's test rows.
        group: The column that groups rows into lists: rows with the same value form one list. None uses `user`.
        item: The column with the candidate. None uses the column whose vocabulary a history shares, or the first
            column with the role `item`.
        k: Length of the top of the list that counts (the k of NDCG@k), one number or several.
        output: Folder for ranking.json and ranking.html, or its URL in a store. None writes no files.

    Returns:
        A `Ranking` with the metrics of both orders at each k.

    Raises:
        InputError: the model or the log cannot be used, or no list has both a positive and a negative candidate.

    Example:
        >>> ctrpipe.ranking("runs/mine", k=[5, 10]).to_pandas()[["order", "k", "ndcg"]]
    """
    load_tensorflow()
    # Lazy: TensorFlow takes 3 s to import.
    from ctrpipe.pipeline.ranking.rank import rank

    source = find_model(folder_of(model))
    with results_folder(output) as folder:
        files = files_of(data, None if folder is None else folder / FOLDER)
        report = rank(source, files, group, item, [k] if isinstance(k, int) else k)
        if folder is not None:
            write_ranking(report, folder)
    return Ranking(report)
