"""With --rows_as_logged the server takes rows over REST as a log of JSON lines has them."""

import json
import math
import shutil
import types
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.pipeline.config import RunConfig
from ctrpipe.serving.assets import GoldenRows
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.server import ServerOptions, running_server
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.logged_rows import LoggedRows

CONFIG = {
    "name": "logged",
    "data": {"format": "json", "labels": {"ctr": "click"}},
    "features": [
        {"kind": "numeric", "columns": ["n"]},
        {"kind": "categorical", "columns": ["c"]},
        {"kind": "multivalent", "columns": ["tags"], "separator": "|", "max_length": 3, "brackets": True},
        {"kind": "vector", "columns": ["v"], "length": 2},
        {"kind": "numeric", "columns": ["p"], "written": {"prefix": "$", "thousands": ","}},
    ],
    "model": {"name": "deepfm"},
}


class Model(tf.Module):
    """Answers with what it got."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="n"),
            tf.TensorSpec([None], tf.string, name="c"),
            tf.TensorSpec([None], tf.string, name="tags"),
            tf.TensorSpec([None, 2], tf.float32, name="v"),
            tf.TensorSpec([None], tf.float32, name="p"),
        ]
    )
    def serving_raw(self, n, c, tags, v, p):
        texts = {"text": tf.identity(c), "list": tf.identity(tags)}
        return {"number": tf.identity(n), "vector": tf.identity(v), "price": tf.identity(p), **texts}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = Model()
    tf.saved_model.save(model, str(folder / "1"), {"serving_raw": model.serving_raw})
    spec = RunConfig.model_validate(CONFIG).log_spec
    path = asset_path(folder / "1", Asset.LOG_SPEC)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(spec.model_dump_json())
    return folder


@pytest.fixture(scope="module")
def url(folder) -> Iterator[str]:
    with running_server(ServerOptions(folder, "ctr", rows_as_logged=True)) as addresses:
        yield f"{addresses.rest}/v1/models/ctr:predict"


def ask(url: str, rows: list, **more) -> tuple[int, list | str]:
    answer = httpx.post(url, content=json.dumps({**more, "instances": rows}), trust_env=False)
    body = json.loads(answer.text)  # NaN is what Python writes and reads
    return answer.status_code, body["predictions"] if answer.status_code == 200 else body["error"]


def test_a_row_of_a_log_is_taken_with_its_label_its_types_and_without_what_is_missing(url):
    rows = [
        {"click": 1, "n": 3, "c": 38, "tags": ["a", "b"], "v": [1, 2.5], "note": None},
        {"n": None, "c": None, "tags": [], "v": None},
        {"n": "2.5", "c": True, "tags": "a|b"},
        {"n": True, "c": 123.0, "tags": [7, 8.5]},
        {"c": float("nan"), "n": float("nan")},
        {"c": {"b64": "YcO8"}, "n": -1e-3},
    ]
    status, answers = ask(url, rows)
    assert status == 200, answers
    assert [row["text"] for row in answers] == ["38", "", "1", "123", "", "a\u00fc"]
    assert [row["list"] for row in answers] == ["a|b", "", "a|b", "7|8.5", "", ""]
    numbers = np.float32([math.nan if row["number"] is None else row["number"] for row in answers])
    np.testing.assert_array_equal(numbers, np.float32([3, math.nan, 2.5, 1, math.nan, -1e-3]))
    assert answers[0]["vector"] == [1.0, 2.5] and all(map(math.isnan, answers[1]["vector"]))


def test_lists_in_brackets_are_taken_as_the_log_has_them(url):
    status, answers = ask(url, [{"tags": tags} for tags in ("['a', 'b']", "[]", "a|b", ["a", "b"], '["a"]')])
    assert status == 200, answers
    assert [row["list"] for row in answers] == ["a|b", "", "a|b", "a|b", "a"]
    status, said = ask(url, [{"tags": "['a'"}])
    assert status == 400 and "row 1, tags" in said and "send a list of single values" in said


def test_numbers_are_taken_in_the_form_of_the_log_and_as_numbers(url):
    prices = ["$1,234.50", 7, "NA", None, "($2)", 1.5]
    status, answers = ask(url, [{"p": price} for price in prices])
    assert status == 200, answers
    numbers = np.float32([math.nan if row["price"] is None else row["price"] for row in answers])
    np.testing.assert_array_equal(numbers, np.float32([1234.5, 7, math.nan, math.nan, -2, 1.5]))
    status, said = ask(url, [{"p": "$3"}, {"p": "1,23"}])
    assert status == 400 and "row 2, p" in said and "send a number, as 1234.5, or a text as '$1,234.5'" in said


def test_words_for_a_missing_number_are_missing_as_in_the_log(url):
    status, answers = ask(url, [{"n": text} for text in ("NA", "\\N", "", "-1.5e1", ".5", "inf", "-Infinity")])
    assert status == 200, answers
    numbers = [row["number"] for row in answers]
    np.testing.assert_array_equal(np.float32(numbers), np.float32([math.nan] * 3 + [-15, 0.5, math.inf, -math.inf]))


def test_the_signature_may_be_named(url):
    assert ask(url, [{"c": 1}], signature_name="serving_raw")[1][0]["text"] == "1"
    assert "nope" in ask(url, [{"c": 1}], signature_name="nope")[1]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"n": "x"}, 'row 2, n: "x" Type: String; send a number or null'),
        *(({"n": text}, "Type: String; send a number or null") for text in ("1_000", "\u0663", " 3.5", "0x10", "1,5")),
        ({"n": [1]}, "row 2, n: [1] Type: Array; send a number or null"),
        ({"c": ["a"]}, "row 2, c: "),
        ({"c": {"x": 1}}, "row 2, c: "),
        ({"c": 1e300}, "row 2, c: "),
        ({"tags": ["a|b"]}, "send a list whose elements do not contain '|'"),
        ({"v": [1]}, "row 2, v: [1] Type: Array; send a list of 2 numbers, or null"),
        ({"v": [1, "x"]}, "row 2, v: "),
    ],
)
def test_a_value_that_no_log_has_is_named_with_its_row_and_column(url, row, told):
    status, error = ask(url, [{}, row])
    assert status == 400 and told in error, error


class Left:
    """A reading that counts the looks at its deadline."""

    looks = 0

    def check_time(self) -> None:
        self.looks += 1


def version_of(folder) -> types.SimpleNamespace:
    dtypes = {"n": tf.float32, "c": tf.string, "tags": tf.string, "v": tf.float32}
    servable = type("Servable", (), {"path": folder / "1"})()
    return types.SimpleNamespace(servable=servable, input_types={"serving_raw": dtypes})


def test_rows_that_leave_everything_out_may_not_take_more_memory_than_a_body_may(folder):
    rows, version = {"instances": [{}] * 100}, version_of(folder)  # 100 rows of 4 columns at 40 bytes
    assert LoggedRows(15_600).inputs(version, rows, "", 100, Left())[0] == "serving_raw"
    with pytest.raises(ServingError, match="The 100 rows would take 16000 bytes of memory, above 15999: "):
        LoggedRows(15_599).inputs(version, rows, "", 100, Left())


@pytest.mark.parametrize("known", [["True", "False"], ["True", "often"], ["True", "true"], ["a"]])
def test_a_boolean_is_the_word_of_the_models_log(folder, tmp_path, known):
    version = shutil.copytree(folder / "1", tmp_path / "1")
    rows = {"c": np.array([b"True", b""], object)}
    GoldenRows(rows, {}, np.zeros((2, 1), np.float32), None, 1e-6).save(asset_path(version, Asset.GOLDEN))
    for column, values in {"c": known, "tags": ["a"]}.items():
        (version / "assets" / f"vocabulary_{column}").write_text("\n".join(values) + "\n")
    request = {"instances": [{"c": value} for value in (True, False, "true", None, "other")]}
    read = LoggedRows(1 << 20)
    if known[-1] == "true":
        with pytest.raises(ServingError, match="instances, c: booleans, and the model's log writes them in several wa"):
            read.inputs(version_of(tmp_path), request, "", 100, Left())
        return
    _, inputs = read.inputs(version_of(tmp_path), request, "", 100, Left())
    changed = [b"True", b"False", b"True", b"", b"other"]
    assert inputs["c"].tolist() == (changed if known[0] == "True" else [b"1", b"0", b"true", b"", b"other"])


@pytest.mark.parametrize(("value", "code"), [(2139, "02139"), (0.5, "0.50"), (12000, "12e3"), ([7, 2139], "02139")])
def test_a_number_is_refused_where_the_models_log_has_another_text_for_it(folder, tmp_path, value, code):
    version = shutil.copytree(folder / "1", tmp_path / "1")
    column = "tags" if isinstance(value, list) else "c"
    for name in ("c", "tags"):
        (version / "assets" / f"vocabulary_{name}").write_text(f"10001\n{code}\n")
    read, served = LoggedRows(1 << 20), version_of(tmp_path)
    told = f"instances, {column}: numbers, and the model's log has texts such as '{code}'"
    with pytest.raises(ServingError, match=told):
        read.inputs(served, {"instances": [{column: value}]}, "", 100, Left())
    rows = [{"c": 10001}, {"c": code}, {"c": 99}, {"c": math.nan}]
    _, inputs = read.inputs(served, {"instances": rows}, "", 100, Left())
    assert inputs["c"].tolist() == [b"10001", code.encode(), b"99", b""]


def test_the_deadline_is_looked_at_within_a_long_list_too(folder):
    reading = Left()
    LoggedRows(1 << 20).inputs(version_of(folder), {"instances": [{"tags": ["a"] * 5000}]}, "", 100, reading)
    assert reading.looks == 5


def test_without_the_flag_the_answers_are_those_of_tf_serving(folder):
    with running_server(ServerOptions(folder, "ctr")) as addresses:
        url = f"{addresses.rest}/v1/models/ctr:predict"
        row = {"n": 1.0, "c": 38, "tags": "", "v": [1, 2]}
        status, error = ask(url, [row], signature_name="serving_raw")
        assert status == 400 and error.endswith("38 Type: Number is not of expected type: string")
