"""The ids that the pipeline's own transform stage gives, against a computation in plain Python."""

import collections
import glob
import math
import pathlib

import numpy as np
import pytest
import tensorflow_transform as tft

from ctrpipe.models.base.feature_map import PADDING_ID, RESERVED_IDS
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.artifacts import Artifacts
from ctrpipe.pipeline.run.run import transform
from ctrpipe.transforms.features.packed_files import PackedReader
from ctrpipe.transforms.features.vocabulary_files import vocabulary_name

ROWS, TRAIN, VALIDATION = 1000, 600, 200
COLUMNS = ["label", "row", "plain", "cut", "rare", "odd name/é", "tags", "words", "bucket", "n", "constant"]
TOP_K, MIN_COUNT, SLOTS, BUCKETS = 12, 4, 3, 3
ODD = ["é", "ÿ", "☃", "A", "a", "Z", "a b", " a", "a ", "-1", "0", "1e3", "é", "\x01", '"q"', "NULL", "\\n", "x" * 500]
CONFIG = RunConfig.model_validate(
    {
        "name": "vocabulary",
        "data": {"columns": COLUMNS, "labels": {"ctr": "label"}, "split": {"validation": 0.2, "test": 0.2}},
        "features": [
            {"kind": "categorical", "columns": ["plain", "odd name/é"]},
            {"kind": "categorical", "columns": ["cut"], "top_k": TOP_K},
            {"kind": "categorical", "columns": ["rare"], "min_count": MIN_COUNT},
            {"kind": "multivalent", "columns": ["tags"], "max_length": SLOTS, "top_k": 5},
            {"kind": "multivalent", "columns": ["words"], "separator": ", ", "max_length": 2},
            {"kind": "categorical", "columns": ["bucket"], "transform": "hash", "buckets": BUCKETS},
            {"kind": "numeric", "columns": ["n", "constant"], "transform": "standardize"},
            {"kind": "categorical", "columns": ["row"]},
        ],
        "model": {"name": "lr"},
    }
)


def make_rows() -> list[dict[str, str]]:
    """Train, validation and test rows; the test rows are full of values and numbers that no other row has."""
    random = np.random.default_rng(4)
    rows = []
    for number in range(ROWS):
        late = number >= TRAIN + VALIDATION
        tags = [f"t{random.zipf(1.5) % 20}" for _ in range(random.integers(0, 6))]
        row = {
            "label": str(int(random.random() < 0.3)),
            "row": f"{number:04}",
            "plain": "leak" if late else f"v{min(random.zipf(1.3), 90)}",
            # Two dozen values of equal count, so that the cut at top_k falls between equals.
            "cut": f"{['c', 'C', 'é'][number % 3]}{number % 24}" if number < TRAIN else "leak",
            "rare": f"r{int(random.integers(0, 150))}",
            "odd name/é": ODD[number % len(ODD)],
            "tags": "|".join(["", *tags, ""] if number % 5 == 0 else tags),
            "words": ", ".join(["leak"] * 3 if late else [f"w{random.integers(0, 4)},"] * int(random.integers(0, 3))),
            "bucket": ["Hello", "TensorFlow", "2.x", "", "é"][number % 5],
            "n": "" if number % 9 == 0 else str(1e6 if late else round(float(random.normal(50, 20)), 3)),
            "constant": "3",
        }
        if number % 11 == 0:
            row |= {"plain": "", "cut": "", "tags": "", "rare": "never-seen" if late else "", "constant": ""}
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The rows, `ids` and `dense` of each, the feature map and the transform graph."""
    folder = tmp_path_factory.mktemp("vocabulary")
    rows = make_rows()
    (folder / "log.tsv").write_text("".join("\t".join(row[name] for name in COLUMNS) + "\n" for row in rows))
    log = transform(CONFIG, [str(folder / "log.tsv")], folder / "out")
    graph = Artifacts(folder / "out" / "tfx" / "metadata.sqlite", CONFIG.name).folder("LogTransform", "transform_graph")
    train, *others = (read(split) for split in (log.train, log.validation, log.test))
    # Training rows are shuffled. The last field's vocabulary has an entry for each of them, the last row's first.
    order = np.argsort(-train["ids"][:, -1])
    packed = {
        name: np.concatenate([values[order], *(other[name] for other in others)]) for name, values in train.items()
    }
    assert len(packed["ids"]) == ROWS
    return rows, packed, log.feature_map, tft.TFTransformOutput(str(graph))


def read(patterns: list[str]) -> dict[str, np.ndarray]:
    files = [pathlib.Path(file) for pattern in patterns for file in glob.glob(pattern)]
    ((rows, _),) = PackedReader(sorted(files), ROWS)
    return rows


def values(text: str, separator: str | None) -> list[str]:
    return [value for value in (text.split(separator) if separator else [text]) if value]


def expected_vocabulary(rows, column, separator=None, top_k=None, min_count=1) -> list[str]:
    """Most frequent first; among equals the higher byte value first; cut exactly at top_k."""
    counts = collections.Counter(value for row in rows[:TRAIN] for value in values(row[column], separator))
    kept = [value for value, count in counts.items() if count >= min_count]
    kept.sort(key=lambda value: (counts[value], value.encode()), reverse=True)
    return kept[:top_k]


VOCABULARIES = [
    ("plain", {}),
    ("odd name/é", {}),
    ("cut", {"top_k": TOP_K}),
    ("rare", {"min_count": MIN_COUNT}),
    ("tags", {"separator": "|", "top_k": 5}),
    ("words", {"separator": ", "}),
]


@pytest.mark.parametrize(("column", "options"), VOCABULARIES, ids=[column for column, _ in VOCABULARIES])
def test_a_vocabulary_is_that_of_the_training_rows_in_order(done, column, options):
    rows, _, feature_map, graph = done
    expected = expected_vocabulary(rows, column, **options)
    found = [value.decode() for value in graph.vocabulary_by_name(vocabulary_name(column))]
    assert found == expected and "leak" not in found and "never-seen" not in found
    [field] = [field for field in feature_map.fields if field.name == column]
    assert field.size == RESERVED_IDS + len(expected)


def test_the_cases_that_matter_are_there(done):
    rows = done[0]
    counts = collections.Counter(row["cut"] for row in rows[:TRAIN] if row["cut"])
    ordered = sorted(counts.values(), reverse=True)
    assert ordered[TOP_K - 1] == ordered[TOP_K]  # the cut falls between equals
    rare = collections.Counter(row["rare"] for row in rows[:TRAIN])
    assert {MIN_COUNT - 1, MIN_COUNT} <= set(rare.values())
    assert max(len(values(row["tags"], "|")) for row in rows) > SLOTS


@pytest.mark.parametrize(("column", "options"), VOCABULARIES, ids=[column for column, _ in VOCABULARIES])
def test_every_row_of_every_split_gets_the_ids_of_its_values(done, column, options):
    rows, packed, feature_map, _ = done
    vocabulary = {value: place for place, value in enumerate(expected_vocabulary(rows, column, **options))}
    [field] = [field for field in feature_map.fields if field.name == column]
    first = sum(other.slots for other in feature_map.fields[: feature_map.fields.index(field)])
    unknown = missing = padded = 0
    for row, found in zip(rows, packed["ids"], strict=True):
        present = values(row[column], options.get("separator"))[: field.slots]
        ids = [
            field.unknown_id if v not in vocabulary else field.offset + RESERVED_IDS + vocabulary[v] for v in present
        ]
        ids = ids or [field.missing_id]
        unknown, missing = unknown + (field.unknown_id in ids), missing + (not present)
        padded += len(ids) < field.slots
        ids += [PADDING_ID] * (field.slots - len(ids))
        assert found[first : first + field.slots].tolist() == ids, row
    if column != "odd name/é":
        assert unknown and missing
    assert bool(padded) == (field.slots > 1)


def test_hash_buckets_are_those_that_tensorflow_documents(done):
    rows, packed, feature_map, _ = done
    [field] = [field for field in feature_map.fields if field.name == "bucket"]
    slot = sum(other.slots for other in feature_map.fields[: feature_map.fields.index(field)])
    assert field.size == RESERVED_IDS + BUCKETS
    found = collections.defaultdict(set)
    for row, ids in zip(rows, packed["ids"], strict=True):
        found[row["bucket"]].add(int(ids[slot]) - field.offset - RESERVED_IDS)
    assert found.pop("") == {-1}  # the missing id
    assert found.pop("é") < {*range(BUCKETS)}
    assert found == {"Hello": {0}, "TensorFlow": {2}, "2.x": {2}}  # the example of tf.strings.to_hash_bucket_fast


def test_the_normaliser_knows_the_training_rows_only(done):
    rows, packed, feature_map, _ = done
    assert feature_map.dense == ("n", "constant")
    numbers = [float(row["n"]) for row in rows[:TRAIN] if row["n"]]
    mean = math.fsum(numbers) / len(numbers)
    deviation = math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / len(numbers))
    width = max(numbers) - min(numbers)
    low, high = min(numbers) - width, max(numbers) + width  # the planted number is clipped to what training rows have
    expected = [(min(max(float(row["n"]), low), high) - mean) / deviation if row["n"] else 0.0 for row in rows]
    np.testing.assert_allclose(packed["dense"][:, 0], expected, rtol=1e-4, atol=1e-5)
    assert max(float(row["n"] or 0) for row in rows) > 1e4 * deviation  # the test rows are far outside
    assert set(packed["dense"][:, 1]) == {0.0}  # no deviation, no division by it


def test_ids_of_different_fields_do_not_overlap(done):
    _, packed, feature_map, _ = done
    ids = packed["ids"]
    slot = 0
    for field in feature_map.fields:
        own = ids[:, slot : slot + field.slots]
        allowed = (own == PADDING_ID) | ((own >= field.offset) & (own < field.offset + field.size))
        assert allowed.all() and (own[:, 0] != PADDING_ID).all()
        slot += field.slots
    assert slot == ids.shape[1] == feature_map.total_slots
