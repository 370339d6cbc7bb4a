"""How well a model orders lists of candidates, and how much of the catalogue it shows."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctrpipe.data import FOLDER, Data, PathLike, files_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result
from ctrpipe.runs import Run, folder_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False)
class Ranking(Result):
    """A ranking of lists. Its table, and `to_pandas`, have a row for each order ("model", "popularity") and each k.

    Attributes:
        report: The contents of ranking.json.
    """

    report: dict[str, Any]

    def _records(self) -> list[dict[str, Any]]:
        return [
            {"order": name, "k": int(k), "gauc": side["gauc"], "mrr": side["mrr"], **found}
            for name, side in self.report["sides"].items()
            for k, found in side["at"].items()
        ]

    def _table(self) -> Table:
        records = self._records()
        below = f"{self.report['lists']:,} lists of {self.report['rows']:,} candidates"
        return Table(list(records[0]), [list(record.values()) for record in records], below)

    @in_one_line
    def plot(self) -> "Figure":
        """Returns the effective catalogue size and the take-rate by k."""
        from ctrpipe.figures import chart_figure  # matplotlib: 0.4 s
        from ctrpipe.pipeline.ranking.show import charts

        return chart_figure(list(charts(self.report).values()))


@in_one_line
def ranking(
    model: PathLike | Run,
    data: Data | None = None,
    *,
    group: str | None = None,
    item: str | None = None,
    k: int | Sequence[int] = 10,
    output: PathLike | None = None,
) -> Ranking:
    """Ranks lists of candidates: hit rate, NDCG, MRR, GAUC and the catalogue that is shown, beside popularity's.

    Args:
        model: A finished run, pushed or not, the folder of a model's versions, or one version.
        data: A log with labels: files or globs, a DataFrame or a pyarrow Table; None for the run's test rows.
        group: The column whose values are the lists; None for `user`.
        item: The column of the candidates; None for the one that a history shares its items with.
        k: Places that count, one number or several.
        output: The folder for ranking.json and ranking.html; None for none.

    Raises:
        InputError: the model or the log cannot be used, or no list has a positive candidate and another one.

    Example:
        >>> ctrpipe.ranking("runs/mine", k=[5, 10]).to_pandas()[["order", "k", "ndcg"]]
    """
    from ctrpipe.common.libraries import load_tensorflow

    load_tensorflow()
    # TensorFlow, numpy and pyarrow: 4 s that `import ctrpipe` does without.
    from ctrpipe.pipeline.ranking.rank import rank
    from ctrpipe.pipeline.ranking.show import write_ranking
    from ctrpipe.pipeline.run.trained_model import find_model

    folder = None if output is None else pathlib.Path(output)
    files = files_of(data, None if folder is None else folder / FOLDER)
    report = rank(find_model(folder_of(model)), files, group, item, [k] if isinstance(k, int) else k)
    if folder is not None:
        write_ranking(report, folder)
    return Ranking(report)
