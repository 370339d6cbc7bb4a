"""A row of several values, as `a|b`, is in the slice of each of them: in metrics.json, comparisons and gates."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.metrics import log_loss

from ctrpipe.pipeline.compare.models import compare
from ctrpipe.pipeline.config.evaluation import CalibrationBounds, Evaluation
from ctrpipe.pipeline.evaluation.elements import elements_of, frequent_slices
from ctrpipe.pipeline.evaluation.evaluate import evaluate
from ctrpipe.pipeline.evaluation.gates import slice_gates
from ctrpipe.pipeline.evaluation.judge import PREDICTIONS
from ctrpipe.pipeline.evaluation.predictions import prediction_column
from ctrpipe.pipeline.evaluation.scored_rows import read_scored, write_scored
from ctrpipe.transforms.log.payload import PayloadWriter, payload_schema
from ctrpipe.transforms.log.spec import LogSpec

ROWS = 600
RANDOM = np.random.default_rng(3)
CELLS = RANDOM.choice(["a", "b", "a|b", "b|a|b", "", "c|a"], ROWS)
CLICK = (RANDOM.random(ROWS) < 0.4).astype(np.float32)
GUESS = RANDOM.uniform(0.1, 0.9, ROWS).astype(np.float32)
HOLDS = {value: np.array([value in cell.split("|") for cell in CELLS]) for value in "abc"} | {"(missing)": CELLS == ""}


def test_elements_count_once_a_row_and_the_most_frequent_come_first() -> None:
    texts = ["a|b", "a|a", "", "b|", "|", "c"]
    names, places, elements = elements_of(texts, "|")
    pairs = sorted((texts[place], names[element]) for place, element in zip(places, elements, strict=True))
    expected = [
        ("a|b", "a"),
        ("a|b", "b"),
        ("a|a", "a"),
        ("", "(missing)"),
        ("b|", "b"),
        ("|", "(missing)"),
        ("c", "c"),
    ]
    assert pairs == sorted(expected)
    codes = np.array([0, 1, 3, 3, 5, 4])
    found = {name: own.tolist() for name, own in frequent_slices(texts, codes, "|", 3)}
    assert list(found) == ["b", "a", "(missing)"]
    assert found["a"] == [True, True, False, False, False, False] and sum(found["b"]) == 3
    assert [name for name, _ in frequent_slices(texts, codes, "", 9)] == ["b|", "a|a", "a|b", "c", "|"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    """metrics.json and the scored rows of a log whose column `tags` has several values a row."""
    folder = tmp_path_factory.mktemp("lists")
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
            "features": [
                {"kind": "multivalent", "columns": ["tags"], "separator": "|", "max_length": 3},
                {"kind": "categorical", "columns": ["whole"]},
            ],
        }
    )
    schema = payload_schema(spec)
    cells = [cell.encode() or None for cell in CELLS]
    rows = pa.RecordBatch.from_pydict({"tags": cells, "whole": cells, "click": CLICK}, schema)
    with PayloadWriter(folder, "part", schema) as writer:
        writer.write(rows)
    files = sorted(folder.glob("*.parquet"))
    (folder / "judged" / PREDICTIONS).mkdir(parents=True)
    predicted = pa.table({prediction_column("candidate", "ctr"): GUESS})
    pa.parquet.write_table(predicted, folder / "judged" / PREDICTIONS / files[0].name)
    metrics, scored, _ = evaluate(
        folder / "judged", None, files, spec, Evaluation(slices=["tags", "whole"]), "these rows"
    )
    return metrics, scored


def test_metrics_json_has_the_elements_of_lists_alone(results) -> None:
    metrics, _ = results
    assert set(metrics["slices"]["tags"]) == {"a", "b", "c", "(missing)"}
    for value, own in HOLDS.items():
        found = metrics["slices"]["tags"][value]
        assert found["examples"] == own.sum()
        assert found["log_loss"] == pytest.approx(log_loss(CLICK[own], GUESS[own].astype(float)), rel=1e-5)
    assert set(metrics["slices"]["whole"]) == {"a", "b", "a|b", "b|a|b", "c|a", "(missing)"}


def test_a_comparison_and_a_gate_have_them_too(results, tmp_path: pathlib.Path) -> None:
    _, scored = results
    write_scored(tmp_path / "rows.parquet", scored)
    kept = read_scored(tmp_path / "rows.parquet")
    assert kept.separators == {"tags": "|"}
    parts = {part["slice"]: part["rows"] for part in compare({"x": [kept], "y": [kept]})["slices"]}
    assert {name: parts[f"tags = {name}"] for name in HOLDS} == {name: own.sum() for name, own in HOLDS.items()}
    assert "tags = a|b" not in parts and "whole = a|b" in parts
    [row] = slice_gates(CalibrationBounds(slices=["tags"], max_error=0.01, min_clicks=1), kept, "ctr")
    assert "of the largest of 4 values" in row["reason"]
