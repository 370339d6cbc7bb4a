"""Ranks each user's last event among other items, as in the papers: popularity, item-KNN, FISM, NAIS and StarSpace.

    python -m studies.ranking u.data [--seeds 3] [--set training.learning_rate=0.001] [--against none]
    python -m studies.ranking ml-1m
    python -m studies.ranking Data/pinterest-20.train.rating

The log is MovieLens' `u.data` (100K), a folder that contains it, or a folder with `ratings.dat` (1M). A user's last
rating is the test item, ranked among 99 films that the user has not rated; the rating before is for validation. The log
may also be the data that He et al. (2017) published of MovieLens 1M and Pinterest, three files `NAME.train.rating`,
`NAME.test.rating` and `NAME.test.negative`: then the tests and their 99 other items are read from the files, and a
user's last training event is for validation. All sides rank the same lists. HR@10 and NDCG@10 are means over users, and
for models also over seeds, with 95% intervals over users. For the data of He et al. (2018) the table also shows the
paper's figures.

RecBole's FISM and NAIS train on the same packed rows with the same histories, widths, batches, learning rate and
maximum epochs, and stop by the same metric on the same validation rows. The NAIS "after FISM" of either library starts
from the embeddings of its own FISM of the same seed; FISM's epochs come on top. The learning rate is constant in all
training runs, because RecBole has no decay. Both libraries train at the same time; training times are not compared.
StarSpace, which RecBole lacks, keeps the optimizer and the rate of its own configuration. After an interrupt the same
command resumes.

References:
    He et al., "Neural Collaborative Filtering", 2017, section 4.1.
    He et al., "NAIS: Neural Attentive Item Similarity Model for Recommendation", 2018.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import scipy.sparse
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import folder_option
from benchmarks.harness.result_table import Cell, if_any, result_table
from benchmarks.peers.client import Peer
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import atomic_path, write_json
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.processes import cores
from ctrpipe.common.progress import announce
from ctrpipe.common.significance import NORMAL_QUANTILE
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.config.packaged_configs import configs_folder
from ctrpipe.pipeline.evaluation.lists import Lists, hit_rate, ndcg
from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.pipeline.run.run import transform
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.transforms.log.payload import payload_files

K = 10
NEIGHBOURS = 100  # neighbours in item-KNN, as in RecBole's ItemKNN
AFTER_FISM = "nais after fism"
# The models' sides: the configuration in configs/ml_100k, and additional settings.
MODELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "fism": ("fism", ()),
    "nais": ("nais", ()),
    AFTER_FISM: ("nais", ("training.stages.fism.skip=false",)),
    "starspace": ("starspace", ()),
}
OF_PEER = ("fism", "nais", AFTER_FISM)  # the sides of MODELS that RecBole also has
OWN_RATE = ("starspace",)  # have another optimizer: --set does not change their rate
SAME_RATE = "training.plateau=null"
PAIRS = (
    (AFTER_FISM, "fism"),
    ("nais", "fism"),
    (AFTER_FISM, "nais"),
    ("fism", "item_knn"),
    (AFTER_FISM, "item_knn"),
    ("starspace", "fism"),
    ("starspace", "item_knn"),
    ("item_knn", "popularity"),
)
COLUMNS = ["user", "item"]
RATINGS = ["user", "item", "rating", "time"]  # the columns of an event log
# The files that He et al. published of a data set: training events, test events, and 99 other items for each test.
TRAIN, TEST, OTHERS = PUBLISHED = (".train.rating", ".test.rating", ".test.negative")
# HR@10 and NDCG@10 in He et al. 2018, tables 4 (NAIS-prod without and with FISM's embeddings) and 5, by data set. The
# embeddings have width 16, as here; histories are complete, item-KNN uses all neighbours, FISM has alpha 0, and the
# models are trained to convergence by Adagrad.
PAPER = {
    "ml-1m": {
        "popularity": (0.4536, 0.2543),
        "item_knn": (0.6227, 0.3587),
        "fism": (0.6647, 0.3949),
        "nais": (0.6804, 0.4055),
        AFTER_FISM: (0.6969, 0.4194),
    },
    "pinterest-20": {
        "popularity": (0.2739, 0.1409),
        "item_knn": (0.7857, 0.4832),
        "fism": (0.8740, 0.5522),
        "nais": (0.8790, 0.5604),
        AFTER_FISM: (0.8844, 0.5722),
    },
}
PAPER_NOTE = (
    "paper: He et al. 2018, tables 4 and 5, embeddings of 16, whole histories, all neighbours, trained to convergence "
    "by Adagrad; theirs are means without intervals"
)
_LIST_ROWS = 512  # tests whose lists are in memory at once
_KNN_ROWS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Others:
    """The published other items of each test.

    Attributes:
        users: Binary [tests].
        items: int64 [tests, items of a list without the test's own].
    """

    users: pa.Array
    items: np.ndarray

    def added(self, patterns: Sequence[str], folder: pathlib.Path) -> str:
        """Writes the lists' rows for the tests of prepared impressions, and returns the file.

        Each row is a copy of its user's test, including the history, with another item and label 0.
        """
        files = [path for pattern in patterns for path in payload_files(pathlib.Path(pattern).parent)]
        tests = pa.concat_tables([pa.parquet.read_table(path, filters=[("part", "=", 2)]) for path in files])
        rows = pc.index_in(tests["user"], value_set=self.users).to_numpy()
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / "others.parquet"
        with atomic_path(written) as unfinished, pa.parquet.ParquetWriter(unfinished, tests.schema) as writer:
            for start in range(0, tests.num_rows, _LIST_ROWS):
                items = self.items[rows[start : start + _LIST_ROWS]]
                repeated = tests.slice(start).take(np.repeat(np.arange(len(items)), items.shape[1]))
                own = {"label": pa.array(np.zeros(items.size, np.int8)), "item": _texts(items.ravel())}
                columns = [own.get(name, repeated[name]) for name in tests.column_names]
                writer.write_table(pa.Table.from_arrays(columns, schema=tests.schema))
        return str(written)


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set.

    Attributes:
        events: The event log.
        name: Its key in PAPER; "" if it is not in the paper.
        others: The tests' lists; None if they are drawn.
    """

    events: pathlib.Path
    name: str = ""
    others: Others | None = None


def find_source(source: pathlib.Path, folder: pathlib.Path) -> Source:
    """Returns the data set of a file or a folder; converted event logs are written to `folder`.

    Raises:
        InputError: The folder has none of the files, a file of He et al. is missing, or the files do not match.
    """
    if source.is_file() and not source.name.endswith(PUBLISHED):
        return Source(source)
    for name in ("u.data", "u.data.gz"):
        if (source / name).is_file():
            return Source(source / name)
    if (source / "ratings.dat").is_file():
        return Source(_of_movielens_1m(source / "ratings.dat", folder / "ratings.tsv"), "ml-1m")
    files = [source] if source.is_file() else [path for end in PUBLISHED for path in source.glob(f"*{end}")]
    names = sorted({path.name.removesuffix(end) for end in PUBLISHED for path in files if path.name.endswith(end)})
    if not names:
        raise InputError(
            f"{source}: none of u.data, ratings.dat and NAME{TRAIN} is in it; give a folder of MovieLens 100K or 1M, "
            "or one with the three files of He et al."
        )
    if len(names) > 1:
        raise InputError(f"{source}: has the files of {' and of '.join(names)}; give {source / names[0]}{TRAIN}")
    place = source.parent if source.is_file() else source
    return _published(place, names[0], folder / "ratings.tsv")


def _of_movielens_1m(ratings: pathlib.Path, written: pathlib.Path) -> pathlib.Path:
    """Writes the ratings with tabs instead of `::`."""
    with open(ratings, encoding="latin-1") as lines, atomic_path(written) as unfinished:
        with open(unfinished, "w") as output:
            output.writelines(line.replace("::", "\t") for line in lines)
    return written


def _published(place: pathlib.Path, name: str, written: pathlib.Path) -> Source:
    """Returns He et al.'s data set; in its event log, times are positions in the order of all events.

    Events of equal time, as in all of Pinterest, keep the file's order. The tests come last.
    """
    train, test, others = (place / f"{name}{end}" for end in PUBLISHED)
    for path in (train, test, others):
        if not path.is_file():
            raise InputError(f"{path}: is missing; {', '.join(f'NAME{end}' for end in PUBLISHED)} go together")
    types = dict.fromkeys(RATINGS[:2], pa.int64()) | {"rating": pa.string(), "time": pa.float64()}
    events, tests = (_read(path, RATINGS, types) for path in (train, test))
    ordered = events.take(np.argsort(events["time"].to_numpy(), kind="stable"))
    rows = pa.concat_tables([ordered, tests])
    rows = rows.set_column(RATINGS.index("time"), "time", pa.array(np.arange(rows.num_rows)))
    options = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with atomic_path(written) as unfinished:
        pa.csv.write_csv(rows, unfinished, options)
    return Source(written, name, _others(others, tests, test))


def _others(path: pathlib.Path, tests: pa.Table, test: pathlib.Path) -> Others:
    """Reads the lists, one line per test: `(user,item)` and the other items."""
    lists = _read(path)
    if lists.num_rows != tests.num_rows:
        raise InputError(f"{path}: has {lists.num_rows:,} lines, {test.name} {tests.num_rows:,}; download both again")
    user, item = (tests[name].cast(pa.string()) for name in COLUMNS)
    same = pc.equal(lists[0].cast(pa.string()), pc.binary_join_element_wise("(", user, ",", item, ")", ""))
    wrong = np.flatnonzero(~same.to_numpy())
    if len(wrong):
        line = int(wrong[0])
        raise InputError(
            f"{path}: line {line + 1}: is of {lists[0][line]}, and in {test.name} of ({user[line]},{item[line]}); "
            "download both again"
        )
    return Others(
        _texts(tests["user"].to_numpy()), np.column_stack([column.to_numpy() for column in lists.columns[1:]])
    )


def _read(path: pathlib.Path, names: list[str] | None = None, types: dict[str, pa.DataType] | None = None) -> pa.Table:
    """Returns a tab-separated file; the default column names are f0, f1 and so on.

    Raises:
        InputError: A line has a wrong number of columns, or a value does not match its type.
    """
    columns = pa.csv.ReadOptions(column_names=names, autogenerate_column_names=names is None, use_threads=False)
    parsed = pa.csv.ParseOptions(delimiter="\t", quote_char=False)
    try:
        return pa.csv.read_csv(path, columns, parsed, pa.csv.ConvertOptions(column_types=types))
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {one_line(error, 200)}; is it He et al.'s file?") from error


def _texts(numbers: np.ndarray) -> pa.Array:
    """Returns numbers as binary texts, as in an event log."""
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


class Log:
    """The events before the test, and one test list per user.

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
        """Returns the number of events of each test row's item, float64 `[N]`."""
        counts: np.ndarray = np.asarray(self.events.sum(axis=0)).ravel()[self.lists.items]
        return counts

    def item_knn(self) -> np.ndarray:
        """Returns the sum of the cosines between each test row's item and its user's items, float64 `[N]`.

        Only the NEIGHBOURS largest cosines of each item count.

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
        kept = scipy.sparse.csr_matrix(cosines)
        users, items = self.lists.lists, self.lists.items
        chunks = [slice(start, start + _KNN_ROWS) for start in range(0, len(users), _KNN_ROWS)]
        sums = [self.events[users[rows]].multiply(kept[items[rows]]).sum(axis=1) for rows in chunks]
        return np.asarray(np.concatenate(sums)).ravel()


def by_user(lists: Lists, scores: np.ndarray) -> dict[str, np.ndarray]:
    """Returns HR@K and NDCG@K of the judged lists, [users] each."""
    ranks, judged = lists.ranks(scores), lists.judged()
    return {"HR": hit_rate(lists, ranks, K)[judged], "NDCG": ndcg(lists, ranks, K)[judged]}


def summary(values: np.ndarray) -> dict[str, float]:
    """Returns the mean of the users' values and the half-width of its 95% interval."""
    return {"mean": float(values.mean()), "half": float(NORMAL_QUANTILE * values.std(ddof=1) / np.sqrt(len(values)))}


@dataclasses.dataclass(frozen=True)
class Trained:
    """The result of one training run.

    Attributes:
        scores: The logits, or a peer's probabilities, of the test rows, `[N]`.
        validation_auc: The best validation AUC; its weights compute the scores.
        evaluations: Number of evaluations on the validation rows, without a first stage.
    """

    scores: np.ndarray
    validation_auc: float
    evaluations: int


def trained(config: RunConfig, log: Any, folder: pathlib.Path, seed: int) -> Trained:
    """Trains one of our models; reuses a finished training run in the folder."""
    from ctrpipe.pipeline.training.data import packed_batches, prediction_rows  # Keras: after TensorFlow
    from ctrpipe.pipeline.training.job import TrainingJob
    from ctrpipe.pipeline.training.train import train

    fields = log.feature_map
    job = TrainingJob(config.model, config.training, fields, log.train, log.validation, seed)
    result = train(job, folder)
    _, logits = result.learner.predict(packed_batches(log.test, fields, prediction_rows(fields)))
    done = result.progress.evaluations
    return Trained(logits[:, 0], max(each["validation_auc"] for each in done), len(done))


def write_peer_rows(log: Any, path: pathlib.Path) -> None:
    """Writes the rows of all splits for `Peer.fit`: item, user and the history's items, 0 for padding."""
    from ctrpipe.pipeline.training.data import packed_reader  # Keras: after TensorFlow

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
    """Trains RecBole's model of a side of MODELS with our configuration; reuses a finished training run."""
    out = folder / f"{name}-{seed}.npz"
    ended = out.with_suffix(".json")
    if not ended.is_file():
        write_json(ended, _peer_fit(peer, name, config, rows, out, seed))
    reply = json.loads(ended.read_text())
    with np.load(out) as file:
        scores: np.ndarray = file["probabilities"]
    return Trained(scores, reply["auc"], int(reply["evaluations"]))


def _peer_fit(
    peer: Peer, name: str, config: RunConfig, rows: pathlib.Path, out: pathlib.Path, seed: int
) -> dict[str, float]:
    training, options = config.training, config.model.hyperparameters
    asked: dict[str, Any] = {name: getattr(training, name) for name in ("learning_rate", "batch_size", "epochs")}
    asked |= {name: getattr(training, name) for name in ("evaluations_per_epoch", "patience", "monitor")}
    asked |= {"dim": options["embedding_dim"], "attention": options.get("attention_units", 0)}
    out.parent.mkdir(parents=True, exist_ok=True)
    of_fism = out.parent / f"fism-{seed}.pth"
    if name == "fism":
        asked["keep"] = str(of_fism)
    if name == AFTER_FISM:
        asked["pretrained"] = str(of_fism)
    history = max(feature.max_length for feature in config.log_spec.features if feature.kind == "sequence")
    return peer.fit(MODELS[name][0], rows, out, cores(), seed=seed, history=history, **asked)


def mean_of_seeds(values: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns each user's metrics, averaged over seeds."""
    return {name: np.mean([one[name] for one in values], axis=0) for name in ("HR", "NDCG")}


def compared(sides: dict[str, list[dict[str, np.ndarray]]], pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Returns the differences between pairs of sides, over the users.

    Args:
        sides: Metrics by user, one per seed, for each side. If a side of a pair has more seeds, the first ones count.
        pairs: Names of sides.
    """
    differences = []
    for pair in pairs:
        seeds = min(len(sides[name]) for name in pair)
        better, worse = (mean_of_seeds(sides[name][:seeds]) for name in pair)
        for name in better:
            difference = {"better": pair[0], "worse": pair[1], "metric": name, "seeds": seeds}
            differences.append(difference | summary(better[name] - worse[name]))
    return differences


def table(report: Mapping[str, Any]) -> Table:
    """Returns the table of the sides and pairs, with the paper's figures if there are any."""
    paper, trainings, differences = report["paper"], report["trainings"], report["differences"]
    rows: list[dict[str, Any]] = [
        {"name": name, "trainings": trainings.get(name), "paper": paper.get(name), **side}
        for name, side in report["sides"].items()
    ]
    for of_pair in zip(differences[::2], differences[1::2], strict=True):  # HR and NDCG
        name = f"{of_pair[0]['better']} - {of_pair[0]['worse']}"
        rows.append({"name": name, **dict(zip(("HR", "NDCG"), of_pair, strict=True))})

    def mean(key: str, form: str) -> Cell:
        return lambda one: format(np.mean([run[key] for run in one["trainings"]]), form) if one.get("trainings") else ""

    columns: dict[str, Cell] = {
        "": "{name}",
        f"HR@{K}": "{HR[mean]:.4f} ± {HR[half]:.4f}",
        f"NDCG@{K}": "{NDCG[mean]:.4f} ± {NDCG[half]:.4f}",
        "validation AUC": mean("validation_auc", ".4f"),
        "evaluations": mean("evaluations", ".1f"),
    }
    if paper:
        columns[f"paper: HR@{K}, NDCG@{K}"] = if_any("paper", "{paper[0]:.4f}, {paper[1]:.4f}")
    peers = f", {report['against_seeds']} of {report['against']}" if report["against_seeds"] else ""
    result = result_table(f"{report['users']:,} users, {report['seeds']} seeds{peers}", columns, rows)
    result.caption = PAPER_NOTE if paper else None
    return result


@Benchmark("studies.ranking", table)
@click.argument("source", type=click.Path(path_type=pathlib.Path, exists=True))
@click.option("--seeds", type=click.IntRange(1), default=3, help="Training runs of each model.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of configs/ml_100k.")
@click.option("--against", type=click.Choice(["recbole", "none"]), default="recbole", help="Peer to compare with.")
@click.option("--against-seeds", type=click.IntRange(1), help="Number of seeds of the peer. Default: all seeds.")
@folder_option("ranking")
def main(
    report: Report,
    source: pathlib.Path,
    seeds: int,
    settings: tuple[str, ...],
    against: str,
    against_seeds: int | None,
    folder: pathlib.Path,
) -> None:
    """Rank with popularity, item-KNN, FISM, NAIS and StarSpace, ours and RecBole's, and compare them in pairs.

    SOURCE is a file or folder of MovieLens 100K or 1M, or of He et al.'s data. Prints a table, and writes the report as
    JSON.
    """
    folder.mkdir(parents=True, exist_ok=True)
    load_tensorflow()
    dataset = find_source(source, folder)
    given = (*settings, "events.test_negatives=0") if dataset.others else settings
    configs = {name: _config(name, given) for name in MODELS}
    first = configs["fism"]
    if against != "none" and first.training.monitor != "auc":
        raise InputError("training.monitor: RecBole is judged by the AUC; set it to auc, or give --against none")
    data = joined([str(dataset.events)], first, folder)
    past = past_events(data)
    if dataset.others:
        data = [*data, dataset.others.added(data, folder / "lists")]
    logs = _transformed(configs, data, folder)
    log = Log(past, candidates(logs["fism"].payload, ["label", *COLUMNS]))
    rules = {"popularity": log.popularity(), "item_knn": log.item_knn()}
    values = {name: [by_user(log.lists, scores)] * seeds for name, scores in rules.items()}
    trainings: dict[str, list[dict[str, float]]] = {}
    peer_seeds = min(against_seeds or seeds, seeds) if against != "none" else 0
    work = folder / "work"
    keep_trainings(work, configs, logs)
    for name, one_trained in _trainings(configs, logs, work, seeds, against, peer_seeds):
        values.setdefault(name, []).append(by_user(log.lists, one_trained.scores))
        kept = {key: value for key, value in dataclasses.asdict(one_trained).items() if key != "scores"}
        trainings.setdefault(name, []).append(kept)
    sides = {name: mean_of_seeds(each) for name, each in values.items()}
    pairs = [*PAIRS, *((name, f"{against} {name}") for name in OF_PEER if against != "none")]
    differences = compared(values, pairs)
    report |= {"users": len(sides["nais"]["HR"]), "seeds": seeds, "against": against, "against_seeds": peer_seeds}
    report |= {"cores": cores(), "paper": PAPER.get(dataset.name, {}), "trainings": trainings}
    report["sides"] = {name: {metric: summary(each) for metric, each in side.items()} for name, side in sides.items()}
    report["differences"] = differences
    report.write()
    shutil.rmtree(work)  # another version of the models may train next time


def _config(name: str, settings: Sequence[str]) -> RunConfig:
    """Returns the configuration of a side of MODELS."""
    file, own = MODELS[name]
    if name in OWN_RATE:
        settings = [setting for setting in settings if not setting.startswith("training.learning_rate=")]
    return load_config(configs_folder() / "ml_100k" / f"{file}.yaml", (SAME_RATE, *settings, *own))


def _transformed(configs: dict[str, RunConfig], data: list[str], folder: pathlib.Path) -> dict[str, TransformedLog]:
    """Returns, by side, the log with the features of its configuration; sides with equal features share one."""
    logs: dict[str, TransformedLog] = {}
    for name, config in configs.items():
        same = next((other for other in logs if configs[other].features == config.features), None)
        if same:
            logs[name] = logs[same]
            continue
        place = folder / (f"log-{name}" if logs else "log")
        check_output(place)
        with one_run_at_a_time(place):
            logs[name] = transform(config, data, place)
        tests = [candidates(log.payload, ["label", "item"]) for log in (logs[name], *logs.values())]
        if not tests[0].equals(tests[1]):
            raise RuntimeError(f"The test rows of {name} stand in another order than the first side's")
    return logs


def keep_trainings(work: pathlib.Path, configs: dict[str, RunConfig], logs: dict[str, TransformedLog]) -> None:
    """Empties the folder of training runs if their configurations or packed files have changed."""
    path = work / "given.json"
    given = {name: [config.model_dump(mode="json"), logs[name].train] for name, config in configs.items()}
    if path.is_file() and json.loads(path.read_text()) == given:
        return
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    write_json(path, given)


def _trainings(
    configs: dict[str, RunConfig],
    logs: dict[str, TransformedLog],
    work: pathlib.Path,
    seeds: int,
    against: str,
    peer_seeds: int,
) -> Iterator[tuple[str, Trained]]:
    """Yields the training runs of all sides, seed by seed."""
    with contextlib.ExitStack() as stack:
        peer, beside = None, stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        if peer_seeds:
            write_peer_rows(logs[OF_PEER[0]], work / "rows.npz")
            peer = stack.enter_context(Peer(against))
        for seed in range(seeds):
            place = work / f"ours-{seed}"
            # The folder in which AFTER_FISM looks for its first stage: FISM is not trained twice.
            folders = {"fism": place / "pretrained-fism", AFTER_FISM: place}
            for name, config in configs.items():
                announce(f"Training {name}, seed {seed}")
                rows, folder = work / "rows.npz", work / against
                both = peer is not None and name in OF_PEER and seed < peer_seeds
                theirs = beside.submit(peer_trained, peer, name, config, rows, folder, seed) if both else None
                yield name, trained(config, logs[name], folders.get(name, place / name), seed)
                if theirs:
                    yield f"{against} {name}", theirs.result()


def past_events(patterns: Sequence[str]) -> pa.Table:
    """Returns users and items of the positive impressions before the test, including those for validation."""
    files = [path for pattern in patterns for path in payload_files(pathlib.Path(pattern).parent)]
    rows = pa.concat_tables([pa.parquet.read_table(path, columns=["label", "part", *COLUMNS]) for path in files])
    return rows.filter(pc.and_(pc.equal(rows["label"], 1), pc.less(rows["part"], 2))).select(COLUMNS)


def candidates(payload: pathlib.Path, columns: list[str]) -> pa.Table:
    """Returns columns of a transformed log's test rows, in the log's order."""
    files = payload_files(payload / "Split-test")
    return pa.concat_tables([pa.parquet.read_table(path, columns=columns) for path in files])


if __name__ == "__main__":
    main()
