"""Ranks each user's last event among others, as the papers do: popularity, item-KNN, FISM and NAIS on one log.

    python -m benchmarks.ranking u.data [--seeds 3] [--set training.learning_rate=0.001] [--against none]
    python -m benchmarks.ranking ml-1m

The log is MovieLens' `u.data` (100K), a folder with it, or one with `ratings.dat` (1M). A user's last rating is the
test, among 99 films that the user has not rated; the one before is for validation. All sides rank the same lists.
HR@10 and NDCG@10 are means over users, of the models over seeds too, with 95% intervals by the users.

RecBole's FISM and NAIS train on the same packed rows with the same histories, widths, batches and learning rate, at
most as many passes, and to the best of the same metric on the same validation rows. The NAIS "after FISM" of either
library begins with the embeddings of its own FISM of the same seed, whose passes come on top of its own. The learning
rate stays as it is in all trainings: RecBole lowers none. Both libraries train at the same time, so no seconds are
compared.
"""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import scipy.sparse
from rich.table import Table

from benchmarks.harness.command import command, finish, folder_option, output_option
from benchmarks.peers.client import Peer
from common.errors import InputError
from common.files import atomic_path
from common.libraries import load_tensorflow
from common.processes import cores
from common.progress import announce
from pipeline.config import RunConfig, load_config
from pipeline.evaluation.lists import Lists, hit_rate, ndcg
from pipeline.packaged_configs import configs_folder
from pipeline.prepared import joined
from pipeline.run import transform
from pipeline.run_folder import check_output, one_run_at_a_time
from transforms.log.payload import payload_files

K = 10
NEIGHBOURS = 100  # of item-KNN, as RecBole's ItemKNN
AFTER_FISM = "nais after fism"
# Of the models' sides: the configuration of configs/ml_100k, and what is set beside it.
MODELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fism": ("fism", ()),
    "nais": ("nais", ()),
    AFTER_FISM: ("nais", ("training.stages.fism.skip=false",)),
}
SAME_RATE = "training.plateau=null"
PAIRS = (
    (AFTER_FISM, "fism"),
    ("nais", "fism"),
    (AFTER_FISM, "nais"),
    ("fism", "item_knn"),
    (AFTER_FISM, "item_knn"),
    ("item_knn", "popularity"),
)
COLUMNS = ["user", "item"]


def events_file(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Returns the event log of a file or a folder of MovieLens; that of ML-1M is written with tabs for its `::`.

    Raises:
        InputError: the folder has neither u.data nor ratings.dat.
    """
    if source.is_file():
        return source
    for name in ("u.data", "u.data.gz"):
        if (source / name).is_file():
            return source / name
    if not (source / "ratings.dat").is_file():
        raise InputError(f"{source}: neither u.data nor ratings.dat is in it; give a folder of MovieLens 100K or 1M")
    written = folder / "ratings.tsv"
    with open(source / "ratings.dat", encoding="latin-1") as lines, atomic_path(written) as unfinished:
        with open(unfinished, "w") as output:
            output.writelines(line.replace("::", "\t") for line in lines)
    return written


class Log:
    """What came before the test, and the test's lists, one a user.

    Args:
        past: Events: user and item.
        test: Candidates: user, item and label.
    """

    def __init__(self, past: pa.Table, test: pa.Table):
        names = {name: pc.unique(pa.chunked_array([*past[name].chunks, *test[name].chunks])) for name in COLUMNS}
        codes = [
            [pc.index_in(rows[name], value_set=names[name]).to_numpy() for name in COLUMNS] for rows in (past, test)
        ]
        shape = tuple(len(names[name]) for name in COLUMNS)
        self.events = scipy.sparse.csr_matrix((np.ones(past.num_rows), tuple(codes[0])), shape)
        users, items = (values.astype(np.int64) for values in codes[1])
        self.lists = Lists(users, items, test["label"].to_numpy())

    def popularity(self) -> np.ndarray:
        """Returns how many events the items of the test rows have, float64 `[N]`."""
        counts: np.ndarray = np.asarray(self.events.sum(axis=0)).ravel()[self.lists.items]
        return counts

    def item_knn(self) -> np.ndarray:
        """Returns the sums of the cosines of the test rows' items with their users' items, float64 `[N]`.

        Of each item, only the NEIGHBOURS largest cosines count.

        References:
            Deshpande and Karypis, "Item-Based Top-N Recommendation Algorithms", 2004.
        """
        norms = np.sqrt(np.asarray(self.events.power(2).sum(axis=0)).ravel())
        unit = self.events @ scipy.sparse.diags(1 / np.maximum(norms, 1e-12))
        cosines = (unit.T @ unit).toarray()
        np.fill_diagonal(cosines, 0)
        if NEIGHBOURS < len(cosines):
            least = np.partition(cosines, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS]
            cosines[cosines < least[:, None]] = 0
        sums = self.events @ cosines.T
        scores: np.ndarray = sums[self.lists.lists, self.lists.items]
        return scores


def by_user(lists: Lists, scores: np.ndarray) -> dict[str, np.ndarray]:
    """Returns HR@K and NDCG@K of the lists that are judged, [users] each."""
    ranks, judged = lists.ranks(scores), lists.judged()
    return {"HR": hit_rate(lists, ranks, K)[judged], "NDCG": ndcg(lists, ranks, K)[judged]}


def summary(values: np.ndarray) -> dict[str, float]:
    """Returns the mean of users' values and the half width of its 95% interval."""
    return {"mean": float(values.mean()), "half": float(1.96 * values.std(ddof=1) / np.sqrt(len(values)))}


@dataclasses.dataclass(frozen=True)
class Trained:
    """One training.

    Attributes:
        scores: The logits, or a peer's probabilities, of the test rows, `[N]`.
        validation_auc: The best, whose weights rank.
        evaluations: How often the validation rows were evaluated, a first stage not included.
    """

    scores: np.ndarray
    validation_auc: float
    evaluations: int


def trained(config: RunConfig, log: Any, folder: pathlib.Path, seed: int) -> Trained:
    """Trains one of our models; a training that has ended in the folder is taken as it is."""
    from pipeline.training.data import packed_batches, prediction_rows  # Keras: after TensorFlow
    from pipeline.training.train import train

    fields = log.feature_map
    result = train(config.model, config.training, fields, log.train, log.validation, seed, folder)
    _, logits = result.learner.predict(packed_batches(log.test, fields, prediction_rows(fields)))
    done = result.progress.evaluations
    return Trained(logits[:, 0], max(each["validation_auc"] for each in done), len(done))


def write_peer_rows(log: Any, path: pathlib.Path) -> None:
    """Writes the rows of all splits for `Peer.fit`: item, user and the history's items, 0 where there is none."""
    from pipeline.training.data import packed_reader  # Keras: after TensorFlow

    fields = log.feature_map
    named = {field.name: field for field in fields.fields}
    user, item = (named[name] for name in ("user", "item"))
    (history,) = (field for field in fields.fields if field.kind == "sequence")
    arrays = {"sizes": np.array([item.size + 1, user.size])}
    for split, patterns in (("train", log.train), ("validation", log.validation), ("test", log.test)):
        batches = list(packed_reader(patterns, fields, 8192))
        ids = np.concatenate([inputs["ids"] for inputs, _ in batches])
        users, items, seen = (ids[:, fields.slots_of(field.name)] for field in (user, item, history))
        seen = np.where(seen > 0, seen - item.offset + 1, 0)
        arrays[f"{split}_ids"] = np.concatenate([items - item.offset + 1, users - user.offset, seen], axis=1)
        arrays[f"{split}_labels"] = np.concatenate([labels[:, 0] for _, labels in batches])
    with atomic_path(path) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, **arrays)


def peer_trained(
    peer: Peer, name: str, config: RunConfig, rows: pathlib.Path, folder: pathlib.Path, seed: int
) -> Trained:
    """Trains RecBole's model of a side of MODELS as ours is configured."""
    training, options = config.training, config.model.hyperparameters
    asked: dict[str, Any] = {name: getattr(training, name) for name in ("learning_rate", "batch_size", "epochs")}
    asked |= {name: getattr(training, name) for name in ("evaluations_per_epoch", "patience", "monitor")}
    asked |= {"dim": options["embedding_dim"], "attention": options.get("attention_units", 0)}
    folder.mkdir(parents=True, exist_ok=True)
    of_fism = folder / f"fism-{seed}.pth"
    if name == "fism":
        asked["keep"] = str(of_fism)
    if name == AFTER_FISM:
        asked["pretrained"] = str(of_fism)
    out = folder / "probabilities.npz"
    history = max(feature.max_length for feature in config.log_spec.features if feature.kind == "sequence")
    reply = peer.fit(MODELS[name][0], rows, out, cores(), seed=seed, history=history, **asked)
    with np.load(out) as file:
        scores: np.ndarray = file["probabilities"]
    return Trained(scores, reply["auc"], int(reply["evaluations"]))


def compared(sides: dict[str, dict[str, np.ndarray]], pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Returns the differences of pairs of sides, by the users that both were asked for."""
    return [
        {"better": better, "worse": worse, "metric": name, **summary(sides[better][name] - sides[worse][name])}
        for better, worse in pairs
        for name in ("HR", "NDCG")
    ]


@command("benchmarks.ranking")
@click.argument("source", type=click.Path(path_type=pathlib.Path, exists=True))
@click.option("--seeds", type=click.IntRange(1), default=3, help="Trainings of each model.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of configs/ml_100k.")
@click.option("--against", type=click.Choice(["recbole", "none"]), default="recbole", help="Whose models train too.")
@folder_option("ranking")
@output_option("ranking")
def main(
    source: pathlib.Path,
    seeds: int,
    settings: tuple[str, ...],
    against: str,
    folder: pathlib.Path,
    output: pathlib.Path,
) -> None:
    """Ranks with popularity, item-KNN, FISM and NAIS, ours and RecBole's, and compares them in pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    load_tensorflow()
    configs = {
        name: load_config(configs_folder() / "ml_100k" / f"{file}.yaml", (SAME_RATE, *settings, *own))
        for name, (file, own) in MODELS.items()
    }
    first = configs["fism"]
    if against != "none" and first.training.monitor != "auc":
        raise InputError("training.monitor: RecBole is judged by the AUC; set it to auc, or give --against none")
    place = folder / "log"
    check_output(place)
    data = joined([str(events_file(source, folder))], first, folder)
    with one_run_at_a_time(place):
        transformed = transform(first, data, place)
    log = Log(past_events(data), candidates(transformed.payload))
    scores: dict[str, list[np.ndarray]] = {"popularity": [log.popularity()], "item_knn": [log.item_knn()]}
    trainings: dict[str, list[dict[str, float]]] = {}
    for name, found in _trainings(configs, transformed, folder / "work", seeds, against):
        scores.setdefault(name, []).append(found.scores)
        kept = {key: value for key, value in dataclasses.asdict(found).items() if key != "scores"}
        trainings.setdefault(name, []).append(kept)
    sides = {}
    for name, found_scores in scores.items():
        each = [by_user(log.lists, one) for one in found_scores]
        sides[name] = {metric: np.mean([one[metric] for one in each], axis=0) for metric in each[0]}
    pairs = [*PAIRS, *((name, f"recbole {name}") for name in MODELS if against != "none")]
    differences = compared(sides, pairs)
    users = len(sides["nais"]["HR"])
    table = Table("", f"HR@{K}", f"NDCG@{K}", "validation AUC", "evaluations", title=f"{users:,} users, {seeds} seeds")
    for name, side in sides.items():
        table.add_row(name, *(_shown(summary(side[metric])) for metric in ("HR", "NDCG")), *_means(trainings.get(name)))
    for number in range(0, len(differences), 2):
        pair = differences[number : number + 2]
        table.add_row(f"{pair[0]['better']} - {pair[0]['worse']}", *(_shown(one) for one in pair))
    results = {name: {metric: summary(values) for metric, values in side.items()} for name, side in sides.items()}
    report = {"users": users, "seeds": seeds, "cores": cores(), "sides": results, "trainings": trainings}
    finish(report | {"differences": differences}, output, table)


def _trainings(
    configs: dict[str, RunConfig], log: Any, work: pathlib.Path, seeds: int, against: str
) -> Iterator[tuple[str, Trained]]:
    """Yields the trainings of all sides, seed by seed."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        peer, beside = None, stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        if against != "none":
            write_peer_rows(log, work / "rows.npz")
            peer = stack.enter_context(Peer(against))
        for seed in range(seeds):
            place = work / f"ours-{seed}"
            # Where the training of AFTER_FISM finds its first stage, so that no FISM is trained twice.
            folders = {"fism": place / "pretrained-fism", "nais": place / "nais", AFTER_FISM: place}
            for name, config in configs.items():
                announce(f"Training {name}, seed {seed}")
                rows, folder = work / "rows.npz", work / against
                theirs = beside.submit(peer_trained, peer, name, config, rows, folder, seed) if peer else None
                yield name, trained(config, log, folders[name], seed)
                if theirs:
                    yield f"{against} {name}", theirs.result()


def past_events(patterns: Sequence[str]) -> pa.Table:
    """Returns users and items of the positive impressions before the test, those for validation included."""
    files = [path for pattern in patterns for path in payload_files(pathlib.Path(pattern).parent)]
    rows = pa.concat_tables([pa.parquet.read_table(path, columns=["label", "part", *COLUMNS]) for path in files])
    return rows.filter(pc.and_(pc.equal(rows["label"], 1), pc.less(rows["part"], 2))).select(COLUMNS)


def candidates(payload: pathlib.Path) -> pa.Table:
    """Returns users, items and labels of a transformed log's test rows, in its order."""
    files = payload_files(payload / "Split-test")
    return pa.concat_tables([pa.parquet.read_table(path, columns=["label", *COLUMNS]) for path in files])


def _means(trainings: list[dict[str, float]] | None) -> tuple[str, ...]:
    """Returns the cells of the trainings' means."""
    if trainings is None:
        return ()
    auc, evaluations = (np.mean([one[key] for one in trainings]) for key in ("validation_auc", "evaluations"))
    return f"{auc:.4f}", f"{evaluations:.1f}"


def _shown(value: dict[str, float]) -> str:
    return f"{value['mean']:.4f} ± {value['half']:.4f}"


if __name__ == "__main__":
    main()
