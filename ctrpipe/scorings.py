"""A log with a probability for every line."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

from ctrpipe.data import Data, PathLike, files_of, new_folder
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result
from ctrpipe.runs import Run, versions_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FOLDER = "_data"  # below the folder of scores: tables that were in memory; a reader of the scores passes over it


@dataclasses.dataclass(frozen=True, repr=False)
class Scoring(Result):
    """A scored log. Its table has the counts; `to_pandas` has a row for each line of the log, in the log's order: file,
    line, `ctr` and further tasks, without a value where the line is malformed, and the model's version.

    Attributes:
        output: The folder of its Parquet files.
        rows: Lines of the log.
        scored: Lines with a score.
        rejected: Malformed lines.
        model_version: The version that scored them.
        scores: By column its `mean`, how many are `not_finite`, and a `histogram` of bins of equal width from 0 to 1.
        drift: How far the log is from that of training, column by column, as `ctrpipe.drift` has it; None where the
            model does not know its training rows.
    """

    output: pathlib.Path
    rows: int
    scored: int
    rejected: int
    model_version: str
    scores: dict[str, dict[str, Any]]
    drift: dict[str, Any] | None

    @in_one_line
    def to_pandas(self) -> "pd.DataFrame":
        """Returns the scores as a pandas DataFrame, a row for each line of the log."""
        import pyarrow as pa
        import pyarrow.parquet as pq  # 0.2 s that a scoring which is only shown does without

        return pa.concat_tables(map(pq.read_table, sorted(self.output.glob("part-*.parquet")))).to_pandas()

    def _table(self) -> Table:
        rows = [[name, getattr(self, name)] for name in ("rows", "scored", "rejected", "model_version")]
        return Table([str(self.output), ""], [*rows, *([name, of["mean"]] for name, of in self.scores.items())])

    @in_one_line
    def plot(self) -> "Figure":
        """Returns a histogram of the scores of each task."""
        from ctrpipe.figures import chart_figure  # matplotlib: 0.4 s
        from ctrpipe.pipeline.report.svg import Chart, Line

        charts = []
        for name, of in self.scores.items():
            counts = of["histogram"]
            edges = [place / len(counts) for place in range(len(counts) + 1)]
            charts.append(Chart(f"Scores: {name}", [Line(name, edges, counts)], ("score", "lines"), is_histogram=True))
        return chart_figure(charts)


@in_one_line
def score(model: PathLike | Run, data: Data, output: PathLike | None = None, *, workers: int | None = None) -> Scoring:
    """Scores every line of a raw log, labelled or not, and writes Parquet files; an interrupted scoring is resumed.

    Args:
        model: A run that was pushed, the folder of a model's versions (the newest is used), or one version.
        data: The log: files or globs, a DataFrame or a pyarrow Table.
        output: The output folder; None for one that goes with this process.
        workers: Parts of the log scored at a time; None: one for each core.

    Raises:
        InputError: the model, the log or the folder cannot be used.

    Example:
        >>> frame["ctr"] = ctrpipe.score("runs/mine/models/ctr", frame).to_pandas()["ctr"].to_numpy()
    """
    from ctrpipe.common.libraries import load_tensorflow

    load_tensorflow()
    # TensorFlow and TFDV: 4 s that `import ctrpipe` does without.
    from ctrpipe.pipeline.monitoring.score_log import score_log

    folder = new_folder() if output is None else pathlib.Path(output)
    found = score_log(versions_of(model), files_of(data, folder / FOLDER), folder, workers)
    counts = (found.rows, found.scored, found.rejected, found.model_version)
    return Scoring(folder, *counts, found.scores, found.drift)
