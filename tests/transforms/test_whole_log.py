"""write_whole_log writes all good rows of a log to one payload, without a split."""

import gzip

import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.unsplit_log import write_whole_log

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "price", "site"], "labels": {"ctr": "click"}, "max_bad_row_rate": 0.2},
        "features": [{"kind": "numeric", "columns": ["price"]}, {"kind": "categorical", "columns": ["site"]}],
    }
)


@pytest.fixture
def log(tmp_path) -> list[str]:
    """Two files of ten rows; the third row of the second is malformed."""
    (tmp_path / "1.tsv").write_text("".join(f"{row % 2}\t{row}\tsité\n" for row in range(10)))
    with gzip.open(tmp_path / "2.tsv.gz", "wt") as file:
        file.write("".join(f"1\t{'x' if row == 2 else row}\t\n" for row in range(10)))
    return [str(tmp_path / "1.tsv"), str(tmp_path / "2.tsv.gz")]


def read(folder) -> dict:
    return pa.Table.from_batches(read_payload(payload_files(folder))).to_pydict()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_all_good_rows_are_written_in_the_order_of_the_log(tmp_path, log, processes):
    (tmp_path / "out").mkdir()
    counts = write_whole_log(SPEC, log, True, tmp_path / "out", Workers(processes=processes))
    assert (counts.rows, counts.rejected) == (19, 1)
    assert counts.first == f"{log[1]}: line 3: price: 'x' is not a number"
    rows = read(tmp_path / "out")
    assert rows["price"] == [*range(10), 0, 1, *range(3, 10)]
    assert rows["site"] == ["sité".encode()] * 10 + [None] * 9
    assert rows["click"] == [0, 1] * 5 + [1] * 9


def test_a_log_without_labels_gives_a_payload_without_labels(tmp_path):
    (tmp_path / "log.tsv").write_text("1\ta\n2\tb\n")
    (tmp_path / "out").mkdir()
    assert write_whole_log(SPEC, [str(tmp_path / "log.tsv")], False, tmp_path / "out", Workers(processes=1)).rows == 2
    assert read(tmp_path / "out") == {"price": [1, 2], "site": [b"a", b"b"]}


def test_too_many_malformed_rows_are_an_input_error(tmp_path, log):
    strict = SPEC.model_copy(update={"data": SPEC.data.model_copy(update={"max_bad_row_rate": 0.04})})
    with pytest.raises(InputError, match=r"2.tsv.gz: line 3: price: 'x' is not a number; 1 of 20 rows are malformed"):
        write_whole_log(strict, log, True, tmp_path, Workers(processes=1))
