"""ctrpipe tune-serving: what is tried, how it is judged, what it leaves."""

import itertools
import json
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import cores
from ctrpipe.models.base.feature_map import FeatureMap, Text
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.server import admission, budget
from ctrpipe.serving.server.admission import Admission
from ctrpipe.serving.server.batching_parameters import read_parameters
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.options import parse_flags
from ctrpipe.serving.server.session_options import session_config
from ctrpipe.serving.tuning import tune, tune_process
from ctrpipe.serving.tuning.tune_process import ClientLoad, Setting, TrialResult, measure, recorded_rows
from tests.e2e.small_run import call, one_line

LOADS = [ClientLoad(1, 1), ClientLoad(100, 8)]
BATCHED = (
    ("max_batch_size", 500),
    ("max_execution_batch_size", 128),
    ("enable_large_batch_splitting", True),
    ("num_batch_threads", 2),
)


class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def double(self, x):
        return {"y": 2 * x}


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """A version that has recorded two requests of `double`, of one row each."""
    folder = tmp_path_factory.mktemp("model") / "1"
    model = Model()
    tf.saved_model.save(model, str(folder), {"double": model.double, "serving_default": model.double})
    (folder / "assets.extra").mkdir()
    with tf.io.TFRecordWriter(str(folder / "assets.extra" / "tf_serving_warmup_requests")) as writer:
        for value in (1, 2):
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.signature_name = "double"
            log.predict_log.request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.float32([value])))
            writer.write(log.SerializeToString())
    return folder


def trial(setting, *rates):
    return tune.Trial(setting, [[TrialResult(rate, 1.0, 2.0, 0.5) for rate in rates]])


def test_the_best_has_the_largest_geometric_mean():
    even, lopsided = trial(Setting(1, -1, False), 100, 100), trial(Setting(2, -1, False), 10, 900)
    assert [found.setting.intra_op for found in tune.ranked([lopsided, even], LOADS)] == [1, 2]
    assert tune.score(lopsided, LOADS) == pytest.approx(np.sqrt(10 * 900))


def test_rounds_count_by_their_median():
    found = trial(Setting(1, -1, False), 100, 100)
    found.rounds += [[TrialResult(900, 1, 1, 1)] * 2, [TrialResult(200, 1, 1, 1)] * 2]
    assert tune.score(found, LOADS) == pytest.approx(200)


def save_feature_map(version, text=None):
    asset_path(version, Asset.FEATURE_MAP).parent.mkdir(parents=True, exist_ok=True)
    FeatureMap.from_sizes([("site", "categorical", 9)], text=text).save(asset_path(version, Asset.FEATURE_MAP))


@pytest.mark.parametrize("text", [None, Text(8, 100)])
def test_the_servers_default_and_tensorflows_and_one_thread_are_tried(tmp_path, text):
    save_feature_map(tmp_path, text)
    settings = tune.thread_settings(tmp_path)
    count = cores()
    assert settings[0] == Setting(0, -1, False) and Setting(0, -1, True) in settings
    assert Setting(count, count, True) in settings and Setting(1, -1, False) in settings
    assert len(set(settings)) == len(settings) and max(setting.intra_op for setting in settings) == max(count, 2)


@pytest.mark.parametrize("processors", [2, 8])
def test_all_processors_are_tried_once(tmp_path, monkeypatch, processors):
    """They are the default for a model with a text, and for one that ctrpipe did not export."""
    monkeypatch.setattr(tune, "cores", lambda: processors)
    click, text, foreign = (tmp_path / name for name in ("click", "text", "foreign"))
    save_feature_map(click)
    save_feature_map(text, Text(8, 100))
    for version, is_tried in ((click, True), (text, False), (foreign, False)):
        assert (Setting(processors, -1, False) in tune.thread_settings(version)) == is_tried, version


def test_batches_that_are_tried_take_the_largest_request():
    settings = tune.batching_settings(Setting(4, 4, False), [ClientLoad(1000, 32)])
    assert len(settings) > 1
    for setting in settings:
        batching = dict(setting.batching)
        assert batching["max_batch_size"] == 1000 and batching["max_enqueued_batches"] * 128 >= 32 * 1000


def test_after_the_servers_default_batches_are_tried_with_one_thread_and_with_all_processors():
    settings = tune.batching_settings(Setting(0, -1, False), LOADS)
    assert {setting.intra_op for setting in settings} == {1, cores()}


def test_where_the_servers_default_is_best_a_server_keeps_it(tmp_path):
    default = session_config(parse_flags([]))
    tune.write([trial(Setting(0, -1, False), 2, 2)], LOADS, tmp_path / "1", "double", tmp_path)
    assert session_config(parse_flags((tmp_path / "flags").read_text().split())) == default
    assert session_config(parse_flags([f"--tensorflow_session_config_file={tmp_path / 'session.config'}"])) == default
    assert tune.describe(Setting(0, -1, False)) == "the default of ctrpipe serve, Eigen"


def test_a_server_takes_what_is_written(tmp_path):
    best = Setting(2, -1, False, BATCHED)
    trials = [trial(best, 2, 2), trial(Setting(1, -1, True), 1, 1)]
    tune.write(trials, LOADS, tmp_path / "1", "double", tmp_path / "out")
    options = parse_flags((tmp_path / "out" / "flags").read_text().split())
    config = session_config(options)
    assert (config.intra_op_parallelism_threads, config.inter_op_parallelism_threads) == (2, -1)
    found = read_parameters(options.batching_parameters_file)
    assert all(getattr(found, name) == value for name, value in BATCHED)
    assert (tmp_path / "out" / "environment").read_text() == "TF_ENABLE_ONEDNN_OPTS=0\n"
    file = f"--tensorflow_session_config_file={tmp_path / 'out' / 'session.config'}"
    assert session_config(parse_flags([file])) == config
    report = json.loads((tmp_path / "out" / "tune.json").read_text())
    assert [found["intra_op"] for found in report["trials"]] == [2, 1] and report["loads"][1]["clients"] == 8


def test_a_second_tuning_without_batching_leaves_no_file_of_the_first(tmp_path):
    tune.write([trial(Setting(2, -1, False, BATCHED), 2, 2)], LOADS, tmp_path, "double", tmp_path)
    tune.write([trial(Setting(2, -1, False), 2, 2)], LOADS, tmp_path, "double", tmp_path)
    assert not (tmp_path / "batching.config").exists()
    assert not parse_flags((tmp_path / "flags").read_text().split()).enable_batching


def test_a_file_in_the_place_of_the_result_is_seen_before_anything_is_measured(tmp_path, version, monkeypatch):
    monkeypatch.setattr(tune, "tune", lambda *arguments: pytest.fail("measured"))
    one_line(*call("tune-serving", version, "--output", __file__), "a file is in the way of the output folder")


@pytest.mark.parametrize("batching", [(), BATCHED])
def test_every_load_is_measured(version, monkeypatch, batching):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    interval = sys.getswitchinterval()
    setting = Setting(1, -1, True, batching)
    try:
        found = measure(setting, str(version), "double", [ClientLoad(1, 1), ClientLoad(300, 4)], 0.05)
    finally:
        sys.setswitchinterval(interval)
    assert len(found) == 2
    for measured in found:
        assert measured.rows_per_s > 0 and 0 < measured.p50_ms <= measured.p99_ms


@pytest.mark.parametrize(("setting", "shares"), [(Setting(0, -1, False), True), (Setting(1, -1, False), False)])
def test_rows_are_shared_in_the_servers_default_alone(version, tmp_path, monkeypatch, setting, shares):
    """The version is a copy that says of itself that it is a click model."""
    click = shutil.copytree(version, tmp_path / "1")
    save_feature_map(click)
    admissions = []

    class Watched(Admission):
        def __init__(self, budget):
            super().__init__(budget)
            admissions.append(self)

    monkeypatch.setattr(admission, "Admission", Watched)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    interval = sys.getswitchinterval()
    try:
        measure(setting, str(click), "double", [ClientLoad(1, 1)], 0.01)
    finally:
        sys.setswitchinterval(interval)
    assert [one.shares_rows for one in admissions] == [shares]


def test_a_load_that_a_server_would_refuse_is_one_line(version, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setattr(budget, "Budget", lambda: Budget(1, resident=lambda: 0))
    interval = sys.getswitchinterval()
    try:
        with pytest.raises(InputError, match=r"--rows 5 with --clients 2: the server would refuse some of them \(.+\)"):
            measure(Setting(1, -1, False), str(version), "double", [ClientLoad(5, 2)], 0.01)
    finally:
        sys.setswitchinterval(interval)


def test_an_error_of_a_client_ends_the_measurement():
    calls = itertools.count()

    def call():
        if next(calls) > 6:
            raise InputError("no more")

    with pytest.raises(InputError, match="no more"):
        tune_process._send(call, ClientLoad(1, 2), 0.05)


def test_requests_are_those_recorded(version):
    assert recorded_rows(version, "double")["x"].tolist() == [1, 2]
    with pytest.raises(InputError, match="no recorded request of the signature other"):
        recorded_rows(version, "other")
