"""What is planted in validation and test rows alone is in nothing that is learned, whatever divides the log."""

import pathlib

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_transform as tft

from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.config import Calibration, Model, Training
from ctrpipe.pipeline.training.calibrate import fit_calibration
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.analyzers import summarize
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze, transform
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

HERE = Workers(processes=1)
ROWS = 600
WORD, NUMBER = "canary", 1e30
# By what the log is divided; `when` is the column of the time, `user` the column of the group.
DIVISIONS = {
    "order": {"by": "order"},
    "hash": {"by": "hash", "validation": 0.2, "test": 0.2},
    "group": {"by": "group", "column": "user", "validation": 0.2, "test": 0.2},
    "number": {"by": "time", "column": "number", "validation_from": "9", "test_from": "28"},
    "moment": {"by": "time", "column": "when", "validation_from": "2026-05-20", "test_from": "2026-05-26"},
    "last": {"by": "time", "column": "when", "last": "4d"},
    "shares": {"by": "time", "column": "when", "validation": 0.2, "test": 0.2},
    "text": {"by": "time", "column": "part", "validation_from": "b", "test_from": "c", "compare_as": "text"},
    "files": {"by": "files"},
}


def spec_of(split, files) -> LogSpec:
    if split["by"] == "files":
        split = {**split, "files": dict(zip(SPLITS, [[file] for file in files], strict=True))}
    features = [
        {"kind": "categorical", "columns": ["c", "row"], "min_count": 1},
        {"kind": "multivalent", "columns": ["tags"], "max_length": 3, "min_count": 1},
        {"kind": "numeric", "columns": ["n", "number"], "transform": "standardize"},
        {"kind": "numeric", "columns": ["q"], "transform": "quantile_bucketize", "buckets": 10},
        {"kind": "numeric", "columns": ["m"], "transform": "min_max"},
    ]
    data = {"format": "csv", "header": True, "labels": {"ctr": "click"}, "split": split}
    return LogSpec.model_validate({"data": data, "features": features})


def write(folder: pathlib.Path, planted: set[int]) -> list[str]:
    """Writes the log, in three files; some rows have the planted values."""
    random = np.random.default_rng(1)
    names = "row,click,c,tags,n,q,m,number,when,user,part"
    files = []
    for file in range(3):
        lines = [names]
        for row in range(file * ROWS // 3, (file + 1) * ROWS // 3):
            day = random.integers(1, 31)
            user, c, n = random.integers(50), random.integers(8), random.normal()
            click = int(random.random() < 0.3 + 0.05 * c)
            word = WORD if row in planted else f"v{c}"
            value = f"{NUMBER}" if row in planted else f"{n:.3f}"
            tags = f"{word}|t{c % 3}"
            lines.append(
                f"{row},{click},{word},{tags},{value},{value},{value},{day},2026-05-{day:02d},u{user},{'abc'[row % 3]}"
            )
        files.append(str(folder / f"part_{file}.csv"))
        pathlib.Path(files[-1]).write_text("\n".join(lines) + "\n")
    return files


def ingested(folder: pathlib.Path, split, planted: set[int] = frozenset()) -> tuple[LogSpec, dict[str, pathlib.Path]]:
    folder.mkdir()
    files = write(folder, planted)
    spec = spec_of(split, files)
    folders = {name: folder / f"Split-{name}" for name in SPLITS}
    for each in folders.values():
        each.mkdir()
    ingest(spec, files, spec.data.split.seed, folders, folder / "dead", HERE)
    return spec, folders


def rows_of(folders: dict[str, pathlib.Path]) -> dict[str, set[int]]:
    """Which rows are in which split."""
    return {
        name: {int(row) for batch in read_payload(payload_files(each)) for row in batch["row"].to_pylist()}
        for name, each in folders.items()
    }


@pytest.mark.parametrize("kind", DIVISIONS)
def test_a_planted_value_is_in_no_vocabulary_and_no_statistic(tmp_path, kind):
    _, folders = ingested(tmp_path / "clean", DIVISIONS[kind])
    rows = rows_of(folders)
    held = rows["validation"] | rows["test"]
    assert min(map(len, rows.values())) > 20 and sum(map(len, rows.values())) == ROWS
    assert not held & rows["train"] and not rows["validation"] & rows["test"]
    clean = summarize(payload_files(folders["train"]), spec_of(DIVISIONS[kind], ["a", "b", "c"]))
    spec, planted = ingested(tmp_path / "planted", DIVISIONS[kind], held)
    summary = summarize(payload_files(planted["train"]), spec)
    for column in ("c", "tags"):
        assert summary.values[column].values.to_pylist() == clean.values[column].values.to_pylist()
        assert WORD.encode() not in summary.values[column].values.to_pylist()
    for column in ("n", "q", "m"):
        found, expected = summary.numbers[column], clean.numbers[column]
        assert (found.count, found.mean, found.m2) == (expected.count, expected.mean, expected.m2)
        assert found.maximum < 10
    for name in ("validation", "test"):  # where it is, for the test to mean something
        found = [batch["c"] for batch in read_payload(payload_files(planted[name]))]
        assert set(pa.chunked_array(found).to_pylist()) == {WORD.encode()}


@pytest.mark.slow
def test_the_stopping_rule_and_the_calibration_never_see_a_test_row(tmp_path):
    """With other test rows the same weights are kept after the same evaluation, and the calibration is the same."""
    split = DIVISIONS["moment"]
    _, folders = ingested(tmp_path / "clean", split)
    test = rows_of(folders)["test"]
    found = []
    for name, planted in (("first", frozenset()), ("second", test)):
        spec, folders = ingested(tmp_path / name, split, planted)
        analyze(spec, payload_files(folders["train"]), tmp_path / name / "graph", HERE)
        packed = {each: tmp_path / name / f"packed-{each}" for each in SPLITS}
        transform(spec, tmp_path / name / "graph", {each: (folders[each], packed[each]) for each in SPLITS}, 0, HERE)
        fields = feature_map(spec, tft.TFTransformOutput(str(tmp_path / name / "graph")))
        train_files, validation_files = ([f"{packed[each]}/*"] for each in ("train", "validation"))
        training = Training(epochs=3, batch_size=64, learning_rate=0.05)
        job = TrainingJob(Model(name="lr"), training, fields, train_files, validation_files, 1)
        result = train(job, tmp_path / name / "work")
        calibration = fit_calibration(Calibration(method="platt"), fields, validation_files, None, result.model)
        evaluations = [
            {key: value for key, value in each.items() if "seconds" not in key}
            for each in result.history["evaluations"]
        ]
        found.append((evaluations, calibration, [weight.numpy().tolist() for weight in result.model.weights]))
    assert found[0] == found[1]
