"""The rows of a log that a trained model reads."""

import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.run.model_rows import read_row, read_rows
from ctrpipe.pipeline.run.trained_model import TrainedModel
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["label", "n", "c", "d"], "labels": {"ctr": "label"}},
        "features": [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c", "d"]}],
    }
)


def test_a_line_is_named_as_in_an_editor(tmp_path):
    log = tmp_path / "log.tsv"
    log.write_text("0\t1\tx\ty\n1\tbad\tx\ty\n0\t3\tu\tv\n")
    assert read_row(f"{log}:3", SPEC, OwnValues(SPEC, {})).to_pylist() == [{"n": 3.0, "c": b"u", "d": b"v"}]
    for line, message in (("2", "line 2 is malformed"), ("4", "has no row at line 4"), ("0", "expected FILE:LINE")):
        with pytest.raises(InputError, match=message):
            read_row(f"{log}:{line}", SPEC, OwnValues(SPEC, {}))


def test_a_log_of_other_columns_and_a_version_without_rows_are_refused(tmp_path):
    log = tmp_path / "log.tsv"
    log.write_text("0\t1\tx\n" * 5)
    source = TrainedModel(tmp_path, None)
    with pytest.raises(InputError, match="5 of 5 rows are malformed|expected 4"):
        list(read_rows(source, [str(log)], SPEC))
    with pytest.raises(InputError, match="give --data"):
        list(read_rows(source, [], SPEC))
