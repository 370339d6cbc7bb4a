"""The configurations of StarSpace's tasks: each learns its own kind of pairs from a small log that is written here."""

import pathlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from ctrpipe.common import metrics
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.config.packaged_configs import configs_folder
from ctrpipe.pipeline.training.data import packed_batches
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.analyzers import LogCounter
from ctrpipe.transforms.features.learned import Learned
from ctrpipe.transforms.features.packed_files import PackedWriter
from ctrpipe.transforms.features.preprocessing import layout, preprocessing_fn

Rows = list[dict[str, str]]
GROUPS, OWN_WORDS, COMMON_WORDS = 6, 40, 80


def words(random: np.random.Generator, group: int, count: int) -> str:
    """Words of a group; every second word is of any group."""
    own = [f"g{group}w{number}" for number in random.integers(0, OWN_WORDS, count)]
    common = [f"w{number}" for number in random.integers(0, COMMON_WORDS, count)]
    return " ".join(np.where(random.random(count) < 0.5, own, common))


def other(random: np.random.Generator, group: int) -> int:
    return int((group + random.integers(1, GROUPS)) % GROUPS)


def text_classification(random: np.random.Generator) -> Iterator[dict[str, str]]:
    for _ in range(250):
        group = int(random.integers(GROUPS))
        text = words(random, group, 8)
        yield from ({"label": str(int(of == group)), "text": text, "class": f"c{of}"} for of in range(GROUPS))


def tagspace(random: np.random.Generator) -> Iterator[dict[str, str]]:
    """Two tags of a text's group, of five, and four of other groups."""
    for _ in range(250):
        group = int(random.integers(GROUPS))
        text = words(random, group, 8)
        for tag in random.choice(5, 2, replace=False):
            yield {"label": "1", "text": text, "tag": f"#{group}_{tag}"}
        for _ in range(4):
            yield {"label": "0", "text": text, "tag": f"#{other(random, group)}_{random.integers(5)}"}


def recommendation(random: np.random.Generator) -> Iterator[dict[str, str]]:
    """A user has items of one group, of fifteen; the candidate is in some histories, as in a log of sets."""
    for _ in range(1500):
        group = int(random.integers(GROUPS))
        *history, liked = random.choice(15, 5, replace=False)
        seen = [f"i{group}_{item}" for item in history]
        label = int(random.random() < 0.4)
        of = group if label else other(random, group)
        item = f"i{of}_{liked}"
        yield {"label": str(label), "item": item, "item_history": "|".join([*seen, item][: 4 + label])}


def graph_embedding(random: np.random.Generator) -> Iterator[dict[str, str]]:
    """People of a region live in its towns and speak its languages; some tails are heads too: towns lie in regions."""
    tails = {"lives_in": 5, "speaks": 2, "likes": 3}
    people = [(f"p{number}", int(random.integers(GROUPS))) for number in range(150)]
    triples = [
        (person, relation, f"{relation}_{region}_{place}", region)
        for person, region in people
        for relation, count in tails.items()
        for place in random.choice(count, min(2, count), replace=False)
    ]
    triples += [
        (f"lives_in_{region}_{town}", "lies_in", f"r{region}", region) for region in range(GROUPS) for town in range(5)
    ]
    for index in random.permutation(len(triples)):
        head, relation, tail, region = triples[index]
        yield {"label": "1", "head": head, "relation": relation, "tail": tail}
        for _ in range(3):
            changed = tail.replace(f"_{region}_", f"_{other(random, region)}_").replace(
                f"r{region}", f"r{other(random, region)}"
            )
            yield {"label": "0", "head": head, "relation": relation, "tail": changed}


def two_texts(
    first: str, second: str, lengths: tuple[int, int]
) -> Callable[[np.random.Generator], Iterator[dict[str, str]]]:
    def rows(random: np.random.Generator) -> Iterator[dict[str, str]]:
        for _ in range(500):
            group = int(random.integers(GROUPS))
            text = words(random, group, lengths[0])
            for label in (1, 0, 0):
                of = group if label else other(random, group)
                yield {"label": str(label), first: text, second: words(random, of, lengths[1])}

    return rows


def popularity(train_rows: Rows, rows: Rows, column: str) -> np.ndarray:
    """The share of positive rows that a value has in training."""
    positive = {row[column]: [0, 0] for row in train_rows + rows}
    for row in train_rows:
        positive[row[column]][0] += int(row["label"])
        positive[row[column]][1] += 1
    return np.array([positive[row[column]][0] / max(positive[row[column]][1], 1) for row in rows])


def common_words(rows: Rows, first: str, second: str) -> np.ndarray:
    return np.array([len(set(row[first].split()) & set(row[second].split())) for row in rows], float)


# The rows, and what a floor compares: the values' popularity, or the words that two texts have in common.
TASKS = {
    "text_classification": (text_classification, ("class",)),
    "tagspace": (tagspace, ("tag",)),
    "recommendation": (recommendation, ("item",)),
    "graph_embedding": (graph_embedding, ("tail",)),
    "sentences": (two_texts("sentence", "neighbour", (6, 6)), ("sentence", "neighbour")),
    "documents": (two_texts("query", "document", (3, 20)), ("query", "document")),
}


def write(spec, learned: Learned, rows: Rows, file: pathlib.Path) -> list[str]:
    """The rows as a run's transform packs them."""
    inputs = {name: tf.constant([row[name] for row in rows]) for name in spec.feature_columns}
    inputs |= {name: tf.constant([float(row["label"]) for row in rows]) for name in spec.data.columns_by_task.values()}
    ids = preprocessing_fn(inputs, learned)["ids"].numpy().astype(np.int32)
    label = np.array([[float(row["label"])] for row in rows], np.float32)
    with PackedWriter(file) as writer:
        writer.write({"ids": ids, "label": label})
    return [str(file)]


def test_there_is_a_configuration_for_each_task_of_the_paper():
    folder = configs_folder() / "starspace"
    assert {path.stem for path in folder.glob("*.yaml")} == {"_base", *TASKS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", [task if task == "documents" else pytest.param(task, marks=pytest.mark.large) for task in TASKS]
)
def test_the_pairs_of_a_task_are_learned_above_a_simple_floor(task, tmp_path):
    make, floor_of = TASKS[task]
    config = load_config(configs_folder() / "starspace" / f"{task}.yaml")
    spec = config.log_spec
    rows = list(make(np.random.default_rng(3)))
    ends = [int(0.7 * len(rows)), int(0.8 * len(rows))]
    parts = rows[: ends[0]], rows[ends[0] : ends[1]], rows[ends[1] :]
    counter = LogCounter.of_log(spec)
    columns = {
        name: pa.array([row[name].encode() or None for row in parts[0]], pa.binary()) for name in counter.columns
    }
    counter.add(columns)
    learned = Learned(spec, counter.summary(), tmp_path)
    feature_map = layout(spec, lambda column, feature: len(learned._vocabulary(column, feature)[0]))
    files = [write(spec, learned, part, tmp_path / f"{number}.parquet") for number, part in enumerate(parts)]
    training = config.training.model_copy(update={"epochs": 8, "batch_size": 128})
    result = train(TrainingJob(config.model, training, feature_map, files[0], files[1], 1), tmp_path / "work")
    labels, probabilities = result.learner.predict(packed_batches(files[2], feature_map, 512))
    found = metrics.auc(labels[:, 0], probabilities[:, 0])
    scores = popularity(parts[0], parts[2], *floor_of) if len(floor_of) == 1 else common_words(parts[2], *floor_of)
    floor = metrics.auc(labels[:, 0], scores)
    assert floor < 0.7 and found > max(0.75, floor + 0.1), (floor, found)
    assert abs(probabilities.mean() - labels.mean()) < 0.1  # the log loss fits slope and bias
