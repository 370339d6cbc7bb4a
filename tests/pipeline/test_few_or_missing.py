"""What a check says of too few rows to judge by, and of a feature that the training rows lack."""

import pathlib

import pytest

from ctrpipe.pipeline.config import check_config
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.transforms.log.ingest import IngestResult, few_of_a_class


@pytest.mark.parametrize(
    ("rows", "clicks", "expected"),
    [
        (1000, 9, ["click is 1 in 9 of 1,000 test rows alone"]),
        (1000, 10, []),
        (1000, 995, ["click is 0 in 5 of 1,000 test rows alone"]),
        (12, 6, ["click is 1 in 6 of 12 test rows alone"]),
        (1000, 0, []),  # an error of its own
    ],
)
def test_a_split_with_few_rows_of_a_class_to_judge_by_is_named(rows: int, clicks: int, expected: list[str]) -> None:
    counts = {"train": 50, "validation": 500, "test": rows}, {"train": 1, "validation": 250, "test": clicks}
    lines = list(few_of_a_class("click", IngestResult(*counts, {}, 0, {})))
    assert [line.partition(":")[0] for line in lines] == expected


def test_a_check_refuses_a_feature_that_all_training_rows_lack(tmp_path: pathlib.Path) -> None:
    lines = [f"{row % 2},{row if row >= 80 else ''},{row % 7}" for row in range(100)]
    (tmp_path / "log.csv").write_text("\n".join(["click,late,always", *lines, ""]))
    data = {"format": "csv", "header": True, "labels": {"ctr": "click"}, "split": {"by": "order"}}
    features = [{"kind": "numeric", "columns": ["late", "always"]}]
    values = {"name": "n", "data": data, "features": features, "model": {"name": "lr"}, "training": {"epochs": 1}}
    found = check_log(check_config(values, (), "config"), [str(tmp_path / "log.csv")])
    [error] = [one for one in found.errors if "training rows" in one]
    assert error.startswith("Always missing in all 80 training rows: late;")
