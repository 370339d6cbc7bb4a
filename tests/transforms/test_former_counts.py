"""Values that are admitted by how often they occurred in several trainings."""

import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.components import log_transform
from ctrpipe.transforms.features.analyzers import LogCounter
from ctrpipe.transforms.features.former_counts import COUNTS, SCHEMA, counted_over, read_counts, write_counts
from ctrpipe.transforms.features.learned import Former
from ctrpipe.transforms.features.transform import GRAPH, analyze
from ctrpipe.transforms.features.vocabulary_files import read_vocabularies
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.spec import LogSpec

CATEGORICAL = {"kind": "categorical", "min_count": 2}
SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "x", "y"], "labels": {"ctr": "click"}},
        "features": [{**CATEGORICAL, "columns": ["x", "y"]}],
    }
)
HERE = Workers(processes=1)


def summary_of(x: str, y: str):
    counter = LogCounter.of_log(SPEC)
    counter.add({"x": letters(x), "y": letters(y)})
    return counter.summary()


def letters(text: str) -> pa.Array:
    return pa.array([letter.encode() for letter in text], pa.binary())


def counts_of(table: pa.Table) -> list[tuple[str, bytes, int, int]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_todays_values_have_their_counts_of_the_window_and_others_are_left_out(tmp_path):
    write_counts(tmp_path / "1", summary_of("aab", "q"), SCHEMA.empty_table(), window=3)
    write_counts(tmp_path / "2", summary_of("ac", "qr"), read_counts(tmp_path / "1", 3), window=3)
    former = read_counts(tmp_path / "2", 3)
    assert counts_of(former) == [
        ("x", b"a", 1, 1),
        ("x", b"a", 2, 2),
        ("x", b"b", 2, 1),
        ("x", b"c", 1, 1),
        ("y", b"q", 1, 1),
        ("y", b"q", 2, 1),
        ("y", b"r", 1, 1),
    ]
    both = counted_over(summary_of("add", "rr"), former)
    assert both.vocabulary("x", min_count=4).to_pylist() == [b"a"]
    assert both.vocabulary("x").to_pylist() == [b"a", b"d"] and both.vocabulary("y").to_pylist() == [b"r"]
    assert both.values["y"].counts.tolist() == [3]


def test_what_is_older_than_the_window_counts_no_more(tmp_path):
    write_counts(tmp_path / "1", summary_of("aa", "q"), SCHEMA.empty_table(), window=2)
    write_counts(tmp_path / "2", summary_of("b", "q"), read_counts(tmp_path / "1", 2), window=2)
    assert counts_of(read_counts(tmp_path / "2", 2)) == [("x", b"b", 1, 1), ("y", b"q", 1, 1)]
    write_counts(tmp_path / "3", summary_of("b", "q"), read_counts(tmp_path / "1", 3), window=3)
    assert len(counts_of(read_counts(tmp_path / "3", 2))) == 2  # a window that has become smaller


def test_words_that_are_ranked_by_tf_idf_keep_todays_counts(tmp_path):
    text = {
        "kind": "text",
        "columns": ["x"],
        "length": 4,
        "tokens": "vocabulary",
        "separator": " ",
        "rank_by": "tf_idf",
    }
    spec = LogSpec.model_validate(
        {"data": SPEC.data.model_dump(), "features": [{**CATEGORICAL, "columns": ["y"]}, text]}
    )
    counter = LogCounter.of_log(spec)
    counter.add({"x": letters("ab"), "y": letters("qq")})
    today = counter.summary()
    write_counts(tmp_path / "1", today, SCHEMA.empty_table(), window=2)
    both = counted_over(today, read_counts(tmp_path / "1", 2))
    assert both.values["x"].counts.tolist() == [1, 1] and both.values["y"].counts.tolist() == [4]


@pytest.mark.slow
def test_a_graph_admits_by_the_window_and_leaves_its_own_counts_for_the_next(tmp_path):
    former = Former(counts=SCHEMA.empty_table(), window=3)
    vocabularies = []
    for day, values in enumerate(("aab", "abc", "acb", "bcd")):
        folder = tmp_path / str(day)
        folder.mkdir()
        with PayloadWriter(folder, "part", payload_schema(SPEC)) as writer:
            click = pa.array([0.0, 1.0, 0.0], pa.float32())
            writer.write(pa.record_batch({"click": click, "x": letters(values), "y": letters("qqq")}))
        analyze(SPEC, payload_files(folder), folder / "graph", HERE, former=former)
        vocabularies.append(read_vocabularies(folder / "graph" / GRAPH / "assets", SPEC)["x"].to_pylist())
        former = Former(counts=read_counts(folder / "graph" / COUNTS, 3), window=3)
    assert vocabularies == [[b"a"], [b"a", b"b"], [b"a", b"b", b"c"], [b"c", b"b"]]


def test_a_parent_without_counts_begins_them_and_a_damaged_file_is_one_line(tmp_path):
    kept = str(tmp_path)
    assert not len(log_transform._read_counts(kept, 3)) and not len(log_transform._read_counts("", 3))
    (tmp_path / COUNTS).write_text("nothing")
    with pytest.raises(InputError, match=r"counts.parquet: damaged \(.*\); train the model again"):
        log_transform._read_counts(kept, 3)
