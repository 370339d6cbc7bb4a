"""Labels that arrive after their rows: `ctrpipe prepare labels --delay`, and training on rows as they arrive."""

import collections
import dataclasses
import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from click.testing import CliRunner

from ctrpipe.common.errors import InputError
from ctrpipe.models import FeatureMap
from ctrpipe.models.base.losses import BinaryCrossEntropy, without_fake_negatives
from ctrpipe.models.base.registry import create
from ctrpipe.models.base.saved import load_model, save_model
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config import Model, RunConfig, Training
from ctrpipe.pipeline.run.run import check_options
from ctrpipe.pipeline.training.data import packed_reader
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.packed_files import PackedWriter
from ctrpipe.transforms.labels.late_labels import join_late_labels
from ctrpipe.transforms.log.spec import LabelDelay
from tests.e2e.small_run import call
from tests.small_config import SMALL
from tests.small_config import joined as with_changes

MINUTE, DAY = 60, 86_400
START = int(datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC).timestamp())
PARTS = {"by": "time", "column": "part", "validation_from": "1", "test_from": "2"}
SETTINGS = {"time": "shown", "delay": "2d", "key": "id", "label_time": "clicked"}


def at(moments) -> list[str]:
    return [datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat() for moment in moments]


def stamp(moment: float) -> str:
    return at([moment])[0]


class Clicks:
    """Rows of ten days. Some are clicked days later."""

    def __init__(self, rows: int, seed: int, mean_delay: float = DAY):
        random = np.random.default_rng(seed)
        self.shown = START + np.sort(random.integers(0, 10 * 24 * 60, rows)) * MINUTE
        self.ad = random.integers(0, 8, rows)
        self.rate = np.linspace(0.1, 0.6, 8)[self.ad]
        self.is_clicked = random.random(rows) < self.rate
        self.delay = np.ceil(random.exponential(mean_delay, rows) / MINUTE) * MINUTE
        self.clicked = np.where(self.is_clicked, self.shown + self.delay, np.inf)

    def write(self, folder, until: float) -> tuple[str, str]:
        """Log and clicks, as they are known at a moment."""
        rows = "".join(f"r{n};a{ad};{stamp(t)}\n" for n, (ad, t) in enumerate(zip(self.ad, self.shown, strict=True)))
        known = np.flatnonzero(self.clicked <= until)[::-1]
        clicks = "".join(f"r{n},{int(self.clicked[n])}\n" for n in known)
        (folder / "log.csv").write_text("id;ad;shown\n" + rows)
        (folder / "clicks.csv").write_text("id,clicked\n" + clicks)
        return str(folder / "log.csv"), str(folder / "clicks.csv")


def joined(folder, files, fake_negatives: bool = False, **settings):
    """The rows that a join writes, and its counts."""
    delay = LabelDelay(**{**SETTINGS, "labels": [files[1]], **settings})
    counts = join_late_labels([files[0]], delay, folder / "out", fake_negatives)
    parts = sorted((folder / "out" / "log").glob("*.parquet"))
    rows = pa.concat_tables([pa.parquet.read_table(part) for part in parts]).to_pylist()
    return [{name: value.decode() for name, value in row.items()} for row in rows], counts


def numbers(rows) -> np.ndarray:
    return np.array([int(row["id"][1:]) for row in rows])


def test_rows_wait_for_their_labels_and_pending_ones_are_left_out(tmp_path):
    made, until = Clicks(2000, 1), START + 10 * DAY
    rows, counts = joined(tmp_path, made.write(tmp_path, until), until=stamp(until))
    settled = made.shown + 2 * DAY <= until
    in_time = made.is_clicked & (made.delay <= 2 * DAY)
    np.testing.assert_array_equal(numbers(rows), np.flatnonzero(settled))
    np.testing.assert_array_equal([row["label"] == "1" for row in rows], in_time[settled])
    known = made.clicked <= until
    assert counts.pending == (~settled).sum() and counts.early == (known & ~settled).sum() > 30
    assert counts.late == (known & settled & ~in_time).sum() > 30
    assert (counts.rows, counts.positives, counts.unused) == (settled.sum(), in_time[settled].sum(), 0)


TOKYO = datetime.timezone(datetime.timedelta(hours=9))
FORMS = {
    "seconds": lambda at: f"{at}",
    "milliseconds": lambda at: f"{at}000",
    "microseconds": lambda at: f"{at}000000",
    "nanoseconds": lambda at: f"{at}000000000",
    "a whole float": lambda at: f"{at}.0",
    "a zone": lambda at: datetime.datetime.fromtimestamp(at, TOKYO).isoformat(),
    "a blank and a zone": lambda at: datetime.datetime.fromtimestamp(at, TOKYO).strftime("%Y-%m-%d %H:%M:%S%z"),
    "microseconds of UTC": lambda at: datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%FT%T.000000Z"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("labels_differ", [True, False])
def test_times_are_moments_in_every_unit_and_zone_to_the_second(tmp_path, form, labels_differ):
    form = FORMS[form]
    shown = [START, START + 7200, START + 7200]
    clicked = {0: START + 3600, 1: START + 7200 + 3601}  # an hour later, and a second too late
    written = stamp if labels_differ else form
    (tmp_path / "log.csv").write_text("id,shown\n" + "".join(f"{n},{form(at)}\n" for n, at in enumerate(shown)))
    (tmp_path / "clicks.csv").write_text("id,clicked\n" + "".join(f"{n},{written(at)}\n" for n, at in clicked.items()))
    files = str(tmp_path / "log.csv"), str(tmp_path / "clicks.csv")
    rows, counts = joined(tmp_path, files, delay="1h", until=form(START + 7200 + 3600))
    assert [row["label"] for row in rows] == ["1", "0", "0"]
    assert (counts.positives, counts.late, counts.until) == (1, 1, "2026-11-01T03:00:00Z")


def test_the_share_of_positives_is_the_same_on_old_and_new_days(tmp_path):
    made, until = Clicks(6000, 2), START + 10 * DAY
    rows, _ = joined(tmp_path, made.write(tmp_path, until), until=stamp(until))
    label = np.array([row["label"] == "1" for row in rows])
    newest = made.shown[numbers(rows)] > until - 3 * DAY
    expected = made.rate.mean() * (1 - np.exp(-2))
    for share in (label[newest].mean(), label[~newest].mean()):
        assert share == pytest.approx(expected, rel=0.15)
    # Had the rows with an early label stayed, the newest would be positive much more often.
    pending = made.shown > until - 2 * DAY
    early = pending & (made.clicked <= until)
    biased = (label[newest].sum() + early.sum()) / (newest.sum() + early.sum())
    assert biased > 1.5 * expected


def test_without_until_the_newest_time_of_both_files_is_the_cut(tmp_path):
    (tmp_path / "log.csv").write_text("id,shown\n1,2026-11-01\n2,2026-11-03\n3,2026-11-05T01:00:00Z\n")
    (tmp_path / "clicks.csv").write_text("id,clicked\n1,2026-11-02\n2,2026-11-05 02:00\n2,2026-11-05 01:00\n")
    rows, counts = joined(tmp_path, (str(tmp_path / "log.csv"), str(tmp_path / "clicks.csv")))
    assert [(row["id"], row["label"]) for row in rows] == [("1", "1"), ("2", "0")]
    assert counts.until == "2026-11-05T02:00:00Z" and (counts.pending, counts.late) == (1, 1)


def test_two_cuts_write_every_row_once(tmp_path):
    made, cuts = Clicks(1000, 3), [START + 6 * DAY, START + 9 * DAY]
    found = []
    for since, until in zip([None, cuts[0]], cuts, strict=True):
        files = made.write(tmp_path, until)
        rows, _ = joined(tmp_path, files, since=since and stamp(since), until=stamp(until))
        found += numbers(rows).tolist()
    assert found == np.flatnonzero(made.shown + 2 * DAY <= cuts[1]).tolist()


def test_fake_negatives_are_negatives_at_once_and_positives_when_the_label_comes(tmp_path):
    made, cuts = Clicks(3000, 4), [START + 5 * DAY, START + 10 * DAY]
    held_out = {}
    for since, until in zip([-np.inf, cuts[0]], cuts, strict=True):
        settings = {} if since < 0 else {"since": stamp(since)}
        files = made.write(tmp_path, until)
        rows, counts = joined(tmp_path, files, fake_negatives=True, until=stamp(until), test=0.2, **settings)
        by_part = collections.defaultdict(list)
        for row in rows:
            by_part[row["part"]].append(row)
        waited = numbers(by_part["1"] + by_part["2"])
        held_out[until] = set(waited.tolist())
        settled = (made.shown + 2 * DAY <= until) & (made.shown + 2 * DAY > since)
        assert settled[waited].all() and 0.2 < len(waited) / settled.sum() < 0.4
        in_time = made.is_clicked & (made.delay <= 2 * DAY)
        labels = [row["label"] == "1" for row in by_part["1"] + by_part["2"]]
        np.testing.assert_array_equal(labels, in_time[waited])
        negatives, positives = (
            set(numbers([row for row in by_part["0"] if row["label"] == each])) for each in ("0", "1")
        )
        never = set(np.flatnonzero(settled)) - held_out[until]  # settled, and not held out
        new = set(np.flatnonzero((made.shown > since) & (made.shown <= until)))
        came = set(np.flatnonzero(in_time & (made.clicked > since) & (made.clicked <= until)))
        assert never & new <= negatives <= new and never & came <= positives <= came
        assert not (negatives | positives) & held_out[until] and counts.repeated == len(positives)
        if since > 0:
            assert positives - negatives and not positives & held_out[cuts[0]]  # of rows of before


# Training ------------------------------------------------------------------------------------------------------------


def test_the_weighted_loss_has_its_least_value_at_the_true_rate():
    logits = np.array([[-2.0], [0.3], [1.5]], np.float32)
    rate, p = np.array([[0.1], [0.5], [0.8]]), 1 / (1 + np.exp(-logits))
    loss = BinaryCrossEntropy(fake_negatives=True)
    for label, weight, plain in (
        (1.0, 1 + p, np.log1p(np.exp(-logits))),
        (0.0, (1 - p) * (1 + p), np.log1p(np.exp(logits))),
    ):
        found = np.array(loss.call(np.full_like(logits, label), logits))
        np.testing.assert_allclose(found, (weight * plain)[:, 0], rtol=1e-5)
    import tensorflow as tf

    z = tf.Variable(logits)
    with tf.GradientTape() as tape:
        expected = tf.reduce_sum(
            loss.call(tf.zeros_like(z), z)[:, None] + rate * loss.call(tf.ones_like(z), z)[:, None]
        )
    np.testing.assert_allclose(tape.gradient(expected, z), (1 + p) * (1 - p) * (p - rate), rtol=1e-4, atol=1e-6)
    assert BinaryCrossEntropy.from_config(loss.get_config()).fake_negatives


def test_the_corrected_logit_is_that_of_b_over_1_minus_b():
    b = np.array([0.001, 0.05, 0.2, 0.45, 0.4999], np.float64)
    found = np.array(without_fake_negatives(np.log(b / (1 - b)).astype(np.float32)))
    p = b / (1 - b)
    np.testing.assert_allclose(found, np.log(p / (1 - p)), rtol=1e-4)
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), p, rtol=1e-5)
    # No rate makes half of the rows positive: the answer stays below 1, and rises no further.
    highest = 1 / (1 + np.exp(-np.array(without_fake_negatives(np.array([0.0, 2.0, 50.0], np.float32)), np.float64)))
    np.testing.assert_allclose(highest, 1 - 1e-6, atol=2e-7)


def test_a_model_is_corrected_where_it_answers_and_not_where_it_learns():
    plain, corrected = (create("lr", dataclasses.replace(MAP, fake_negatives=each)) for each in (False, True))
    inputs = {"ids": np.arange(3, 9, dtype=np.int32)[:, None]}
    for model in (plain, corrected):
        model(inputs)
        model.set_weights([np.linspace(-3, -0.5, weight.size).reshape(weight.shape) for weight in model.get_weights()])
    biased = np.array(plain(inputs, training=False), np.float64)
    assert (biased < -0.1).all()
    np.testing.assert_array_equal(np.array(corrected(inputs, training=True)), biased.astype(np.float32))
    found = 1 / (1 + np.exp(-np.array(corrected(inputs, training=False), np.float64)))
    np.testing.assert_allclose(found, np.exp(biased), rtol=1e-5)
    b = 1 / (1 + np.exp(-biased))
    np.testing.assert_allclose(found, b / (1 - b), rtol=1e-5)


MAP = FeatureMap.from_sizes([("ad", "categorical", 8)])


def packed(path, ad: np.ndarray, label: np.ndarray) -> list[str]:
    with PackedWriter(path) as writer:
        writer.write({"ids": (3 + ad)[:, None].astype(np.int32), "label": label[:, None].astype(np.float32)})
    return [str(path)]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.large)])
def test_generated_delays_are_calibrated_with_a_correction_alone(tmp_path, backend):
    """One day as it arrives, of a log that has been going on: today's rows, and today's clicks on rows of any day."""
    made, since = Clicks(60_000, 5), START + 8 * DAY
    today = np.flatnonzero(made.shown > since)
    came = np.flatnonzero((made.clicked > since) & (made.clicked <= since + 2 * DAY))
    ad, label = np.append(made.ad[today], made.ad[came]), np.repeat([0, 1], [len(today), len(came)])
    fresh = Clicks(4000, 6)
    files = packed(tmp_path / "train.parquet", ad, label), packed(tmp_path / "last.parquet", fresh.ad, fresh.is_clicked)
    calibration = {}
    for key in ("fake_negative_weighting", "fake_negative_calibration", ""):
        settings = {"epochs": 6, "batch_size": 256, "learning_rate": 0.03, "patience": 6, "backend": backend}
        training = Training(**settings, start_at_base_rate=True, **({key: True} if key else {}))
        result = train(TrainingJob(Model(name="lr"), training, MAP, *files, 1), tmp_path / (key or "plain"))
        _, predicted = result.learner.predict(packed_reader(files[1], MAP, 4096))
        calibration[key] = predicted.mean() / fresh.rate.mean()
        if key:
            by_ad = [predicted[fresh.ad == each].mean() for each in range(8)]
            np.testing.assert_allclose(by_ad, np.linspace(0.1, 0.6, 8), rtol=0.12)
            # What `load_model` gives answers the same, as the run's kept model does.
            save_model(tmp_path / f"kept_{key}", "lr", result.model)
            inputs = {"ids": np.arange(3, 11, dtype=np.int32)[:, None]}
            again = load_model(tmp_path / f"kept_{key}")(inputs, training=False)
            np.testing.assert_array_equal(again, result.model(inputs, training=False))
    assert calibration["fake_negative_weighting"] == pytest.approx(1, abs=0.04)
    assert calibration["fake_negative_calibration"] == pytest.approx(1, abs=0.04)
    assert calibration[""] < 0.8  # p / (1 + p) is learned


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", [pytest.param("fake_negative_weighting", marks=pytest.mark.large), "fake_negative_calibration"]
)
def test_a_run_joins_its_labels_and_answers_the_true_rate(tmp_path, key):
    made, until = Clicks(8000, 8), START + 12 * DAY  # nearly all labels have come
    log, clicks = made.write(tmp_path, until)
    delay = {**SETTINGS, "delay": "7d", "labels": [clicks], "until": stamp(until), "test": 0.3}
    config = {
        "name": "late",
        "data": {"format": "parquet", "labels": {"ctr": "label"}, "split": PARTS, "label_delay": delay},
        "features": [{"kind": "categorical", "columns": ["ad"]}, {"kind": "time", "columns": ["shown"]}],
        "model": {"name": "lr"},
        "training": {key: True, "epochs": 6, "batch_size": 128, "learning_rate": 0.02},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    code, output = call("run", tmp_path / "config.yaml", "--data", log, "--output", tmp_path / "run")
    assert code == 0, output
    assert f"labels are known until {stamp(until).removesuffix('+00:00')}Z" in output
    counts = json.loads((tmp_path / "run" / "prepared" / "summary.json").read_text())
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    settled = made.shown + 7 * DAY <= until
    assert metrics["examples"] == pytest.approx(0.3 * settled.sum(), rel=0.1)
    assert counts["pending"] > 100 and counts["repeated"] > 1000
    assert metrics["calibration"] == pytest.approx(1, abs=0.13)


# Mistakes ------------------------------------------------------------------------------------------------------------

LOG, CLICKED = "id,shown\n1,2026-11-01\n2,2026-11-09\n", "id,clicked\n1,2026-11-02\n"
GOOD = ("--key", "id", "--time", "shown", "--delay", "2d", "--label-time", "clicked")


@pytest.mark.parametrize(
    ("log", "clicked", "options", "message"),
    [
        (LOG, CLICKED, ("--key", "id", "--delay", "2d"), "--delay needs --time, the column of the rows' times"),
        (LOG, CLICKED, ("--key", "id", "--time", "shown"), "--time needs --delay, how long a label may take"),
        (LOG, CLICKED, ("--time", "shown", "--delay", "2d"), "give --key, a column of both"),
        (LOG, CLICKED, ("--key", "id", "--time", "shown", "--delay", "-2d"), "--delay: '-2d' is not a delay above 0"),
        (LOG, CLICKED, ("--key", "id", "--time", "shown", "--delay", "0h"), "--delay: '0h' is not a delay above 0"),
        (LOG, CLICKED, ("--key", "id", "--time", "when", "--delay", "2d"), "time: there is no column when; it has id"),
        (LOG, CLICKED, (*GOOD[:-1], "when"), "label_time: there is no column when; it has id, clicked"),
        (LOG, CLICKED, (*GOOD, "--until", "soon"), "until: 'soon' is not a time; write it as the log does"),
        (LOG, CLICKED, (*GOOD, "--delay", "90d"), "no row is left: 2 have not had 90d by 2026-11-09T00:00:00Z"),
        (LOG, "id,clicked\n7,2026-11-02\n", GOOD, "no row of the log has a label in it"),
        (
            LOG + "3,soon\n",
            CLICKED,
            GOOD,
            "log.csv: 1 of 3 rows have no readable time; the first is line 4: shown: 'soon' is not a time",
        ),
        (LOG, CLICKED.replace("2026", "in "), GOOD, "clicks.csv: 1 of 1 rows have no readable time"),
        (LOG, CLICKED, (*GOOD, "--time-format", "%Q"), "%Q cannot be read"),
        (LOG, CLICKED, ("--fake-negatives",), "--fake-negatives needs --time, --delay and --label-time"),
        (LOG, CLICKED, (*GOOD[:-2], "--fake-negatives"), "give label_time"),
        ("id,shown,part\n1,2026-11-01,x\n", CLICKED, (*GOOD, "--fake-negatives"), "the log has a column part"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, log, clicked, options, message):
    (tmp_path / "log.csv").write_text(log)
    (tmp_path / "clicks.csv").write_text(clicked)
    files = [str(tmp_path / name) for name in ("log.csv", "clicks.csv", "out")]
    result = CliRunner().invoke(main, ["prepare", "labels", *files, *options])
    assert result.exit_code == 2 and message in result.output, result.output
    assert "Traceback" not in result.output and not (tmp_path / "out" / "log").exists()


DELAY = {"time": "shown", "delay": "2d", "labels": ["clicks.csv"], "key": "id", "label_time": "clicked"}
WEIGHTED = {"training": {"fake_negative_weighting": True}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"label_delay": DELAY}}, "write format: parquet, not tsv"),
        ({"data": {"label_delay": {**DELAY, "key": None}}}, "labels are joined by a key"),
        ({"data": {"label_delay": {**DELAY, "labels": []}}}, "label_time is a column of labels"),
        ({"data": {"label_delay": {**DELAY, "label_time": "id"}}}, "key and label_time must be two columns"),
        ({"data": {"label_delay": {**DELAY, "validation": 0.5, "test": 0.5}}}, "must be below 1"),
        ({"data": {"format": "parquet", "label_delay": DELAY}, **WEIGHTED}, "data.split: data.label_delay and"),
        (
            {"data": {"format": "parquet", "split": PARTS, "label_delay": {**DELAY, "label_time": None}}, **WEIGHTED},
            "needs labels, their key and label_time",
        ),
        ({"data": {"negative_sampling": 0.5}, **WEIGHTED}, "needs a single label and data.negative_sampling: 1"),
        ({"training": {"fake_negative_weighting": True, "refit": True}}, "remove distillation and refit"),
        ({"training": {"fake_negative_calibration": True, "refit": True}}, "fake_negative_calibration: the labels of"),
        (
            {"data": {"negative_sampling": 0.5}, "training": {"fake_negative_calibration": True}},
            "training.fake_negative_calibration needs a single label",
        ),
        (
            {"training": {"fake_negative_weighting": True, "fake_negative_calibration": True}},
            "fake_negative_weighting and fake_negative_calibration: remove one of the two",
        ),
        ({"data": {"format": "parquet", "label_delay": DELAY}, "events": {"negatives": 1}}, "remove events or"),
    ],
)
def test_a_configuration_of_what_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.model_validate(with_changes(SMALL, changes))


def test_a_log_that_has_its_labels_is_cut(tmp_path):
    (tmp_path / "log.csv").write_text("shown,click\n2026-11-01,0\n2026-11-03,1\n2026-11-04,1\n")
    delay = LabelDelay(time="shown", delay="1d")
    counts = join_late_labels([str(tmp_path / "log.csv")], delay, tmp_path / "out")
    kept = pa.parquet.read_table(tmp_path / "out" / "log")
    assert kept["click"].to_pylist() == [b"0", b"1"] and (counts.rows, counts.pending) == (2, 1)


@pytest.mark.parametrize("key", ["fake_negative_weighting", "fake_negative_calibration", "end_at_base_rate"])
def test_trees_have_no_correction(key):
    changes = {"model": {"name": "cascading_nn_gbdt"}, "training": {key: True}}
    with pytest.raises(InputError, match=f"training.{key}: boosted trees do not support it"):
        check_options(RunConfig.model_validate(with_changes(SMALL, changes)))
