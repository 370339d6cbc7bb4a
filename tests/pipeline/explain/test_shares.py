"""What share of the explanations each column has, by a servable whose attributions can be worked out by hand."""

import pathlib
import types

import numpy as np
import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.saved import save_model
from ctrpipe.pipeline.config import Monitoring
from ctrpipe.pipeline.explain import shares as module
from ctrpipe.pipeline.explain.shares import compare_attributions, share_errors, shares
from ctrpipe.pipeline.run.trained_model import TrainedModel
from tests.e2e.small_run import call, one_line
from tests.models.small_models import randomised
from tests.serving.small_servable import save, spec

# The number n adds (n + 1) / 100, a text a tenth for each of its bytes.
YESTERDAY = [(4.0, "ab"), (None, "c"), (9.0, "")]
TODAY = [(9.0, "abcde"), (19.0, "abcde")]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> TrainedModel:
    return TrainedModel(save(tmp_path_factory.mktemp("explains") / "1", spec(), explains=True), None)


@pytest.fixture
def logs(tmp_path) -> list[str]:
    paths = []
    for name, rows in (("today", TODAY), ("yesterday", YESTERDAY)):
        path = tmp_path / f"{name}.tsv"
        path.write_text("".join(f"0\t{'' if number is None else number}\t{text}\n" for number, text in rows))
        paths.append(str(path))
    return paths


def test_a_share_is_of_the_mean_absolute_attributions():
    np.testing.assert_allclose(shares(np.array([[1.0, -3.0, 0], [-1.0, 1.0, 2.0]])), [0.25, 0.5, 0.25])
    np.testing.assert_allclose(shares(np.zeros((3, 4))), [0.25] * 4)


def test_the_errors_of_shares_are_those_of_other_rows():
    random = np.random.default_rng(0)
    rows = random.normal(size=(400, 3)) * [1.0, 2.0, 0.5]
    drawn = [shares(rows[random.integers(400, size=400)]) for _ in range(500)]
    np.testing.assert_allclose(share_errors(rows), np.std(drawn, axis=0), rtol=0.15)
    assert np.isinf(share_errors(rows[:1])).all() and not share_errors(np.zeros((3, 2))).any()


def test_shares_that_moved_further_than_they_may_are_a_breach(source, logs):
    limits = Monitoring.model_validate({"max_distance": {"attribution": 0.2}})
    found = compare_attributions(source, logs[:1], logs[1:], "drift", limits, 0)
    today, yesterday = 0.15 / (0.15 + 0.5), 0.05 / (0.05 + 0.1)
    number = next(one for one in found["columns"] if one["column"] == "n")
    assert number["share"] == pytest.approx(today) and number["other"] == pytest.approx(yesterday)
    assert abs(today - yesterday) < 0.2 and not found["breached"]
    assert found["log"] == {"name": "new", "rows": 2} and found["other"] == {"name": "previous", "rows": 3}
    limits = Monitoring.model_validate({"max_distance": {"attribution": 0.2}, "attributions": {"c": 0.05}})
    found = compare_attributions(source, logs[:1], logs[1:], "skew", limits, 0)
    assert not found["breached"]  # two rows and three say nothing
    many = [pathlib.Path(path) for path in logs]
    for path in many:
        path.write_text(path.read_text() * 50)
    found = compare_attributions(source, logs[:1], logs[1:], "skew", limits, 0)
    assert [(one["column"], one["breached"]) for one in found["columns"]] == [("c", True), ("n", False)]
    assert found["breached"] and (found["log"]["name"], found["other"]["name"]) == ("training", "serving")


def test_a_sample_of_each_log_is_explained(source, logs, monkeypatch):
    monkeypatch.setattr(module, "SAMPLED_ROWS", 1)
    found = compare_attributions(source, logs[:1], logs[1:], "drift", Monitoring(), 0)
    assert found["log"]["rows"] == found["other"]["rows"] == 1


def refused(source: TrainedModel, logs: list[str], message: str, **limits) -> None:
    with pytest.raises(InputError, match=message) as error:
        compare_attributions(source, logs[:1], logs[1:], "drift", Monitoring.model_validate(limits), 0)
    assert "\n" not in str(error.value)


def test_what_cannot_be_compared_is_one_line(source, logs, tmp_path):
    refused(source, logs, "monitoring.attributions: z is not among the model's .*; it has n, c", attributions={"z": 1})
    without = TrainedModel(save(tmp_path / "1", spec()), None)
    refused(without, logs, "no signature serving_explain, and its Keras model was not kept")
    other = tmp_path / "other.tsv"
    other.write_text("0\t1\tx\ty\n" * 5)
    refused(source, [str(other), logs[1]], "expected 3 columns, found 4.*is this a log of the model")
    other.write_text("")
    refused(source, [str(other), logs[1]], "the file has no rows")


@pytest.mark.slow
def test_trees_have_no_gradients_to_compare(tmp_path, monkeypatch):
    save_model(tmp_path, "cascading_nn_gbdt", randomised("cascading_nn_gbdt"))
    monkeypatch.setattr(TrainedModel, "kept", lambda self: tmp_path)
    with pytest.raises(InputError, match="--model compares gradients, which boosted trees do not have"):
        module._attribute(TrainedModel(tmp_path, None), types.SimpleNamespace(explains=False, packs=True))


def test_a_folder_without_a_model_is_one_line(tmp_path, logs):
    config = {"name": "x", "model": {"name": "lr"}, **spec().model_dump(mode="json", exclude_none=True)}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    asked = ("drift", tmp_path / "config.yaml", "--data", logs[0], "--against", logs[1], "--model")
    one_line(*call(*asked, tmp_path), "no model version here")
    version = save(tmp_path / "1", spec())
    one_line(*call(*asked, version), "no signature serving_explain")
