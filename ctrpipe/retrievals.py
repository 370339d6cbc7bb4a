"""Each user's best items, by a model with towers."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any, Literal

from ctrpipe.data import Data, PathLike, files_of, new_folder
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result
from ctrpipe.runs import Run, folder_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False)
class Retrieval(Result):
    """A version with an index of items, and what it answered. Its table has the counts; `to_pandas` has a row for each
    item of each answer: the query's file and line, the item's place from 1, the item and its score.

    Attributes:
        version: The folder of the version with the index.
        items: Items that were written into the index; None where the model had it before.
        recall: What the approximate index finds of the exact one's answers; None where there is none.
        answers: The Parquet file with the items of each row of the queries; None where there were none.
        rows: Rows that were answered.
        malformed: Malformed lines of the queries.
    """

    version: pathlib.Path
    items: int | None
    recall: float | None
    answers: pathlib.Path | None
    rows: int
    malformed: int

    def _records(self) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq  # 0.2 s that a retrieval which is only shown does without

        if self.answers is None:
            return []
        return [
            {"file": row["file"], "line": row["line"], "place": place, "item": _text(item), "score": score}
            for row in pq.read_table(self.answers).to_pylist()
            for place, (item, score) in enumerate(zip(row["items"], row["scores"], strict=True), 1)
        ]

    def _table(self) -> Table:
        names = ("items", "recall", "answers", "rows", "malformed")
        return Table([str(self.version), ""], [[name, getattr(self, name)] for name in names])

    @in_one_line
    def plot(self) -> "Figure":
        """Returns the mean score of the answers by the item's place."""
        from ctrpipe.figures import chart_figure  # matplotlib: 0.4 s
        from ctrpipe.pipeline.report.svg import Chart, Line

        means = self.to_pandas().groupby("place")["score"].mean()
        line = Line("mean over the rows", means.index.tolist(), means.tolist())
        return chart_figure([Chart("Scores of the answers", [line], ("place", "score"))])


def _text(item: bytes) -> str:
    return item.decode("utf-8", "replace")


@in_one_line
def retrieve(
    model: PathLike | Run,
    items: Data | None = None,
    *,
    queries: Data | None = None,
    output: PathLike | None = None,
    answers: PathLike | None = None,
    item: str | None = None,
    top: int = 100,
    index: Literal["exact", "approximate"] = "exact",
    recall: float = 0.95,
    cells: int | None = None,
) -> Retrieval:
    """Finds each user's best items by a model with towers (two_tower, starspace), as `ctrpipe retrieve` does.

    With `output` the model is written as a version with an index of the items, which also answers `serving_retrieve`;
    with `queries` such a version answers users.

    Args:
        model: A run, the folder of a model's versions, or one version.
        items: A log of the items: files or globs, a DataFrame or a pyarrow Table; None for the run's rows.
        queries: A log of the users, of the same kinds; None to answer nobody.
        output: The folder of versions for one with the index; None where the model has its index.
        answers: The Parquet file for each user's items; None for one that goes with this process.
        item: The column of the items' names; None for the one that a history shares its items with.
        top: Items in an answer.
        index: "approximate": one that reads a part of the items, beside the exact one; it answers the queries.
        recall: The share of the exact index's answers that the approximate one finds.
        cells: Into which the items are divided; None for 4 times the root of their number.

    Raises:
        InputError: the model has no towers or no index, a log cannot be used, or there is nothing to do.

    Example:
        >>> best = ctrpipe.retrieve("runs/mine", films, queries=users, output="indexed/ctr", top=10)
        >>> best.to_pandas().groupby("line")["item"].first()
    """
    from ctrpipe.common.libraries import load_tensorflow

    load_tensorflow()
    # TensorFlow, numpy and pyarrow: 4 s that `import ctrpipe` does without.
    from ctrpipe.pipeline.retrieval.retrieve import Approximate
    from ctrpipe.pipeline.retrieval.retrieve import retrieve as retrieve_items

    if queries is not None and answers is None:
        answers = new_folder() / "answers.parquet"
    done = retrieve_items(
        folder_of(model),
        files_of(items, None),
        None if output is None else pathlib.Path(output),
        files_of(queries, None),
        None if answers is None else pathlib.Path(answers),
        item,
        top,
        index,
        Approximate(recall, cells),
    )
    made, answered = done.indexed, done.answered
    return Retrieval(
        done.version,
        None if made is None else len(made.found.names),
        None if made is None or made.recall is None else made.recall.share,
        None if answers is None else pathlib.Path(answers),
        0 if answered is None else answered.rows,
        0 if answered is None else answered.malformed,
    )
