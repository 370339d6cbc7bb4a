"""Measures a version's item indexes, exact and approximate, against FAISS and ScaNN.

    python -m benchmarks.retrieval DIR/1 [--items 10000,100000,1000000] [--recall 0.95] [--against faiss,scann]

The vectors are drawn around random directions, because a trained tower's vectors lie in clusters. Without clusters, an
index has to read most cells.
"""

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Group
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    chosen_names,
    cores,
    positive_numbers,
)
from benchmarks.harness.result_table import Cell, if_any, result_table
from benchmarks.harness.turns import alternate, in_turn, spread
from benchmarks.peers.index_client import EXACT, INDEXES, IndexPeer
from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce

TOP, SEED = 100, 1
TUNING = 1000  # users for tuning the indexes, in addition to the timed users
QUERIES = 16  # users whose products with all items are in memory at once
CALL = "call"  # an identity signature: the time of a call without a search
Vectors = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
Search = Callable[[Vectors], tuple[list[float], Places]]


@dataclasses.dataclass(frozen=True)
class Data:
    """Vectors, float32 [..., width].

    Attributes:
        items: The indexed items.
        tuning: Users for tuning the indexes.
        users: Users for timing and recall.
    """

    items: Vectors
    tuning: Vectors
    users: Vectors


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The distribution of the vectors.

    Attributes:
        clusters: Number of directions around which the vectors lie; 0: uniform.
        spread: Expected length of the noise added to a direction of length 1.
    """

    clusters: int
    spread: float

    def draw(self, items: int, users: int, width: int) -> Data:
        """Returns unit vectors of items and users from the same clusters."""
        random = np.random.default_rng(SEED)
        centers = _unit(random.normal(size=(self.clusters, width)).astype(np.float32))

        def vectors(count: int) -> Vectors:
            noise = random.normal(size=(count, width)).astype(np.float32)
            if not self.clusters:
                return _unit(noise)
            chosen = centers[random.integers(0, self.clusters, count)]
            return _unit(chosen + np.float32(self.spread / np.sqrt(width)) * noise)

        return Data(vectors(items), vectors(TUNING), vectors(users))


def _unit(vectors: Vectors) -> Vectors:
    lengths: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def read_vectors(file: pathlib.Path, users: int, width: int) -> Data:
    """Returns the vectors of an .npz file with `items` and `users`; at most half of the users are timed.

    Raises:
        InputError: The file lacks one of them, or their width differs from the version's.
    """
    try:
        with np.load(file) as arrays:
            items, given = (arrays[name].astype(np.float32) for name in ("items", "users"))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"--vectors {file}: expected an .npz file with items and users ({error})") from error
    if items.shape[1:] != (width,) or given.shape[1:] != (width,) or len(given) < 2:
        raise InputError(f"--vectors {file}: expected items and two users or more of {width} numbers, as the version's")
    timed = min(users, len(given) // 2)
    return Data(items, given[timed : timed + TUNING], given[:timed])


def best_places(users: Vectors, items: Vectors, top: int) -> Places:
    """Returns the positions of each user's items with the largest products, int64 [N, top], in any order."""
    parts = [users[start : start + QUERIES] @ items.T for start in range(0, len(users), QUERIES)]
    return np.concatenate([np.argpartition(-products, top - 1, axis=1)[:, :top] for products in parts])


def recall(found: Places, best: Places) -> float:
    """Returns the share of the best positions, [N, top], that are among the found ones, [N, top]."""
    both = [len(np.intersect1d(*pair)) for pair in zip(found, best, strict=True)]
    return float(np.sum(both) / best.size)


@dataclasses.dataclass(frozen=True)
class Index:
    """An index to search.

    Attributes:
        search: Searches for users one by one; returns milliseconds and positions.
        setting: Number of cells or graph candidates to read; None: all.
        seconds: Build time; None if not measured separately.
    """

    search: Search
    setting: int | None = None
    seconds: float | None = None


def in_rounds(indexes: Mapping[str, Index], data: Data, best: Places, rounds: int) -> list[dict[str, Any]]:
    """Returns each index's spread of milliseconds and its recall, in `rounds` alternating rounds over all users."""
    searches = {name: lambda index=index: index.search(data.users) for name, index in indexes.items()}
    results = []
    for name, (_, *of_index) in alternate(searches, rounds + 1).items():  # the first round warms up
        index, (_, places) = indexes[name], of_index[-1]
        about = {"index": name, "setting": index.setting, "build_s": index.seconds, "recall": recall(places, best)}
        results.append(about | {"ms": spread([ms for taken, _ in of_index for ms in taken])})
    return results


def save_searches(index: Any, width: int, path: pathlib.Path) -> None:
    """Writes a SavedModel with the signatures of an ItemIndex, whose inputs are users' vectors, and CALL."""
    import tensorflow as tf

    given = tf.TensorSpec([None, width], tf.float32, "vectors")

    def signature(name: str) -> Any:
        return tf.function(lambda vectors: index.best(name, vectors), autograph=False).get_concrete_function(given)

    nothing = tf.function(lambda vectors: {"vectors": tf.identity(vectors)}).get_concrete_function(given)
    tf.saved_model.save(index, str(path), {name: signature(name) for name in index.signatures} | {CALL: nothing})


def our_search(servable: Any, signature: str) -> Search:
    """Returns the search by a signature of `save_searches`, where items are named by their positions."""

    def search(users: Vectors) -> tuple[list[float], Places]:
        taken, places = [], []
        for row in range(len(users)):
            user = {"vectors": users[row : row + 1]}
            began = time.perf_counter()
            answer = servable.run(signature, user)
            taken.append(1000 * (time.perf_counter() - began))
            places.append(answer["items"][0].astype(np.int64))
        return taken, np.array(places)

    return search


class IndexedVersion:
    """A version with towers, and indexes of vectors of its width.

    Args:
        version: The folder of the version.
        threads: Threads of a session, and of a peer whose search supports several.
        calls: Number of timed users.
        rounds: Number of alternating rounds.
        share: Required recall of the approximate indexes.
        cells: Number of cells of the items; None: 4 times the square root of their number.
        peers: The peers to compare with.

    Raises:
        InputError: The version has no towers.
    """

    def __init__(
        self,
        version: pathlib.Path,
        threads: int,
        calls: int,
        rounds: int,
        share: float,
        cells: int | None,
        peers: Sequence[IndexPeer],
    ):
        from ctrpipe.serving.assets import GoldenRows
        from ctrpipe.serving.export.export import USER_VECTORS, VECTORS
        from ctrpipe.serving.layout import Asset, asset_path
        from ctrpipe.serving.loader import Servable
        from ctrpipe.serving.server.options import parse_flags
        from ctrpipe.serving.server.session_options import session_config

        self.version, self.threads, self.calls, self.rounds = version, threads, calls, rounds
        self.share, self.cells, self.peers = share, cells, peers
        self.config = session_config(parse_flags([f"--model_base_path={version.parent}"]))  # as in the server
        self.config.intra_op_parallelism_threads = threads
        servable = Servable(version, config=self.config)
        try:
            if USER_VECTORS not in servable.signatures:
                raise InputError(f"{version}: the model has no towers; give a version of two_tower")
            golden = GoldenRows.load(asset_path(version, Asset.GOLDEN))
            self.user = {name: golden.raw[name][:1] for name in servable.signatures[USER_VECTORS].inputs}
            self.width: int = servable.run(USER_VECTORS, self.user)[VECTORS].shape[1]
        finally:
            servable.close()

    def measure(self, data: Data) -> dict[str, Any]:
        """Returns the size of a version with the items, the ms of its calls, and the ms of the searches alone."""
        from ctrpipe.pipeline.retrieval.cells import default_cells, divided
        from ctrpipe.serving.export.retrieval import ItemIndex

        items, top = len(data.items), min(TOP, len(data.items))
        count = min(self.cells or default_cells(items), items)
        began = time.perf_counter()
        cells, _ = divided(data.items, data.tuning, count, top, self.share)
        seconds = time.perf_counter() - began
        announce(f"{items:,} items: {count:,} cells, {cells.probes:,} of them are read")
        names = np.array([b"%d" % number for number in range(items)], object)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            whole = self._whole(names, data.items, top, cells, path / "1")
            save_searches(ItemIndex(names, data.items, top, cells), self.width, path / "searches")
            searches = self._searches(data, top, count, cells.probes, seconds, path / "searches")
        return {"items": items, "cells": count, "probes": cells.probes, **whole, **searches}

    def _whole(self, names: Any, vectors: Vectors, top: int, cells: Any, path: pathlib.Path) -> dict[str, Any]:
        """Returns the size of a version with the items, and the ms of its alternating calls with the golden row."""
        from ctrpipe.serving.export.export import USER_VECTORS, VECTORS
        from ctrpipe.serving.export.retrieval import APPROXIMATE, RETRIEVE, add_index
        from ctrpipe.serving.loader import Servable

        began = time.perf_counter()
        add_index(self.version, names, vectors, top, path, cells)
        written = time.perf_counter() - began
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        servable = Servable(path, config=self.config)
        try:
            answer = servable.run(RETRIEVE, self.user)
            products = servable.run(USER_VECTORS, self.user)[VECTORS] @ vectors.T
            if not np.allclose(answer["scores"], -np.sort(-products, axis=1)[:, :top], atol=1e-5):
                raise RuntimeError(f"{len(vectors):,} items: the index does not answer the largest products")
            signatures = {"retrieve_ms": RETRIEVE, "approximate_ms": APPROXIMATE, "user_ms": USER_VECTORS}
            calls = {key: lambda name=name: servable.run(name, self.user) for key, name in signatures.items()}
            times = in_turn(calls, self.calls)
        finally:
            servable.close()
        taken = {key: spread([1000 * seconds for seconds in times[key]["seconds"]]) for key in signatures}
        return {"write_s": written, "bytes": size, **taken}

    def _searches(
        self, data: Data, top: int, cells: int, probes: int, seconds: float, path: pathlib.Path
    ) -> dict[str, Any]:
        """Returns the ms of a call without a search, and the ms and recall of each index."""
        from ctrpipe.serving.export.retrieval import APPROXIMATE, RETRIEVE
        from ctrpipe.serving.loader import Servable

        servable = Servable(path, config=self.config)
        try:
            user = {"vectors": data.users[:1]}
            call = in_turn({CALL: lambda: servable.run(CALL, user)}, self.calls)[CALL]["seconds"]
            indexes = {
                "exact": Index(our_search(servable, RETRIEVE)),
                "approximate": Index(our_search(servable, APPROXIMATE), probes, seconds),
                **self._of_peers(data, top, cells),
            }
            results = in_rounds(indexes, data, best_places(data.users, data.items, top), self.rounds)
        finally:
            servable.close()
        return {"call_ms": spread([1000 * each for each in call]), "searches": results}

    def _of_peers(self, data: Data, top: int, cells: int) -> dict[str, Index]:
        """Returns the peers' indexes of the items, tuned with the same users to the same recall."""
        best, indexes = best_places(data.tuning, data.items, top), {}
        for peer in self.peers:
            peer.load(data.items, data.tuning, best, self.threads)
            for kind in INDEXES[peer.name]:
                built = peer.build(kind, cells, self.share)
                announce(f"{peer.name} {kind}: built in {built['seconds']:.1f} s")
                setting = None if kind in EXACT else int(built["setting"])
                search = functools.partial(peer.search, kind)
                indexes[f"{peer.name} {kind}"] = Index(search, setting, built["seconds"])
        return indexes


def tables(report: Mapping[str, Any]) -> Group:
    return Group(calls_table(report["results"]), searches_table(report["results"], report["threads"]))


def calls_table(results: Sequence[Mapping[str, Any]]) -> Table:
    columns: dict[str, Cell] = {
        "items": "{items:,}",
        "version, MiB": lambda one: f"{one['bytes'] / 2**20:,.0f}",
        "written in s": "{write_s:.1f}",
        "exact, ms": "{retrieve_ms[median]:.2f}",
        "exact, least": "{retrieve_ms[min]:.2f}",
        "approximate, ms": "{approximate_ms[median]:.2f}",
        "approximate, least": "{approximate_ms[min]:.2f}",
        "user's vector alone, ms": "{user_ms[median]:.2f}",
    }
    return result_table(f"One user's {TOP} best items, the whole call", columns, results)


def searches_table(results: Sequence[Mapping[str, Any]], threads: int) -> Table:
    rows: list[dict[str, Any]] = []
    for one in results:
        rows.append({"items": f"{one['items']:,}", "index": CALL, "reads": "", "ms": one["call_ms"]})
        for each in one["searches"]:
            reads = "all" if each["setting"] is None else f"{each['setting']:,}"
            rows.append({**each, "items": "", "reads": reads})
    columns: dict[str, Cell] = {
        "items": "{items}",
        "index": "{index}",
        "it reads": "{reads}",
        "recall@100": if_any("recall", "{recall:.4f}"),
        "ms, median": "{ms[median]:.3f}",
        "ms, least": "{ms[min]:.3f}",
        "built in s": if_any("build_s", "{build_s:.1f}"),
    }
    title = f"The search alone, by a user's vector, {threads} threads; a call without a search is `{CALL}`"
    return result_table(title, columns, rows)


@Benchmark("benchmarks.retrieval", tables)
@click.argument("version", type=click.Path(path_type=pathlib.Path, exists=True, file_okay=False))
@click.option("--items", default="10000,100000,1000000", help="Numbers of items, separated by commas.")
@click.option("--clusters", type=click.IntRange(0), default=1000, help="Clusters of the drawn vectors; 0: uniform.")
@click.option(
    "--spread", type=click.FloatRange(0), default=1.0, help="Length of the noise added to the clusters' unit centers."
)
@click.option("--vectors", type=click.Path(path_type=pathlib.Path), help="An .npz file with items and users to use.")
@click.option("--recall", type=click.FloatRange(0, 1, min_open=True), default=0.95, help="Recall to reach.")
@click.option("--cells", type=click.IntRange(1), help="Cells of an index. Default: 4 times the root of the items.")
@click.option("--calls", type=click.IntRange(1), default=200, help="Number of timed users, one per call.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Rounds over all users, alternating between indexes.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the session and of FAISS. Default: all cores.")
@click.option("--against", metavar="A,B", help=f"Peers to compare with: {', '.join(INDEXES)} (`make peers`).")
def main(
    report: Report,
    version: pathlib.Path,
    items: str,
    clusters: int,
    spread: float,
    vectors: pathlib.Path | None,
    recall: float,
    cells: int | None,
    calls: int,
    rounds: int,
    threads: int | None,
    against: str | None,
) -> None:
    """Time the retrieval of one user's 100 best items: a version's exact and approximate index, and other libraries.

    VERSION is the folder of a two_tower version. TF Serving's loader calls `serving_retrieve` and its approximate
    counterpart with the golden row, alternating; at every size the exact index is checked to return the largest
    products. The searches alone, ours in the same loader, FAISS's (IndexFlatIP, IndexIVFFlat with as many cells,
    IndexHNSWFlat) and ScaNN's (a tree with as many cells; its search takes one thread), take one other user per call.
    Each approximate index reads the minimum that reaches --recall for 1,000 tuning users; the table shows the recall of
    the timed users. Prints two tables, writes JSON, and prints the JSON on the last line.
    """
    sizes = positive_numbers("--items", items)
    threads = threads or cores()
    names = chosen_names("--against", against, INDEXES) if against else ()
    report.add_load()
    load_tensorflow()
    report |= {"calls": calls, "rounds": rounds, "threads": threads, "clusters": clusters, "spread": spread}
    report |= {"vectors": vectors and str(vectors), "recall": recall, "results": []}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(IndexPeer(name)) for name in names]
        indexed = IndexedVersion(version, threads, calls, rounds, recall, cells, peers)
        if vectors is None:
            mixture = Mixture(clusters, spread)
            given = (mixture.draw(size, calls, indexed.width) for size in sizes)
        else:
            given = iter([read_vectors(vectors, calls, indexed.width)])
        for data in given:
            report["results"].append(indexed.measure(data))
            report.write()


if __name__ == "__main__":
    main()
