"""`ctrpipe init` and `ctrpipe check`, on logs as people have them."""

import datetime
import json
import pathlib
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from click.testing import CliRunner

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.draft.page import draft
from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.transforms.features.transform import analyze
from ctrpipe.transforms.generate import generate, generate_kddcup2012
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.payload import payload_files
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.split import SPLITS

ROWS = 3000
START = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)


def rows():
    """Rows of a shop's log, in the order of time."""
    random = np.random.default_rng(1)
    words = ["red", "blue", "green", "big", "small", "new"]
    for number in range(ROWS):
        moment = START + datetime.timedelta(seconds=37 * number)
        yield {
            "row_id": 10**15 + number,
            "user_id": int(random.zipf(1.5)) % 500,
            "shop": f"shop{random.integers(12)}",
            "price": round(float(random.lognormal(2, 1)), 2),
            "tags": [str(word) for word in random.choice(words, random.integers(0, 5))],
            "moment": moment,
            "clicked": bool(random.random() < 0.2),
        }


def as_csv(folder: pathlib.Path) -> str:
    lines = ["row_id;user_id;shop;price;tags;moment;clicked"]
    for row in rows():
        price = str(row["price"]) if row["row_id"] % 9 else "NULL"
        shown = row["moment"].strftime("%d/%b/%Y:%H:%M:%S %z")
        yes = "yes" if row["clicked"] else "no"
        lines.append(f"{row['row_id']};{row['user_id']};{row['shop']};{price};{'|'.join(row['tags'])};{shown};{yes}")
    (folder / "shop.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "shop.csv")


def as_json(folder: pathlib.Path) -> str:
    (folder / "shop.jsonl.zst").write_bytes(
        pa.compress(
            "".join(json.dumps({**row, "moment": row["moment"].isoformat()}) + "\n" for row in rows()).encode(),
            "zstd",
            asbytes=True,
        )
    )
    return str(folder / "shop.jsonl.zst")


def as_parquet(folder: pathlib.Path) -> str:
    table = pa.Table.from_pylist(list(rows()))
    third = ROWS // 3
    for number in range(3):
        day = folder / "shop" / f"day=2026-11-0{number + 1}"
        day.mkdir(parents=True)
        pa.parquet.write_table(table.slice(number * third, third), day / "part.parquet")
    return str(folder / "shop")


def as_ratings(folder: pathlib.Path) -> str:
    """As MovieLens: user, item, rating, epoch; no header, not in the order of time."""
    random = np.random.default_rng(2)
    least, most = [1, 1, 1, 874_000_000], [400, 900, 6, 893_000_000]
    lines = ["\t".join(map(str, row)) for row in random.integers(least, most, (ROWS, 4))]
    (folder / "u.data").write_text("\n".join(lines) + "\n")
    return str(folder / "u.data")


def as_news(folder: pathlib.Path) -> str:
    """As MIND, a row for each shown article: times of a 12-hour clock, the articles read before, a title."""
    random = np.random.default_rng(3)
    words = [f"word{number}" for number in range(300)]
    lines = ["impression_id\tuser\ttime\thistory\tnews\tcategory\ttitle\tclick"]
    for number in range(ROWS):
        moment = (START + datetime.timedelta(seconds=61 * number)).strftime("%m/%d/%Y %I:%M:%S %p")
        history = " ".join(f"N{n}" for n in random.integers(1, 200, random.integers(0, 20)))
        title = " ".join(random.choice(words, random.integers(4, 9)))
        news = f"N{random.integers(1, 200)}"
        lines.append(
            f"{number // 3}\tU{random.integers(300)}\t{moment}\t{history}\t{news}\tc{random.integers(9)}\t{title}"
            f"\t{int(random.random() < 0.2)}"
        )
    (folder / "behaviors.tsv").write_text("\n".join(lines) + "\n")
    return str(folder / "behaviors.tsv")


def generated(name: str, log_format: str):
    def write(folder: pathlib.Path) -> str:
        generate(log_format, ROWS, 1, folder / name)
        return str(folder / name)

    return write


def as_kddcup2012(folder: pathlib.Path) -> str:
    generate_kddcup2012(ROWS, 1, folder / "kdd")
    return str(folder / "kdd")


def config_of(tmp_path: pathlib.Path, log: str) -> RunConfig:
    path = tmp_path / "draft.yaml"
    path.write_text(draft([log])[0])
    return load_config(path)


def runs(config: RunConfig, tmp_path: pathlib.Path) -> None:
    """Checks the log, and does what a run does of it up to the transform graph."""
    found = check_log(config, config.data.paths)
    assert found.errors == []
    files = find_files(joined(config.data.paths, config, tmp_path / "run"))
    folders = {name: tmp_path / "splits" / name for name in SPLITS}
    for folder in folders.values():
        folder.mkdir(parents=True)
    here = Workers(processes=1)
    result = ingest(config.log_spec, files, config.seed, folders, tmp_path / "dead", here)
    assert result.rejected == 0
    analyze(config.log_spec, payload_files(folders["train"]), tmp_path / "graph", here)


LOGS = {
    "criteo": generated("log.tsv.gz", "criteo"),
    "avazu": generated("log.csv", "avazu"),
    "kddcup2012": as_kddcup2012,
    "ratings": as_ratings,
    "news": as_news,
    "csv": as_csv,
    "json": as_json,
    "parquet": as_parquet,
}


# What is drafted is the same in every format, which a test below asks.
DRAFTED_ALIKE = ("csv", "parquet")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.large] * (name in DRAFTED_ALIKE)) for name in LOGS]
)
def test_what_init_writes_runs_as_it_is(tmp_path, name):
    runs(config_of(tmp_path, LOGS[name](tmp_path)), tmp_path)


# `make test` has the generated logs of Criteo, of Avazu and of ratings above.
REAL = [pytest.param(name, marks=pytest.mark.large) for name in ("criteo_60k.tsv.gz", "avazu_first9k.csv.gz")]
REAL += [pytest.param("ml_100k/u.data.gz", marks=pytest.mark.large), "clothing_reviews_18k.parquet"]


@pytest.mark.parametrize("name", REAL)
@pytest.mark.slow
def test_what_init_writes_for_a_real_log_runs_as_it_is(tmp_path, real_data, name):
    runs(config_of(tmp_path, str(real_data / name)), tmp_path)


def kinds(config: RunConfig) -> dict[str, str]:
    return {column: feature.kind for column, feature in config.feature_by_column.items()}


def test_a_machine_that_cannot_load_lightgbm_gets_a_regression_and_is_told_why(tmp_path, monkeypatch):
    def absent(name):
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    generate("criteo", rows=200, seed=1, output=tmp_path / "log.tsv")
    monkeypatch.setattr("ctrpipe.common.libraries.ctypes.CDLL", absent)
    text, unsure = draft([str(tmp_path / "log.tsv")])
    assert yaml.safe_load(text)["model"] == {"name": "lr"} and "baseline" not in text
    [told] = [line for line in unsure if "LightGBM" in line]
    assert "(libgomp.so.1: cannot open shared object file" in told and "libgomp1 on Debian" in told
    monkeypatch.setattr("ctrpipe.common.libraries.ctypes.CDLL", lambda name: None)
    text, unsure = draft([str(tmp_path / "log.tsv")])
    assert yaml.safe_load(text)["model"] == {"name": "lightgbm"} and not any("LightGBM" in line for line in unsure)


@pytest.mark.parametrize("name", ["csv", "json", "parquet"])
def test_one_log_is_understood_alike_in_every_format(tmp_path, name):
    config = config_of(tmp_path, LOGS[name](tmp_path))
    expected = {"user_id": "categorical", "shop": "categorical", "price": "numeric"}
    expected |= {"tags": "multivalent", "moment": "time"} | ({"day": "time"} if name == "parquet" else {})
    assert kinds(config) == expected
    label = config.data.labels["ctr"]
    assert label.column == "clicked"
    assert (label.positive, label.negative) == ((["yes"], ["no"]) if name == "csv" else ([], []))
    if name == "csv":
        assert config.data.delimiter == ";" and config.data.header
        assert config.feature_by_column["moment"].format == "%d/%b/%Y:%H:%M:%S %z"  # type: ignore[union-attr]


@pytest.mark.usefixtures("trees")
@pytest.mark.slow
def test_known_layouts_have_their_names(tmp_path):
    config = config_of(tmp_path, LOGS["criteo"](tmp_path))
    assert config.data.columns == ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
    assert draft(config.data.paths)[1] == ["The file has no header: its 40 columns are taken for Criteo's."]
    found = kinds(config)
    assert {found[f"I{n}"] for n in (1, 2, 5)} == {"numeric"} and found["C1"] == found["C26"] == "categorical"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("ads/log/part-00000.csv", "log"),
        ("ads/day=2026-11-01/part.csv", "ads"),
        ("ads/2026-11-01.csv", "ads"),
        ("ads/000000_0.csv", "ads"),
        ("ads/2026-clicks.csv", "2026-clicks"),
        ("ads/partner.csv", "partner"),
    ],
)
def test_a_draft_has_the_name_of_the_file_or_of_the_folder_if_the_file_is_a_numbered_part(tmp_path, path, name):
    log = tmp_path / path
    log.parent.mkdir(parents=True)
    log.write_text("click,site\n" + "".join(f"{n % 2},s{n % 7}\n" for n in range(100)))
    assert yaml.safe_load(draft([str(log)])[0])["name"] == name


def test_ratings_have_a_threshold_and_a_split_by_time(tmp_path):
    text, unsure = draft([as_ratings(tmp_path)])
    values = yaml.safe_load(text)
    assert values["data"]["labels"] == {"ctr": {"column": "c3", "threshold": 4}}
    assert values["data"]["split"] == {"by": "time", "column": "c4", "validation": 0.1, "test": 0.1}
    assert values["features"][-1] == {"columns": ["c4"], "kind": "time"}
    assert any("no header" in sentence for sentence in unsure)


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize(
    ("columns", "label", "asked"),
    [
        (("age", "is_mobile", "went"), "went", "is it the label, or is_mobile (--label)?"),
        (("is_mobile", "age", "vip", "paid_off"), "paid_off", "is it the label, or vip (--label)?"),
        (("vip", "age", "was_booked"), "was_booked", ""),
        (("age", "vip", "clicked"), "clicked", ""),
        (("age", "vip", "outcome.click"), "outcome.click", ""),
    ],
)
def test_a_label_is_sought_by_its_name_then_at_an_end_and_asked_about(tmp_path, columns, label, asked):
    random = np.random.default_rng(3)
    values = {name: random.integers(18, 80, 200) if name == "age" else random.integers(0, 2, 200) for name in columns}
    pd.DataFrame(values).to_csv(tmp_path / "log.csv", index=False)
    text, unsure = draft([str(tmp_path / "log.csv")])
    assert yaml.safe_load(text)["data"]["labels"] == {"ctr": label}
    assert [line for line in unsure if line.startswith(f"{label}: ")] == unsure[: 1 if asked else 0]
    assert not asked or unsure[0].endswith(asked)


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize("words", [("ja", "nein"), ("Yes", "No"), ("oui", "non")])
def test_two_words_are_a_label_before_whole_numbers_that_may_be_a_rating(tmp_path, words):
    random = np.random.default_rng(3)
    values = {"seats": random.integers(1, 9, 200), "went": np.array(words)[random.integers(0, 2, 200)]}
    pd.DataFrame(values).to_csv(tmp_path / "log.csv", index=False)
    text, unsure = draft([str(tmp_path / "log.csv")])
    label = {"column": "went", "positive": [words[0]], "negative": [words[1]]}
    assert yaml.safe_load(text)["data"]["labels"] == {"ctr": label}
    assert unsure[0].endswith("is it the label (--label)?")


def test_a_category_s_comment_counts_as_a_run_reads_it_where_na_is_a_value(tmp_path):
    lines = [f"{number % 3 % 2},{['DE', 'NA', 'NO', ''][number % 4]}" for number in range(200)]
    (tmp_path / "log.csv").write_text("click,country\n" + "\n".join(lines) + "\n")
    said = "3 different values, 25% missing; NA, in 25.0% of the rows, is a value of its own"
    assert f"# country: {said}" in draft([str(tmp_path / "log.csv")])[0]


@pytest.mark.usefixtures("trees")
def test_values_that_occur_twice_at_times_are_not_called_another_one_in_each_row(tmp_path):
    lines = [f"{number % 3 % 2},{max(number, 9)}x,a{number % 4}" for number in range(200)]
    (tmp_path / "log.csv").write_text("click,place,site\n" + "\n".join(lines) + "\n")
    [said] = draft([str(tmp_path / "log.csv")])[1]
    assert said.startswith("place: hardly any value occurs twice (19") and said.endswith("left out.")


def test_articles_read_before_are_a_history_parted_by_spaces(tmp_path):
    config = config_of(tmp_path, as_news(tmp_path))
    history, when = config.feature_by_column["history"], config.feature_by_column["time"]
    assert (history.kind, history.separator) == ("sequence", " ")  # type: ignore[union-attr]
    assert history.shared_with == ["news"]  # type: ignore[union-attr]
    assert 15 <= history.max_length <= 20  # type: ignore[union-attr]
    assert when.format == "%m/%d/%Y %I:%M:%S %p"  # type: ignore[union-attr]


def test_a_few_words_among_whole_numbers_change_no_kind(tmp_path):
    lines = [f"{number % 2},{number % 7 if number % 200 else 'ten'}" for number in range(600)]
    (tmp_path / "log.csv").write_text("click,x\n" + "\n".join(lines) + "\n")
    features = yaml.safe_load(draft([str(tmp_path / "log.csv")])[0])["features"]
    assert features == [{"columns": ["x"], "kind": "categorical"}]


def test_a_second_label_and_a_row_s_own_number_are_left_out(tmp_path):
    path = tmp_path / "log.csv"
    lines = [f"{n % 2},{n % 3 // 2},{10**12 + n},{n % 7}" for n in range(500)]
    path.write_text("click,conversion,request_id,device\n" + "\n".join(lines) + "\n")
    text, unsure = draft([str(path)])
    assert list(kinds(RunConfig.model_validate(yaml.safe_load(text)))) == ["device"]
    assert any(sentence.startswith("conversion looks like a label too") for sentence in unsure)
    assert any(sentence.startswith("request_id: another value in each row") for sentence in unsure)
    assert yaml.safe_load(draft([str(path)], "conversion")[0])["data"]["labels"] == {"ctr": "conversion"}


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        ("", None, "the file has no rows"),
        ("a,b\nx,2\nw,44\nq,61\n", None, "none of a, b looks like a label; name it with --label"),
        ("a,y\n1,0\n2,1\n", "z", "--label z: no such column; it has a, y"),
        ("a,y\nx,0\nw,1\nz,0\n", "a", "--label a: w, x, z are not values of a label"),
        ("y\n0\n1\n", None, "no column besides the label"),
    ],
)
def test_what_is_no_log_is_one_line(tmp_path, text, label, message):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        draft([str(tmp_path / "log.csv")], label)


def test_init_writes_a_new_file_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = as_csv(tmp_path)
    made = CliRunner().invoke(main, ["init", log])
    lines = made.output.splitlines()
    assert made.exit_code == 0 and lines[-4:-2] == ["Written: shop.yaml", "Next:"]
    assert lines[-2].endswith("ctrpipe check shop.yaml") and lines[-1].endswith("ctrpipe run shop.yaml")
    assert "Unsure: row_id: another value in each row" in made.output
    again = CliRunner().invoke(main, ["init", log])
    assert again.exit_code == 2 and "shop.yaml: the file exists" in again.output
    checked = CliRunner().invoke(main, ["check", "shop.yaml"])
    assert checked.exit_code == 0 and "All 3,000 rows read, 0 malformed; 0 errors" in checked.output


# check ---------------------------------------------------------------------------------------------------------------


def config_for(log: pathlib.Path, **changes) -> RunConfig:
    base = {
        "name": "check",
        "data": {"paths": [str(log)], "format": "csv", "header": True, "labels": {"ctr": "y"}},
        "features": [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}],
        "model": {"name": "dcn_v2"},
    }
    return RunConfig.model_validate({**base, **changes})


def checked(tmp_path, lines, **changes):
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["y,n,c", *lines]) + "\n")
    config = config_for(log, **changes)
    found = check_log(config, config.data.paths)
    return found.errors, found.notes


GOOD = [f"{n % 2},{n},v{n % 5}" for n in range(200)]


def test_a_good_log_has_nothing_to_stumble_over(tmp_path):
    assert checked(tmp_path, GOOD) == ([], [])


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    errors, notes = checked(
        tmp_path,
        [f"1,x{n % 2},same" for n in range(10)] + [f"1,{n},same" for n in range(190)],
        model={"name": "dcn_v2", "layrs": 3},
        evaluation={"baseline": {"name": "nosuch"}},
        monitoring={"previous": [str(tmp_path / "absent.csv")]},
    )
    assert "model: dcn_v2 has no hyperparameter 'layrs'; did you mean 'layers'?" in errors
    assert any(error.startswith("evaluation.baseline: there is no model nosuch") for error in errors)
    assert any(error.startswith("monitoring.previous: ") and "absent.csv" in error for error in errors)
    malformed = next(error for error in errors if error.startswith("10 of 200 rows are malformed, as"))
    assert malformed.endswith("line 2: n: 'x0' is not a number")
    assert "data.labels.ctr: y is 1 in all of the first 190 rows; a model needs both" in errors
    assert "c: one value in all of the first 190 rows: same" in notes


def test_a_check_says_how_many_rows_it_read(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("y,n,c\n" + "".join(f"{n % 2},{n},v{n % 5}\n" for n in range(40_000)))
    parts = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for part in parts:
        part.write_text("\n".join(["y,n,c", *(100 * GOOD)[:12_000], "2,bad,x"]) + "\n")
    of_log, of_parts = (check_log(config_for(log), [str(path) for path in paths]) for paths in ([log], parts))
    for found, most in ((of_log, 40_000), (of_parts, 24_002)):
        total = found.rows + found.rejected
        assert 10_000 <= total <= most
        assert (
            found.read == f"{'all' if found.is_whole else 'the first'} {total:,} rows read, {found.rejected} malformed"
        )
        assert not found.is_whole
    assert check_log(config_for(log), [str(tmp_path / "absent.csv")]).read == "no rows read"


def test_names_that_are_nearly_right_are_named(tmp_path):
    (tmp_path / "log.csv").write_text("y,Number,colour,c\n0,1,red,a\n")
    log = str(tmp_path / "log.csv")
    features = [{"kind": "numeric", "columns": ["number"]}, {"kind": "categorical", "columns": ["c"]}]
    found = check_log(config_for(tmp_path / "log.csv", features=features, model={"name": "DeepFM"}), [log])
    assert "model: there is no model DeepFM; `ctrpipe models` lists them; did you mean deepfm?" in found.errors
    assert f"{log}: the header lacks number, which the configuration names; it has y, Number, colour, c; " in (
        found.errors[-1] + " "
    ).replace("did you mean Number? ", "")
    assert found.errors[-1].endswith("; did you mean Number?")
    faults = check_log(config_for(tmp_path / "log.csv", model={"name": "mlp", "embedding_dim": "x"}), [log]).errors
    assert "model: mlp: embedding_dim should be like its default 16. Received: 'x'" in faults
    with pytest.raises(InputError, match="--label z: no such column; it has y, Number, colour, c$"):
        draft([log], "z")
    with pytest.raises(InputError, match="--label colr: no such column; .*; did you mean colour?"):
        draft([log], "colr")


def test_an_own_models_hyperparameters_are_checked(tmp_path, monkeypatch):
    (tmp_path / "mine_of_check.py").write_text(
        "from ctrpipe.models.lr import LR\n\n\n"
        "class Mine(LR):\n    def __init__(self, feature_map, *, factor: float = 1.0, **options):\n"
        "        super().__init__(feature_map, **options)\n\n\n"
        "class Needs(Mine):\n    def __init__(self, feature_map, *, towers, **options):\n"
        "        super().__init__(feature_map, **options)\n\n\n"
        "class Heir(Needs):\n    def __init__(self, feature_map, *, extra: int = 1, **options):\n"
        "        super().__init__(feature_map, **options)\n\n\n"
        "class Gives(Needs):\n    def __init__(self, feature_map, **options):\n"
        "        super().__init__(feature_map, towers=2, **options)\n"
    )
    monkeypatch.chdir(tmp_path)

    def faults(**model) -> list[str]:
        (tmp_path / "log.csv").write_text("\n".join(["y,n,c", *GOOD]) + "\n")
        config = config_for(tmp_path / "log.csv", model=model)
        return check_log(config, config.data.paths).errors

    own = "mine_of_check:Mine"
    assert faults(name=own, factor=2) == []
    assert faults(name=own, factr=2, factor="a") == [
        f"model: {own} has no hyperparameter 'factr'; did you mean 'factor'?",
        f"model: {own}: factor should be like its default 1.0. Received: 'a'",
    ]
    needs = "mine_of_check:Needs"
    assert faults(name=needs, towers=2, factor=2) == []
    assert faults(name=needs, tower=2) == [f"model: {needs} has no hyperparameter 'tower'; did you mean 'towers'?"]
    assert faults(name=needs) == [f"model: {needs}: the hyperparameter 'towers' has no default; set it"]
    heir = "mine_of_check:Heir"
    assert faults(name=heir, towers=2, extra=2) == faults(name="mine_of_check:Gives") == []
    assert faults(name=heir, tower=2) == [f"model: {heir} has no hyperparameter 'tower'; did you mean 'towers'?"]
    [absent] = faults(name="mine_of_check:Other", factor=2, other=3)
    assert absent.startswith("model: The model 'mine_of_check:Other' does not exist")


@pytest.mark.parametrize(
    ("lines", "features", "text"),
    [
        ([f"{n % 2},,v" for n in range(200)], None, "n: missing in all of the first 200 rows"),
        (["1,1,z"] * 3 + GOOD, None, ""),
        ([f"{n % 2},1.5,v{n}" for n in range(200)], None, "c: nearly every row has another value"),
        (GOOD, [{"kind": "categorical", "columns": ["c"], "min_count": 99}], "c: no value occurs 99 times (min_count)"),
        (GOOD, [{"kind": "multivalent", "columns": ["c"], "max_length": 3}], "c: no row has two values; is '|' what"),
        (["1,bad,v", *GOOD], None, "1 of 201 rows are malformed"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_line(tmp_path, lines, features, text):
    errors, notes = checked(tmp_path, lines, **({"features": features} if features else {}))
    assert any(line.startswith(text) for line in [*errors, *notes]) if text else not errors + notes


@pytest.mark.parametrize(
    ("split", "places"),
    [
        ({"by": "order"}, {"validation": (400, 450), "test": (450, 500)}),
        ({"by": "time", "column": "n", "validation_from": 300, "test_from": 400}, {"test": (400, 500)}),
        ({"by": "hash"}, {}),
    ],
)
def test_a_column_that_is_constant_in_one_split_is_named(tmp_path, split, places):
    base = {"format": "csv", "header": True, "labels": {"ctr": "y"}, "paths": [str(tmp_path / "log.csv")]}
    of_test = dict.fromkeys(range(*places.get("test", (0, 0))), "new")
    lines = [f"{n % 2},{n},{of_test.get(n, f'v{n % 5}')}" for n in range(500)]
    _, notes = checked(tmp_path, lines, data={**base, "split": split})
    named = [line for line in notes if line.startswith("Column: c, ")]
    line = "Column: c, test rows: one value in all rows, 'new', which 0% of the training rows have"
    assert named == ([line] if places else [])
    times = [f"{n % 2},{n},2026-11-{1 + n // 24 if n < 400 else 20:02}" for n in range(500)]
    _, notes = checked(
        tmp_path,
        times,
        data={**base, "split": split},
        features=[{"kind": "numeric", "columns": ["n"]}, {"kind": "time", "columns": ["c"]}],
    )
    assert not [line for line in notes if line.startswith("Column: c, ")]


def test_rows_that_a_log_has_twice_are_said(tmp_path):
    once = [f"{int(n % 7 == 0)},{n % 50},v{n}" for n in range(500)]
    for lines, share in ((once, ""), (once + once, "50.0%")):
        _, notes = checked(tmp_path, lines)
        found = [line for line in notes if line.startswith("Column: all columns, all rows: ")]
        assert len(found) == bool(share) and all(f" {share} are copies of another row" in line for line in found)


def test_a_missing_column_of_the_last_file_is_found_without_reading_them_all(tmp_path):
    (tmp_path / "a.csv").write_text("y,n,c\n" + "\n".join(GOOD) + "\n")
    (tmp_path / "b.csv").write_text("y,n\n1,2\n")
    config = config_for(tmp_path / "a.csv")
    found = check_log(config, [str(tmp_path / "*.csv")])
    assert len(found.errors) == 1 and "b.csv: the header lacks c" in found.errors[0]
    (tmp_path / "b.csv").write_bytes((tmp_path / "a.csv").read_bytes())
    notes = check_log(config, [str(tmp_path / "*.csv")]).notes
    assert any("b.csv has the same bytes as" in note for note in notes)


def test_a_class_without_weight_is_an_error(tmp_path):
    rows = [f"{number % 2},{number},c{number % 3},{number % 2}" for number in range(90)]
    (tmp_path / "a.csv").write_text("y,n,c,w\n" + "\n".join(rows) + "\n")
    config = config_for(tmp_path / "a.csv")
    weighted = config.model_copy(update={"data": config.data.model_copy(update={"weight": "w"})})
    errors = check_log(weighted, [str(tmp_path / "a.csv")]).errors
    assert [error.split(";")[0] for error in errors] == [
        f"data.weight: w is 0 in all {split} rows with y 0" for split in ("train", "validation", "test")
    ]


@pytest.mark.slow
def test_ten_thousand_rows_of_a_large_log_take_seconds(tmp_path):
    generate("criteo", 6000, 1, tmp_path / "log.tsv")
    (tmp_path / "log.tsv").write_bytes(10 * (tmp_path / "log.tsv").read_bytes())
    config = config_of(tmp_path, str(tmp_path / "log.tsv"))
    started = time.process_time()
    found = check_log(config, config.data.paths)
    assert time.process_time() - started < 2
    assert 10_000 <= found.rows < 40_000 and not found.errors


# What spreadsheets, pandas and R write --------------------------------------------------------------------------------


def columns_of(folder, lines: list[str], encoding: str = "utf-8") -> RunConfig:
    path = folder / "made.csv"
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return config_of(folder, str(path))


NUMBERED = [(number, number % 3 // 2, f"s{number % 7}", f"{number % 11}.{number % 5}") for number in range(200)]


@pytest.mark.parametrize(
    ("header", "index"),
    [
        (",click,site,price", lambda number: number),
        ('"",click,site,price', lambda number: f'"{number + 1}"'),
        (",click,site,price", lambda number: number * 7 % 200),
        ("Unnamed: 0,click,site,price", lambda number: number),
        ("Unnamed: 0.1,click,site,price", lambda number: number * 7 % 200),
        ("index,click,site,price", lambda number: number),
        ("row,click,site,price", lambda number: number + 1),
    ],
)
def test_the_index_of_a_table_is_left_out_and_the_header_seen(tmp_path, header, index):
    config = columns_of(tmp_path, [header, *(f"{index(row[0])},{row[1]},{row[2]},{row[3]}" for row in NUMBERED)])
    assert kinds(config) == {"site": "categorical", "price": "numeric"} and config.data.header
    rows = [row for batch in LogReader(config.log_spec).read(config.data.paths[0]) for row in batch.rows.to_pylist()]
    assert [row["site"].decode() for row in rows] == [row[2] for row in NUMBERED]


def test_a_time_that_counts_on_is_no_index(tmp_path):
    config = columns_of(tmp_path, [f"{row[1]}::{row[2]}::{978300760 + row[0]}" for row in NUMBERED])
    assert kinds(config) == {"c2": "categorical", "c3": "time"} and config.data.delimiter == "::"


def test_a_column_without_name_or_value_is_left_out(tmp_path):
    config = columns_of(tmp_path, ["click,site,price,", *(f"{row[1]},{row[2]},{row[3]}," for row in NUMBERED)])
    assert kinds(config) == {"site": "categorical", "price": "numeric"}


@pytest.mark.parametrize(
    ("delimiter", "quote", "encoding"),
    [(";", "", "utf-8"), (";", "", "cp1252"), ("\t", "", "utf-16"), (",", '"', "utf-8"), ("::", "", "utf-8-sig")],
)
@pytest.mark.parametrize("header", [True, False])
def test_decimal_commas_a_delimiter_and_an_encoding_are_found(tmp_path, delimiter, quote, encoding, header):
    rows = [("click", "größe", "preis")] if header else []
    rows += [(row[1], f"Köln{row[2]}", quote + row[3].replace(".", ",") + quote) for row in NUMBERED]
    config = columns_of(tmp_path, [delimiter.join(map(str, row)) for row in rows], encoding)
    assert config.data.decimal == "," and config.data.separator == delimiter and config.data.header == header
    place, number = ("größe", "preis") if header else ("c2", "c3")
    assert kinds(config) == {place: "categorical", number: "numeric"}
    read = [row for batch in LogReader(config.log_spec).read(config.data.paths[0]) for row in batch.rows.to_pylist()]
    assert [row[number] for row in read] == pytest.approx([float(row[3]) for row in NUMBERED])
    assert [row[place].decode() for row in read] == [f"Köln{row[2]}" for row in NUMBERED]


def test_two_delimiters_in_a_row_are_an_empty_value_unless_they_always_are_two(tmp_path):
    rows = [(row[1], row[2], "", row[3]) for row in NUMBERED]
    for delimiter in ("|", "||"):
        config = columns_of(
            tmp_path,
            ["click" + delimiter + "site" + delimiter + "x" + delimiter + "price"]
            + [delimiter.join(map(str, row)) for row in rows],
        )
        assert config.data.delimiter == delimiter
        assert kinds(config) == {"site": "categorical", "price": "numeric"}
        (tmp_path / "made.yaml").unlink(missing_ok=True)


@pytest.mark.usefixtures("trees")
def test_decimal_commas_beside_decimal_points_are_a_form_of_their_column(tmp_path):
    path = tmp_path / "log.csv"
    lines = [f"{row[1]};{row[3].replace('.', ',')};{row[3]}" for row in NUMBERED]
    path.write_text("click;price;cost\n" + "\n".join(lines) + "\n")
    text, unsure = draft([str(path)])
    values = yaml.safe_load(text)
    assert "decimal" not in values["data"] and unsure == []
    forms = {entry["columns"][0]: (entry["kind"], entry.get("written")) for entry in values["features"]}
    assert forms == {"price": ("numeric", {"decimal": ","}), "cost": ("numeric", None)}


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("click,site,site", "the header names site twice"),
        ("# exported today", "line 1 is '# exported today'; remove the lines above the header"),
        ("sep=,", "line 1 is 'sep=,'; remove the lines above the header"),
        ("Report of May\nclick,site,price", "line 2 seems to be the header; remove the lines above it"),
        ('"site","price"', "the header names 2 columns, and the rows have 3"),
    ],
)
def test_a_header_that_does_not_fit_is_one_clear_line(tmp_path, first, message):
    path = tmp_path / "log.csv"
    path.write_text(first + "\n" + "\n".join(f"{row[0]},{row[2]},{row[3]}" for row in NUMBERED) + "\n")
    with pytest.raises(InputError, match=message):
        draft([str(path)])


@pytest.mark.parametrize("end", ["", ","])
def test_rows_that_end_with_a_delimiter_need_a_header_that_does(tmp_path, end):
    path = tmp_path / "log.csv"
    path.write_text(f"click,site,price{end}\n" + "\n".join(f"{row[1]},{row[2]},{row[3]}," for row in NUMBERED) + "\n")
    if not end:
        with pytest.raises(InputError, match="the header names 3 columns, and each row ends with a further delimiter"):
            draft([str(path)])
        return
    text, unsure = draft([str(path)])
    assert yaml.safe_load(text)["data"]["labels"] == {"ctr": "click"}
    assert any("A column without a name is left out" in line for line in unsure)
