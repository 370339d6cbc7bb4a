"""The weight column: it is read, checked and packed, and is never a feature."""

import numpy as np
import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.features.packed_files import PackedReader, label_means, packed_files, row_weights
from ctrpipe.transforms.features.transform import analyze, transform
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.payload import payload_files
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS
from ctrpipe.transforms.log.values import explained

HERE = Workers(processes=1)


def spec(**data) -> LogSpec:
    data = {"format": "csv", "header": True, "labels": {"ctr": "y"}, "weight": "w", **data}
    features = [{"kind": "categorical", "columns": ["c"]}, {"kind": "numeric", "columns": ["n"]}]
    return LogSpec.model_validate({"data": data, "features": features})


def write(path, weights: list[str]) -> str:
    rows = [f"{row % 2},{weight},v{row % 5},{row}" for row, weight in enumerate(weights)]
    path.write_text("y,w,c,n\n" + "\n".join(rows) + "\n")
    return str(path)


def test_what_is_no_weight_makes_its_row_malformed(tmp_path):
    path = write(tmp_path / "log.csv", ["1", "0", "2.5", "-1", "NaN", "", "inf", "heavy", "-0.0", "1e2"])
    [batch] = LogReader(spec()).read(path)
    assert batch.rows["w"].to_pylist() == [1, 0, 2.5, 0, 100]
    expected = "w: the weight must be a finite number of 0 or more, found "
    found = [reject.reason.removeprefix(expected) for reject in batch.rejects]
    assert found == ["'-1'", "'NaN'", "nothing", "'inf'", "'heavy'"]


@pytest.mark.parametrize(
    ("found", "cure"),
    [
        *((text, "write the number alone, with a point before") for text in ("'$2.72'", "'2,72'", "'1,234.5 kg'")),
        *((text, "write a number of 0 or more, or leave the row out") for text in ("'-1'", "'heavy'", "'inf'")),
        ("nothing", "write a number in each row, 1 where a row counts once"),
    ],
)
def test_what_is_no_weight_is_said_with_what_to_write(found, cure):
    assert cure in explained(f"w: the weight must be a finite number of 0 or more, found {found}")


@pytest.mark.parametrize(
    ("found", "is_told"), [("1 234", True), ("$5", True), ("85%", True), ("x1", False), ("-", False)]
)
def test_a_number_of_another_form_is_said_with_the_key_that_reads_it(found, is_told):
    assert ("name the form of the column's numbers in written" in explained(f"n: '{found}' is not a number")) == is_told


@pytest.mark.parametrize("weight", ["inf", "1e39"])
def test_a_weight_without_an_end_is_malformed_among_numbers_of_any_form(tmp_path, weight):
    path = write(tmp_path / "log.csv", ["1.0"] * 99 + [weight])
    [batch] = LogReader(spec()).read(path)
    assert [reject.line for reject in batch.rejects] == [101] and len(batch.lines) == 99


def test_rows_without_labels_need_no_weight(tmp_path):
    (tmp_path / "log.csv").write_text("c,n\nv1,3\n")
    [batch] = LogReader(spec(columns=["y", "w", "c", "n"]), labels=False).read(str(tmp_path / "log.csv"))
    assert batch.rows.to_pylist() == [{"n": 3.0, "c": b"v1"}]
    plain = spec(columns=["y", "w", "c", "n"], header=False)
    (tmp_path / "plain.csv").write_text("v1,3\nv2,4\n")
    [batch] = LogReader(plain, labels=False).read(str(tmp_path / "plain.csv"))
    assert batch.rows["n"].to_pylist() == [3.0, 4.0]


def packed(tmp_path, weights: list[str], log: LogSpec) -> dict[str, list]:
    """The packed files of each split."""
    path = write(tmp_path / "log.csv", weights)
    folders = {name: tmp_path / name for name in SPLITS}
    for folder in folders.values():
        folder.mkdir()
    ingest(log, [path], 0, folders, tmp_path / "dead", HERE)
    analyze(log, payload_files(folders["train"]), tmp_path / "graph", HERE)
    splits = {name: (folder, tmp_path / "packed" / name) for name, folder in folders.items()}
    transform(log, tmp_path / "graph", splits, 0, HERE)
    return {name: packed_files(target) for name, (_, target) in splits.items()}


def test_weights_are_packed_beside_their_rows_and_are_no_feature(tmp_path):
    weights = np.random.default_rng(1).integers(0, 4, 200)
    files = packed(tmp_path, [str(weight) for weight in weights], spec())
    np.testing.assert_array_equal(row_weights(files["test"]), weights[180:])  # in the log's order
    labels = np.arange(180, 200) % 2
    np.testing.assert_allclose(label_means(files["test"]), [weights[180:] @ labels / weights[180:].sum()])
    train = sorted(zip(row_weights(files["train"]), labels_of(files["train"]), strict=True))
    assert train == sorted(zip(weights[:160], np.arange(160) % 2, strict=True))
    inputs, _ = next(iter(PackedReader(files["train"], 64)))
    assert set(inputs) == {"ids"} and inputs["ids"].shape == (64, 2)
    inputs, _ = next(iter(PackedReader(files["train"], 64, weighted=True)))
    assert inputs["weight"].shape == (64, 1)


def labels_of(files: list) -> np.ndarray:
    return np.concatenate([label[:, 0] for _, label in PackedReader(files, 64)])


def test_rows_without_weights_have_none(tmp_path):
    log = spec(weight=None, columns=["y", "w", "c", "n"])
    assert row_weights(packed(tmp_path, ["1"] * 100, log)["train"]) is None


def test_a_split_without_weight_is_refused_in_one_line(tmp_path):
    weights = ["1"] * 180 + ["0"] * 20
    with pytest.raises(InputError, match="^data.weight: w is 0 in all test rows; give rows a weight") as error:
        packed(tmp_path, weights, spec())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("rare", [0, 1])
def test_a_class_without_weight_is_refused_in_one_line(tmp_path, rare):
    weights = [str(int(number % 2 != rare or number < 180)) for number in range(200)]  # the label is number % 2
    message = f"^data.weight: w is 0 in all test rows with y {rare}; a model needs both classes: give rows of both"
    with pytest.raises(InputError, match=message):
        packed(tmp_path, weights, spec())


@pytest.mark.parametrize("place", [0, 100, 150, 199])  # in each split
@pytest.mark.parametrize("weight", ["1e38", "1e12"])
def test_a_row_beside_which_no_other_counts_is_refused(tmp_path, place, weight):
    weights = ["1.5"] * 200
    weights[place] = weight
    split = "train" if place < 160 else "test"
    message = (
        f"^data.weight: w is {float(weight):g} in one of the {split} rows, beside which the other [0-9]+ do not count"
    )
    with pytest.raises(InputError, match=message.replace("+", r"\+", 1)):
        packed(tmp_path, weights, spec())


@pytest.mark.parametrize("weight", ["1e38", "1e-42"])
def test_weights_that_32_bits_cannot_add_up_are_refused(tmp_path, weight):
    with pytest.raises(InputError, match=r"^data.weight: w is (1e\+38|1.000.*e-42) on average .* divide all weights"):
        packed(tmp_path, [weight] * 200, spec())


@pytest.mark.parametrize("weights", [["1e20"] * 200, ["1e-20"] * 200, ["1"] * 150 + ["100000"] * 50])
def test_any_scale_of_weights_is_taken(tmp_path, weights):
    assert packed(tmp_path, weights, spec())


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("{weight: c}", "data.weight: c is also a feature or a label"),
        ("{weight: y}", "data.weight: y is also a feature or a label"),
        ("{columns: [y, c, n]}", "data.columns does not list w"),
    ],
)
def test_the_weight_is_a_column_of_its_own(data, complaint):
    with pytest.raises(ValueError, match=complaint):
        spec(**yaml.safe_load(data))


def test_a_value_over_several_lines_is_told_by_the_key_that_reads_it():
    assert "data.quoted_line_breaks" in explained("a quote is not closed")
