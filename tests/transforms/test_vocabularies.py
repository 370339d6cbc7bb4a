"""Many vocabularies in one lookup table: the same ids as with a table for each."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_transform as tft
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.features import vocabularies
from ctrpipe.transforms.features.analyzers import LogCounter
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import load_graph, write_graph
from ctrpipe.transforms.features.vocabulary_files import read_vocabularies
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "a", "b", "c", "tags", "words", "hashed", "price"], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "categorical", "columns": ["a", "b"], "top_k": 4},
            {"kind": "multivalent", "columns": ["tags"], "separator": "|", "max_length": 3, "oov_buckets": 2},
            {"kind": "categorical", "columns": ["hashed"], "transform": "hash", "buckets": 7},
            {"kind": "categorical", "columns": ["c"], "min_count": 2, "oov_buckets": 3},
            {"kind": "text", "columns": ["words"], "separator": " ", "length": 6, "tokens": "vocabulary"},
            {"kind": "numeric", "columns": ["price"], "transform": "min_max", "buckets": 10},
        ],
    }
)
# "1:x" of one column and "x" of the column with the number 1 are two things.
ROWS = {
    "a": ["x", "1:x", "x", "y", "", "0:x", "z", "x"],
    "b": ["y", "x", "x", "", "1:x", "é", "x", ":"],
    "c": ["x", "x", "q", "q", "r", "s", "t", ""],
    "tags": ["x|y", "x", "", "y|z|x|w", "|", "x|x", "2:x", "y"],
    "words": ["warm hat", "hat", "", "red hat hat", "warm", "x", "y", "z"],
    "hashed": ["x", "y", "z", "", "x", "y", "z", "w"],
    "price": [1.0, 2.0, float("nan"), 4.0, 5.0, 6.0, 7.0, 8.0],
    "click": [0.0] * 8,
}
TRAIN = 6  # the last rows hold values that the vocabularies lack


def columns(rows: dict[str, list]) -> dict[str, np.ndarray]:
    return {
        name: np.array(values, np.float32)
        if isinstance(values[0], float)
        else np.array([v.encode() for v in values], object)
        for name, values in rows.items()
    }


def written(spec: LogSpec, rows: dict[str, list], folder) -> None:
    counter = LogCounter.of_log(spec)
    train = {name: values[:TRAIN] for name, values in columns(rows).items()}
    counter.add({n: pa.array(train[n], pa.float32() if n == "price" else pa.binary()) for n in counter.columns})
    write_graph(spec, counter.summary(), folder)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """The folders of three graphs: of a table for each column, of one for all, and of one for the small ones."""
    folders = {}
    for name, most, large in (("each", 8, 100), ("shared", 1, 100), ("small", 1, 4)):
        folders[name] = tmp_path_factory.mktemp(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vocabularies, "MOST_TABLES", most)
            patch.setattr(vocabularies, "LARGE", large)
            written(SPEC, ROWS, folders[name])
    return folders


def tables(folder) -> int:
    graph = SavedModel.FromString((folder / "transform_fn" / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    return sum(node.op == "HashTableV2" for node in graph.node)


@pytest.mark.slow
def test_there_is_one_table_for_all_columns_and_one_for_the_text(graphs):
    assert (tables(graphs["each"]), tables(graphs["shared"])) == (5, 2)


def test_a_large_vocabulary_has_a_table_of_its_own(graphs):
    files = {path.name for path in (graphs["small"] / "transform_fn" / "assets").iterdir()}
    assert files == {"vocabularies", "vocabulary_a", "vocabulary_b", "vocabulary_tags", "vocabulary_words"}
    assert tables(graphs["small"]) == 5


@pytest.mark.parametrize("file", ["vocabulary_a", "vocabularies"])
def test_a_lost_file_is_an_error_and_no_other_columns_values(tmp_path, graphs, file):
    shutil.copytree(graphs["small"] / "transform_fn" / "assets", tmp_path / "assets")
    found = read_vocabularies(tmp_path / "assets", SPEC)
    assert (len(found["a"]), len(found["c"])) == (4, 2)
    (tmp_path / "assets" / file).unlink()
    with pytest.raises(FileNotFoundError):
        read_vocabularies(tmp_path / "assets", SPEC)


@pytest.mark.parametrize("name", ["shared", "small"])
def test_ids_and_tokens_are_the_same(graphs, name):
    each, shared = (load_graph(graphs[which])(columns(ROWS)) for which in ("each", name))
    for tensor, values in each.items():
        np.testing.assert_array_equal(shared[tensor], values, tensor)
    assert len(np.unique(shared["ids"])) > 20 and (shared["tokens"] > 3).any()


@pytest.mark.parametrize("name", ["shared", "small"])
def test_sizes_and_the_feature_map_are_the_same(graphs, name):
    each = feature_map(SPEC, tft.TFTransformOutput(str(graphs["each"])))
    shared = feature_map(SPEC, tft.TFTransformOutput(str(graphs[name])))
    assert shared == each
    sizes = {field.name: field.size for field in shared.fields}
    assert sizes["a"] == 2 + 4 and sizes["c"] == 2 + 2 + 2 and sizes["tags"] == 2 + 4 + 1


@pytest.mark.slow
def test_an_empty_vocabulary_among_many_names_the_column(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabularies, "MOST_TABLES", 1)
    written(SPEC, {**ROWS, "b": [""] * 8}, tmp_path)
    with pytest.raises(InputError, match="the vocabulary of b has no entry"):
        feature_map(SPEC, tft.TFTransformOutput(str(tmp_path)))


@pytest.mark.parametrize(("count", "files"), [(8, [f"vocabulary_c{n}" for n in range(8)]), (9, ["vocabularies"])])
def test_a_log_of_few_columns_has_a_file_for_each(tmp_path, count, files):
    features = [{"kind": "categorical", "columns": [f"c{n}" for n in range(count)]}]
    spec = LogSpec.model_validate({"data": {"header": True, "labels": {"ctr": "y"}}, "features": features})
    values = {f"c{n}": [b"x", b"%d" % n] for n in range(count)}
    vocabularies.write_vocabularies(spec, values, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    found = read_vocabularies(tmp_path, spec)
    assert {column: known.to_pylist() for column, known in found.items()} == values


# Values as they are ---------------------------------------------------------------------------------------------------

VALUES = [
    *("a\nb", "a\rb", "a\r\nb", "\n", "\r", "a\\nb", "a\\b", "\\", "\\\n", "\\\\", "tab\tb", "nul\0b", "nul\0", "nul"),
    *(" lead", "trail ", " ", "\x85", "\u2028", "\x0b", "\x0c", "\x1c", "\ufeff", "é", "e\u0301", "🙂", '"q"', "'"),
    *("1:a\nb", "$0", r"\1", "%s"),
]
ODD = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "odd", "other", "list", "seen", "text"], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "categorical", "columns": ["odd", "other"]},
            {"kind": "multivalent", "columns": ["list"], "max_length": 2},
            {"kind": "sequence", "columns": ["seen"], "max_length": 2, "shared_with": ["odd"]},
            {"kind": "text", "columns": ["text"], "separator": " ", "length": 5, "tokens": "vocabulary"},
        ],
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("most", [0, 8])
def test_every_value_is_found_as_it_is(tmp_path, monkeypatch, most):
    """Values with line breaks, NULs and blanks, in a column's own table and in the shared one."""
    monkeypatch.setattr(vocabularies, "MOST_TABLES", most)
    counts = {value.encode(): 1 + number % 5 for number, value in enumerate(VALUES)}
    values = [value for value, count in counts.items() for _ in range(count)]
    of_text = [value.replace(b" ", b"") or b"x" for value in values]
    rows = {"odd": values, "list": values, "seen": [None] * len(values), "text": of_text}
    rows["other"] = [b"plain"] * len(values)
    counter = LogCounter.of_log(ODD)
    counter.add({name: pa.array(rows[name], pa.binary()) for name in counter.columns})
    write_graph(ODD, counter.summary(), tmp_path)
    assets = tmp_path / "transform_fn" / "assets"
    order = sorted(counts, key=lambda value: (counts[value], value), reverse=True)
    found = read_vocabularies(assets, ODD)
    assert found["odd"].to_pylist() == order == found["list"].to_pylist()
    assert (assets / "vocabularies").exists() == (most == 0) and (assets / "vocabulary_odd").exists() is False
    asked = {name: np.array(order, object) for name in ("odd", "list", "seen")}
    asked["text"] = np.array([value.replace(b" ", b"") or b"x" for value in order], object)
    asked |= {"other": np.array([b"plain"] * len(order), object), "click": np.zeros(len(order), np.float32)}
    packed = load_graph(tmp_path)(asked)
    offset = {field.name: field.offset for field in feature_map(ODD, tft.TFTransformOutput(str(tmp_path))).fields}
    expected = np.arange(len(order)) + 2
    np.testing.assert_array_equal(packed["ids"][:, 0] - offset["odd"], expected)
    np.testing.assert_array_equal(packed["ids"][:, 2] - offset["list"], expected)
    np.testing.assert_array_equal(packed["ids"][:, 4] - offset["odd"], expected)
    assert (packed["ids"][:, 1] == packed["ids"][0, 1]).all()
    assert (packed["tokens"][:, 1] > 4).all() and len(np.unique(packed["tokens"][:, 1])) == len(set(asked["text"]))


def test_a_column_without_line_breaks_is_not_escaped(tmp_path):
    spec = LogSpec.model_validate(
        {"data": {"header": True, "labels": {"ctr": "y"}}, "features": [{"kind": "categorical", "columns": ["a", "b"]}]}
    )
    values = {"a": [b"back\\slash", b"x"], "b": [b"back\\slash", b"line\nbreak"]}
    vocabularies.write_vocabularies(spec, values, tmp_path)
    assert (tmp_path / "vocabulary_a").read_bytes() == b"back\\slash\nx\n"
    assert (tmp_path / "escaped_vocabulary_b").read_bytes() == b"back\\\\slash\nline\\nbreak\n"
    found = read_vocabularies(tmp_path, spec)
    assert {column: known.to_pylist() for column, known in found.items()} == values
    (tmp_path / "vocabulary_a").write_bytes(b"")  # damaged
    assert read_vocabularies(tmp_path, spec)["a"].to_pylist() == []
