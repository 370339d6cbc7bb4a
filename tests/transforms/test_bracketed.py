"""Lists that a log's text has in brackets, from the draft to the served answer."""

import json
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml

from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.draft.page import draft
from ctrpipe.transforms.log.bracketed import elements_in_brackets, from_brackets
from ctrpipe.transforms.log.readers import LogReader


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("['a', 'b']", ["a", "b"]),
        ('["a","b, c"]', ["a", "b, c"]),
        ("[1, 2,3]", ["1", "2", "3"]),
        ("('a',)", ["a"]),
        ("{a,new york}", ["a", "new york"]),
        ("['a' 'new york']", ["a", "new york"]),
        ("[ 1  20 3]", ["1", "20", "3"]),
        ("['new york']", ["new york"]),
        ("[new york]", ["new york"]),
        ("[]", []),
        (" [ ] ", []),
        ("['a', None, null, nan]", ["a", "", "", ""]),
        ('["it\'s", "a\\"b"]', ["it's", 'a"b']),
        ("['it\\'s']", ["it's"]),
        ("a|b", None),
        ("[[1], [2]]", None),
        ("{'a': 1}x", None),
        ("['a', 'b", None),
        ("['a'b]", None),
    ],
)
def test_elements(text, elements):
    assert elements_in_brackets(text) == elements


def test_lists_as_python_and_json_write_them_come_back():
    chance = random.Random(4)
    letters = "ab é,;:|[](){}'\"\\ 0.5-"
    for _ in range(300):
        elements = ["".join(chance.choices(letters, k=chance.randint(1, 5))) for _ in range(chance.randint(0, 4))]
        assert elements_in_brackets(json.dumps(elements)) == elements
        assert elements_in_brackets(json.dumps(elements, ensure_ascii=False)) == elements
        assert elements_in_brackets(repr(elements)) == elements


def test_values_of_a_column_are_joined_and_wrong_ones_told():
    texts = ["['a', 'b']", None, "c|d", "[]", "['a'", "['x|y']", "['a', 'b']"]
    faults: dict[int, str] = {}
    values = from_brackets(pa.array([text and text.encode() for text in texts], pa.binary()), "|", "tags", faults)
    assert [values[row].as_py() for row in (0, 1, 2, 3, 6)] == [b"a|b", None, b"c|d", None, b"a|b"]
    assert faults == {
        4: "tags: '['a'' begins with a bracket and is no list of single values",
        5: "tags: an element of the list has the separator '|' in it; set another one",
    }


def log_of(folder, rows: int = 400) -> str:
    chance = np.random.default_rng(1)
    tags = [[f"t{tag}" for tag in chance.integers(0, 9, chance.integers(0, 4))] for _ in range(rows)]
    seen = [chance.integers(0, 40, chance.integers(1, 5)).tolist() for _ in range(rows)]
    frame = pd.DataFrame({"item": chance.integers(0, 40, rows), "tags": tags, "seen": seen})
    frame["vector"] = [chance.normal(size=4).round(3).tolist() for _ in range(rows)]
    frame["click"] = chance.integers(0, 2, rows)
    frame.to_csv(folder / "log.csv", index=False)  # pandas writes Python's lists
    return str(folder / "log.csv")


def test_a_draft_reads_them_and_a_check_names_them_where_a_configuration_does_not(tmp_path):
    log = log_of(tmp_path)
    values = yaml.safe_load(draft([log])[0])
    kinds = {column: entry for entry in values["features"] for column in entry["columns"]}
    assert kinds["tags"]["kind"] == "multivalent" and kinds["tags"]["brackets"] is True
    assert kinds["seen"]["brackets"] is True and kinds["seen"]["separator"] == "|"
    assert kinds["vector"] == {"columns": ["vector"], "kind": "vector", "length": 4, "separator": ","}
    spec = RunConfig.model_validate(values).log_spec
    batch = next(iter(LogReader(spec).read(log)))
    frame = pd.read_csv(log)
    wanted = ["|".join(map(str, json.loads(text.replace("'", '"')))) for text in frame["tags"]]
    read = [(value or b"").decode() for value in batch.rows["tags"].to_pylist()]
    assert read == wanted and not batch.rejects
    for entry in values["features"]:
        entry.pop("brackets", None)
        if "tags" in entry["columns"]:
            entry["separator"] = ","
    notes = check_log(RunConfig.model_validate(values), [log]).notes
    assert [note for note in notes if note.startswith("tags: values begin with brackets")]


def test_a_history_in_brackets_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr("ctrpipe.pipeline.draft.page.count_rows", lambda files, sample: 2_000_000)
    values = yaml.safe_load(draft([log_of(tmp_path)])[0])
    [history] = [entry for entry in values["features"] if entry["kind"] == "sequence"]
    assert history["columns"] == ["seen"] and history["shared_with"] == "item" and history["brackets"] is True
