"""Where `ctrpipe init` keeps the rows of one session or user in one split."""

import random

import pytest
import yaml

from ctrpipe.pipeline.draft.page import draft

ROWS = 400
RANDOM = random.Random(3)
CLICKS = [int(RANDOM.random() < 0.3) for _ in range(ROWS)]
SHUFFLED = RANDOM.sample(range(ROWS), ROWS)


def split_of(folder, name: str, of_row, order, **more) -> tuple[dict, str]:
    lines = [f"click,{name},site", *(f"{CLICKS[row]},q{of_row(row)},s{row % 5}" for row in order)]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    text, _ = draft([str(folder / "log.csv")])
    return yaml.safe_load(text)["data"]["split"], text


BY_CLICK = sorted(range(ROWS), key=lambda row: -CLICKS[row])


@pytest.mark.parametrize(
    ("name", "of_row", "order", "split"),
    [
        ("session_id", lambda row: row // 8, range(ROWS), {"by": "order"}),
        ("session_id", lambda row: row // 8, SHUFFLED, {"by": "group", "column": "session_id"}),
        ("session_id", lambda row: row // 8, BY_CLICK, {"by": "group", "column": "session_id"}),
        ("user", lambda row: row % 40, range(ROWS), {"by": "order"}),
        ("user", lambda row: row % 40, BY_CLICK, {"by": "group", "column": "user"}),
        ("colour", lambda row: row % 40, BY_CLICK, {"by": "hash"}),
        ("user", lambda row: row % 3, BY_CLICK, {"by": "hash"}),
        ("query_id", lambda row: row // 8, SHUFFLED, {"by": "order"}),
        ("imp", lambda row: row // 8, SHUFFLED, {"by": "order"}),
        ("session_no", lambda row: row // 8, BY_CLICK, {"by": "hash"}),
        ("request_id", lambda row: row, BY_CLICK, {"by": "hash"}),
    ],
)
def test_rows_that_chance_would_part_are_in_one_split(tmp_path, name, of_row, order, split):
    found, text = split_of(tmp_path, name, of_row, order)
    assert found == split
    features = [column for entry in yaml.safe_load(text)["features"] for column in entry["columns"]]
    is_passing = name in ("request_id", "session_id")  # its values do not return
    assert features == (["site"] if split["by"] == "group" or is_passing else [name, "site"])


def test_the_comment_of_an_order_names_the_column_of_groups(tmp_path):
    _, text = split_of(tmp_path, "user", lambda row: row % 40, range(ROWS))
    assert "{by: group, column: user} those of new values of user" in text
