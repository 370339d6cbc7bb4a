"""Retrieve the best items of each user with a two-tower model."""

import contextlib
import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any, Literal

import pyarrow.parquet as pq

from ctrpipe.bar import with_bar
from ctrpipe.common.charts import Chart, Line, chart_figure
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.store_folders import written_file
from ctrpipe.common.stores import name_of
from ctrpipe.data import Data, PathLike, files_of, new_folder, place_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result
from ctrpipe.runs import ModelLike, folder_of
from ctrpipe.serving.stored import versions_at
from ctrpipe.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False)
class Retrieval(Result):
    """A model version with an item index, and the items retrieved for the queries.

    The table has the counts. `to_pandas` has one row per query and item: file and line of the query, place of the item
    (from 1), item and score.

    Attributes:
        version: The folder of the version with the index.
        items: Number of items in the index; None if no index was asked for.
        recall: The share of the exact results that the approximate index finds; None if no such index was built.
        answers: The Parquet file with the items of each query; None without queries.
        rows: Number of queries answered.
        malformed: Number of malformed query lines.
    """

    version: pathlib.Path
    items: int | None
    recall: float | None
    answers: pathlib.Path | None
    rows: int
    malformed: int

    def _records(self) -> list[dict[str, Any]]:
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
        """Plots the mean score by rank."""
        means = self.to_pandas().groupby("place")["score"].mean()
        line = Line("mean over the rows", means.index.tolist(), means.tolist())
        return chart_figure([Chart("Scores of the answers", [line], ("place", "score"))])


def _text(item: bytes) -> str:
    return item.decode("utf-8", "replace")


@in_one_line
@with_bar
def retrieve(
    model: ModelLike,
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
    """Builds an item index for a two-tower model, and retrieves the best items of each user.

    Works with the models two_tower and starspace. Given `output`, exports a version with an index of the items. This
    version also has the signature `serving_retrieve`. Given `queries`, retrieves the best items of each query from such
    a version.

    Args:
        model: A run, the folder of a model's versions, or one version.
        items: A log with the items: files or globs, a DataFrame or a pyarrow Table. None uses the run's training rows.
        queries: A log with the users, of the same types as `items`. None retrieves nothing.
        output: Folder of versions for the version with the index, or its URL in a store. None if `model` already has
            an index.
        answers: Parquet file for the retrieved items, or its URL. None for a temporary file, removed when the process
            ends.
        item: The column with the item. None uses the column whose vocabulary a history shares, or the first column
            with the role `item`.
        top: Number of items to retrieve per query.
        index: The index that answers the queries. "exact" scores every item. "approximate" scores only the items of
            the cells nearest to the query; it is built in addition to the exact index.
        recall: Target recall of the approximate index, relative to the exact index.
        cells: Number of cells of the approximate index. None for 4 times the square root of the number of items.

    Returns:
        A `Retrieval` with the version and the retrieved items.

    Raises:
        InputError: the model has no towers or no index, a log cannot be used, or neither `output` nor `queries` is
            given.

    Example:
        >>> best = ctrpipe.retrieve("runs/mine", films, queries=users, output="indexed/ctr", top=10)
        >>> best.to_pandas().groupby("line")["item"].first()
    """
    load_tensorflow()
    # Lazy: TensorFlow takes 3 s to import.
    from ctrpipe.pipeline.retrieval.retrieve import Approximate
    from ctrpipe.pipeline.retrieval.retrieve import retrieve as retrieve_items

    if queries is not None and answers is None:
        answers = new_folder() / "answers.parquet"
    source = folder_of(model)
    with contextlib.ExitStack() as written:
        versions = None if output is None else written.enter_context(versions_at(place_of(output))).folder
        file = None
        if answers is not None:
            beside = written.enter_context(written_file(place := place_of(answers), new_folder()))
            file = beside.folder / name_of(place)
        done = retrieve_items(
            source,
            files_of(items, None),
            versions,
            files_of(queries, None),
            file,
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
        file,
        0 if answered is None else answered.rows,
        0 if answered is None else answered.malformed,
    )
