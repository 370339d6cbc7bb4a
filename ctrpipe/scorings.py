"""Score every line of a log in batch."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ctrpipe.bar import with_bar
from ctrpipe.common.charts import Histogram, Line, chart_figure
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.store_folders import work_folder
from ctrpipe.common.stores import is_url
from ctrpipe.data import Data, PathLike, index_of, needed_files_of, new_folder, place_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result
from ctrpipe.runs import ModelLike, versions_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False)
class Scoring(Result):
    """A scored log. The table has the counts; see `to_pandas` for the scores.

    Attributes:
        output: The folder of the Parquet files.
        rows: Number of lines in the log.
        scored: Number of lines with a score.
        rejected: Number of malformed lines.
        model_version: The model version that scored the log.
        scores: Per task, the `mean` of the scores, the number of `not_finite` scores, which are null in the files, the
            `first_not_finite` as `file:line` or None, and a `histogram` with bins of equal width from 0 to 1.
        drift: The distance of each column from the training log, as in `ctrpipe.drift`. None if the model has no
            statistics of its training rows.
        index: The index of the scored pandas DataFrame; None for another log.
        mixtures: A line for each column of JSON whose rows contradict each other, as a number 2139 and a text 02139 do.
    """

    output: pathlib.Path
    rows: int
    scored: int
    rejected: int
    model_version: str
    scores: dict[str, dict[str, Any]]
    drift: dict[str, Any] | None
    index: "pd.Index | None" = None
    mixtures: list[str] = dataclasses.field(default_factory=list)

    @in_one_line
    def to_pandas(self) -> "pd.DataFrame":
        """Returns the scores as a pandas DataFrame with one row per line of the log, in the order of the log.

        The columns are file, line, `ctr`, one per further task, and the model version. Malformed lines have no score.
        The scores of a DataFrame have its index instead of file and line:
        `frame["ctr"] = scoring.to_pandas()["ctr"]` assigns each row its own score.
        """
        scores = pa.concat_tables(map(pq.read_table, sorted(self.output.glob("part-*.parquet")))).to_pandas()
        return scores if self.index is None else scores.drop(columns=["file", "line"]).set_index(self.index)

    def _table(self) -> Table:
        rows = [[name, getattr(self, name)] for name in ("rows", "scored", "rejected", "model_version")]
        rows += [[f"{name}: not finite", of["not_finite"]] for name, of in self.scores.items() if of["not_finite"]]
        rows += [["mixed values", line] for line in self.mixtures]
        return Table([str(self.output), ""], [*rows, *([name, of["mean"]] for name, of in self.scores.items())])

    @in_one_line
    def plot(self) -> "Figure":
        """Plots a histogram of the scores of each task that predicts a probability."""
        charts = []
        for name, of in self.scores.items():
            if (counts := of["histogram"]) is None:
                continue
            edges = [place / len(counts) for place in range(len(counts) + 1)]
            charts.append(Histogram(f"Scores: {name}", [Line(name, edges, counts)], ("score", "lines")))
        return chart_figure(charts)


@in_one_line
@with_bar
def score(
    model: ModelLike,
    data: Data,
    output: PathLike | None = None,
    *,
    workers: int | None = None,
    keep: Sequence[str] = (),
) -> Scoring:
    """Scores every line of a raw log, labelled or not, and writes the scores to Parquet files.

    After an interruption, the same call continues the scoring.

    Args:
        model: A run whose model was pushed or its folder, the folder of a model's versions (the newest is used), or one
            version.
        data: The log: files or globs, a DataFrame or a pyarrow Table.
        output: Output folder, or its URL in a store. None for a temporary folder, removed when the process ends.
        workers: Number of parts of the log scored in parallel. None for one per core.
        keep: Columns of the log, features or not, to copy next to the scores as text.

    Returns:
        A `Scoring` with the counts, the score distribution and the drift from the training log.

    Raises:
        InputError: the model, the log or the folder cannot be used.

    Example:
        >>> frame["ctr"] = ctrpipe.score("runs/mine", frame).to_pandas()["ctr"]
    """
    load_tensorflow()
    # Lazy: TensorFlow and TFDV take 4 s to import.
    from ctrpipe.pipeline.monitoring.score_log import score_log
    from ctrpipe.serving.scoring.folder import DATA, unread_rows_removed

    place = str(new_folder()) if output is None else place_of(output)
    folder = work_folder(place) if is_url(place) else pathlib.Path(place)
    versions = versions_of(model)
    with unread_rows_removed(folder):
        files = needed_files_of(data, folder / DATA)
        result = score_log(versions, files, place, workers, kept=[keep] if isinstance(keep, str) else list(keep))
    counts = (result.rows, result.scored, result.rejected, result.model_version)
    return Scoring(folder, *counts, result.scores, result.drift, index_of(data), result.mixtures)
