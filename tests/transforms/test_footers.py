"""The last line of a text that is a total or a count, and no row."""

import gzip

import pytest

from ctrpipe.transforms.log.footers import footers
from ctrpipe.transforms.log.sample import read_sample
from ctrpipe.transforms.log.spec import Data

CSV = Data.model_validate({"format": "csv", "header": True, "labels": {"ctr": "click"}})
ROWS = "click,device,query,price\n" + "1,total,,2.5\n0,sum,7,1\n" * 5


def found(folder, end: str, data: Data = CSV, rows: str = ROWS) -> list[str]:
    (folder / "log.csv").write_text(rows + end)
    return list(footers(data, [str(folder / "log.csv")]))


@pytest.mark.parametrize(
    "end",
    [
        *("Total,,,1234", '"Grand Total",,,99.5\n', ",,Total:,3", "Summe,,,1\n\n", "Total,1234"),
        *("-- 1000 rows", "(1000 rows)\n", "1,000 rows selected.\n", "# end", "EOF", "-----\r\n", "Count,10,,"),
    ],
)
def test_a_footer_is_named_with_its_line(end, tmp_path):
    [text] = found(tmp_path, end)
    assert text.startswith(
        f"{tmp_path}/log.csv: its last line, '{end.strip()}', looks like a footer, and is read as a row"
    )


@pytest.mark.parametrize("end", ["", "1,total,,2.5", "0,sum,7,1\n", "1,-- a,b,3", "1,,,", "0,count,,1", "1,end,x,2\n"])
def test_a_row_is_none(end, tmp_path):
    assert found(tmp_path, end) == []
    assert found(tmp_path, "", rows="Total,,,1234\n") == []  # the only line


def test_compressed_and_other_texts_are_looked_at_and_objects_are_not(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(gzip.compress(f"{ROWS}Total,,,5\n".encode()))
    assert len(list(footers(CSV, [str(path)]))) == 1
    path.write_bytes(f"{ROWS}Total,,,5\n".encode("utf-16"))
    assert len(list(footers(CSV.model_copy(update={"encoding": "utf-16"}), [str(path)]))) == 1
    tsv = Data.model_validate({"columns": ["click", "device", "price"], "labels": {"ctr": "click"}})
    assert len(found(tmp_path, "Total\t\t7\n", tsv, "1\ta\t2\n")) == 1
    assert found(tmp_path, "# end", CSV.model_copy(update={"format": "jsonl"})) == []


@pytest.mark.parametrize("end", ["Total,,,1234\n", "-- 10 rows\n"])
def test_a_draft_leaves_the_footer_out_and_says_so(end, tmp_path):
    rows = "click,device,query,price\n" + "".join(f"{row % 2},d{row % 3},{row % 5},1.5\n" for row in range(40))
    (tmp_path / "log.csv").write_text(rows + end)
    sample = read_sample(str(tmp_path / "log.csv"))
    assert sample.rows == 40 and set(sample.columns["click"]) == {"0", "1"}
    assert sample.unsure == (f"The last line, '{end.strip()}', looks like a footer: remove it from the file.",)
