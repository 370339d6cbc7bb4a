"""What `ctrpipe init` proposes, and what a user says in place of its guesses."""

import pathlib

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import check_hyperparameters
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.draft import page
from ctrpipe.pipeline.draft.page import Said, draft

pytestmark = pytest.mark.usefixtures("trees")

ROWS = 900
RANDOM = np.random.default_rng(7)
CLICK = (RANDOM.random(ROWS) < 0.3).astype(int)


def write(folder: pathlib.Path, delimiter: str = ",", **columns: object) -> str:
    named = {"site": RANDOM.choice(["a", "b", "c"], ROWS), **columns}
    rows = zip(*named.values(), strict=True)  # type: ignore[call-overload]
    lines = [delimiter.join(named), *(delimiter.join(map(str, row)) for row in rows)]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "log.csv")


def drafted(log: str, label: str | None = None, **said: object) -> tuple[dict, str, list[str]]:
    text, unsure = draft([log], said=Said(label, **said))  # type: ignore[arg-type]
    return yaml.safe_load(text), text, unsure


def columns(values: dict) -> set[str]:
    return {column for group in values["features"] for column in group["columns"]}


@pytest.mark.parametrize(
    ("words", "is_sure"),
    [
        (("clicked", "ignored"), True),
        (("converted", "lost"), True),
        ((">50K", "<=50K"), True),
        (("B", "A"), False),  # the rarer one
        (("rot", "blau"), False),
    ],
)
def test_a_label_of_words_is_written_into_the_file(tmp_path, words, is_sure):
    values, _, unsure = drafted(write(tmp_path, outcome=[words[0] if one else words[1] for one in CLICK]), "outcome")
    assert values["data"]["labels"]["ctr"] == {"column": "outcome", "positive": [words[0]], "negative": [words[1]]}
    assert any(line.startswith("outcome: positive is") for line in unsure) is not is_sure
    RunConfig.model_validate(values)


def test_a_label_of_words_needs_no_option_where_its_name_says_so(tmp_path):
    values, _, _ = drafted(write(tmp_path, target=["good" if one else "bad" for one in CLICK]))
    assert values["data"]["labels"]["ctr"] == {"column": "target", "positive": ["good"], "negative": ["bad"]}


def test_what_a_user_says_is_taken(tmp_path):
    log = write(
        tmp_path,
        click=CLICK,
        who=RANDOM.integers(10**10, 10**11, ROWS),  # an id of almost every row
        importance=RANDOM.random(ROWS) + 0.5,
        moment=1_767_225_600 + RANDOM.permutation(ROWS) * 60,
        noise=RANDOM.integers(0, 5, ROWS),
        sample_weight=np.full(ROWS, 1.5),
    )
    assert "who" not in columns(drafted(log)[0])
    values, _, unsure = drafted(log, user="who", weight="importance", drop=("noise", "sample_weight"), time="moment")
    assert columns(values) == {"site", "who", "moment"}
    assert values["data"]["weight"] == "importance" and not any(line.startswith("importance") for line in unsure)
    assert values["data"]["split"] == {"by": "time", "column": "moment", "validation": 0.1, "test": 0.1}
    RunConfig.model_validate(values)
    of_user = drafted(log, user="who")[0]
    assert of_user["data"]["split"] == {"by": "group", "column": "who"} and "who" in columns(of_user)
    assert drafted(log, group="site")[0]["data"]["split"] == {"by": "group", "column": "site"}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"time": "x"}, "--time x: no such column; it has site, click"),
        ({"drop": ("site", "y")}, "--drop y: no such column"),
        ({"time": "site", "group": "site"}, "--time and --group: a log is divided by one of them"),
        ({"drop": ("site",), "weight": "site"}, "--drop site: another option names the column"),
    ],
)
def test_what_a_user_says_wrongly_is_one_line(tmp_path, said, message):
    with pytest.raises(InputError, match=message):
        drafted(write(tmp_path, click=CLICK), **said)


def test_the_command_takes_them_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "@", click=CLICK, shop=RANDOM.integers(0, 9, ROWS), other=CLICK * 2 + 1)
    options = ["--delimiter", "@", "--label", "click", "--group", "shop", "--drop", "other", "--output", "made.yaml"]
    made = CliRunner().invoke(main, ["init", "log.csv", *options])
    assert made.exit_code == 0, made.output
    values = yaml.safe_load(pathlib.Path("made.yaml").read_text())
    assert values["data"]["delimiter"] == "@" and values["data"]["split"] == {"by": "group", "column": "shop"}
    assert columns(values) == {"site", "shop"}


def test_a_label_in_disguise_and_a_constant_are_left_out_and_said(tmp_path):
    disguised = [f"page{one}{RANDOM.integers(3)}" for one in CLICK]
    score = CLICK * 10 + RANDOM.random(ROWS)
    log = write(tmp_path, click=CLICK, page=disguised, score=score, country=["de"] * ROWS, rate=RANDOM.random(ROWS))
    values, text, unsure = drafted(log)
    assert columns(values) == {"site", "rate"}
    assert "#? page: its values alone give the label away" in text and "#? score: its values alone" in text
    assert "#? country: one value in all rows, de: left out" in text
    assert {"page and score", "country"} <= {line.split(":")[0] for line in unsure}


@pytest.mark.parametrize(
    ("count", "named"), [(2, "c0 and c1"), (4, "c0, c1, c2 and c3"), (8, "c0, c1, c2 and 5 more columns")]
)
def test_columns_with_the_same_question_share_a_line(tmp_path, count, named):
    log = write(tmp_path, click=CLICK, rate=RANDOM.random(ROWS), **{f"c{one}": [0] * ROWS for one in range(count)})
    _, text, unsure = drafted(log)
    assert f"{named}: one value in all rows, 0: left out." in unsure
    assert sum("one value" in line for line in unsure) == 1


def test_a_delimiter_is_that_of_all_lines_and_not_a_decimal_comma(tmp_path):
    """A price has a comma in each row, and some names have a second semicolon."""
    names = ["x;y" if number in (3, 400, 700) else "x" for number in range(ROWS)]
    prices = [f"{number % 37},{number % 10}" for number in range(ROWS)]
    log = write(tmp_path, ";", name=names, price=prices, click=CLICK)
    values, _, _ = drafted(log)
    assert values["data"]["delimiter"] == ";" and values["data"]["decimal"] == ","
    assert values["data"]["labels"] == {"ctr": "click"}


@pytest.mark.parametrize(
    ("rows", "wide", "name"), [(5000, False, "lightgbm"), (3_000_000, False, "dcn_v2"), (3_000_000, True, "dcn_v2")]
)
def test_the_model_is_that_of_the_log_s_size(tmp_path, monkeypatch, rows, wide, name):
    more = {f"k{place}": RANDOM.integers(0, 9, ROWS) for place in range(80)} if wide else {}
    more["price"] = RANDOM.normal(50, 9, ROWS).round(2)
    monkeypatch.setattr(page, "count_rows", lambda files, sample: rows)
    values, _, _ = drafted(write(tmp_path, click=CLICK, **more))
    assert values["model"]["name"] == name
    RunConfig.model_validate(values)
    check_hyperparameters(**values["model"])
    assert ("rank" in values["model"]) == wide
    assert [group["buckets"] for group in values["features"] if "price" in group["columns"]] == [
        64 if rows > 1e6 else 32
    ]
    if rows > 1e6:
        training = values["training"]
        assert (training["epochs"], training["decay"], training["batch_size"]) == (1, "cosine", 1024)
    room = values["gates"]["calibration"]["max"] - 1
    assert room == pytest.approx(max(0.1, 3 / np.sqrt(rows * 0.1 * CLICK.mean())), abs=0.006)


def test_lists_of_another_column_s_values_are_histories(tmp_path, monkeypatch):
    items = RANDOM.integers(0, 40, (ROWS, 4))
    lists = ["|".join(f"i{one}" for one in row[: 1 + place % 4]) for place, row in enumerate(items)]
    log = write(tmp_path, click=CLICK, item=[f"i{one}" for one in RANDOM.integers(0, 40, ROWS)], seen=lists)
    values, text, _ = drafted(log)
    [history] = [group for group in values["features"] if group["kind"] == "sequence"]
    assert (history["columns"], history["shared_with"], history["max_length"]) == (["seen"], "item", 4)
    assert values["model"]["name"] == "lightgbm" and "items of item: a history of them" in text
    monkeypatch.setattr(page, "count_rows", lambda files, sample: 2_000_000)
    values, _, _ = drafted(log)
    [history] = [group for group in values["features"] if group["kind"] == "sequence"]
    assert history["columns"] == ["seen"] and history["shared_with"] == "item"
    assert values["model"]["name"] == "din"
    training = values["training"]
    assert (training["epochs"], training["decay"]) == (4, "cosine") and "table_l2" not in training
    RunConfig.model_validate(values)
    check_hyperparameters(**values["model"])


def test_a_budget_searches_the_draft_and_a_wrong_one_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = write(tmp_path, clicked=CLICK)
    refused = CliRunner().invoke(main, ["init", log, "--budget", "soon"])
    assert refused.exit_code == 2 and "--budget soon: expected a time above 0" in refused.output
    assert not (tmp_path / "log.yaml").exists()
    searched = []

    def run_tune(plan: object, files: list[str], folder: pathlib.Path) -> str:
        searched.append((plan, files, folder))
        return "summary"

    monkeypatch.setattr("ctrpipe.pipeline.tune.run.run_tune", run_tune)
    monkeypatch.setattr("ctrpipe.pipeline.tune.results.print_summary", lambda *given: print(*given))
    made = CliRunner().invoke(main, ["init", log, "--budget", "1m30s"])
    assert made.exit_code == 0, made.output
    assert "Written: log.yaml\nNow:\n" in made.output and "ctrpipe tune log.yaml --budget 1m30s" in made.output
    [(plan, files, folder)] = searched
    assert (plan.budget.seconds, plan.budget.trials, files) == (90.0, None, [log])
    assert folder == pathlib.Path("runs/log-tune") and f"summary {folder}" in made.output
    assert plan.space.base.model.name == yaml.safe_load((tmp_path / "log.yaml").read_text())["model"]["name"]
    assert len(plan.space.values) > 1
