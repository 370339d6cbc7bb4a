"""A calibrated SavedModel: every signature, both protocols and batch scoring return calibrated probabilities."""

import json

import numpy as np
import pyarrow as pa
import pytest
import scipy.special

from ctrpipe.models import FeatureMap
from ctrpipe.serving.assets import GoldenRows
from ctrpipe.serving.calibration import (
    UNCALIBRATED,
    Beta,
    CalibrationChoice,
    Curve,
    FittedCalibration,
    SliceLines,
    TaskCalibration,
    slice_rows,
)
from ctrpipe.serving.client import RestClient
from ctrpipe.serving.client.grpc_client import GrpcClient
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.rows import Scorer
from ctrpipe.serving.server import ServerOptions, running_server
from ctrpipe.serving.server.check import check_servable
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from tests.serving.packed_servable import SPEC, rows, save

POINTS, RATES = np.array([-2.0, 0.0, 0.5, 3.0]), np.array([0.05, 0.2, 0.5, 0.8])
BY = ["c2", "n1"]


def made(fields: FeatureMap) -> FittedCalibration:
    """Fits a curve with terms for the values of two columns for ctr, and a beta calibration for cvr."""
    places = slice_rows(fields, BY)
    random = np.random.default_rng(8)
    lines = random.normal(0, 0.2, (places["last"][-1] + 1, 2)).astype(np.float32)
    lines[[*(places["rows"] - 1), *places["last"]]] = 0
    lines[: places["last"][0] + 1, 0] += 1
    slopes = np.diff(RATES) / np.diff(POINTS)
    inner = np.stack([POINTS[:-1], RATES[:-1], slopes], axis=1)
    pieces = np.concatenate([[[-2, 0.05, 0]], inner, [[3, 0.8, 0]]]).astype(np.float32)
    ctr = TaskCalibration(Curve(POINTS.astype(np.float32), pieces), SliceLines(**places, lines=lines))
    choice = CalibrationChoice("beta", False, {"none": 0.25, "beta": 0.125}, "it lowers the log loss")
    return FittedCalibration("isotonic", {"ctr": ctr, "cvr": TaskCalibration(Beta(0.5, 0.75, -1.0), None, choice)})


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    return save(tmp_path_factory.mktemp("calibrated"), calibrate=made, explains=True)


@pytest.fixture(scope="module")
def servable(version):
    servable = Servable(version)
    yield servable
    servable.close()


def expected_of(servable: Servable, raw: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Calibrates uncalibrated answers in numpy."""
    before = servable.run(UNCALIBRATED, raw)
    logits = {task: scipy.special.logit(before[task].astype(np.float64)) for task in before}
    fields = FeatureMap.load(asset_path(servable.path, Asset.FEATURE_MAP))
    ctr = made(fields).tasks["ctr"].slices
    ids = servable.run("transform_raw", raw)["ids"]
    log_odds = scipy.special.logit(np.interp(logits["ctr"], POINTS, RATES))
    total = np.zeros(len(ids))
    start = 1
    for name in BY:
        field = next(field for field in fields.fields if field.name == name)
        own = ctr.lines[start : start + field.size][ids[:, fields.slots_of(name).start] - field.offset]
        total += own[:, 0] * log_odds + own[:, 1]
        start += field.size + 2
    cvr = scipy.special.expit(logits["cvr"])
    of_cvr = 0.5 * np.log(cvr) - 0.75 * np.log(1 - cvr) - 1
    return {"ctr": scipy.special.expit(total), "cvr": scipy.special.expit(of_cvr)}


@pytest.mark.slow
def test_every_signature_answers_the_calibrated_probability(version, servable):
    assert check_servable(version) < 1e-6
    batch = rows(300, 7)
    raw = raw_arrays(batch, SPEC)
    expected = expected_of(servable, raw)
    features = pa.RecordBatch.from_arrays([batch[name] for name in SPEC.feature_columns], names=SPEC.feature_columns)
    examples = np.array(to_examples(features), object)
    answers = [
        servable.run("serving_raw", raw),
        servable.run("serving_packed", servable.run("transform_raw", raw)),
        servable.run("serving_default", {"examples": examples}),
    ]
    for found in answers:
        for task, values in expected.items():
            np.testing.assert_allclose(found[task], values, atol=1e-6)
    np.testing.assert_allclose(servable.run("regress", {"inputs": examples})["outputs"], expected["ctr"], atol=1e-6)
    before = servable.run(UNCALIBRATED, raw)["ctr"]
    explained = servable.run("serving_explain", raw)
    np.testing.assert_allclose(explained["ctr"], expected["ctr"], atol=1e-6)
    np.testing.assert_allclose(explained["logit"], scipy.special.logit(before), atol=1e-4)
    assert np.ptp(expected["ctr"]) > 0.2 and np.abs(before - expected["ctr"]).max() > 0.2
    scorer = Scorer(version)
    scored = scorer(pa.Table.from_batches([batch]))
    scorer.close()
    for task, values in expected.items():
        np.testing.assert_allclose(scored[task], values, atol=1e-6)
    one_by_one = [servable.run("serving_raw", {name: value[[row]] for name, value in raw.items()}) for row in range(20)]
    np.testing.assert_allclose([row["ctr"][0] for row in one_by_one], expected["ctr"][:20], atol=1e-6)


# A server runs the signatures as a loader does, whatever they compute: test_every_model.py shows it for one export.
@pytest.mark.large(like="tests/serving/test_calibration.py::test_every_signature_answers_the_calibrated_probability")
@pytest.mark.slow
def test_rest_and_grpc_answer_it_too(version, servable):
    raw = raw_arrays(rows(40, 9), SPEC)
    expected = expected_of(servable, raw)
    with running_server(ServerOptions(version.parent, "ctr")) as addresses:
        with RestClient(f"{addresses.rest}/v1/models/ctr") as rest, GrpcClient(addresses.grpc, "ctr") as grpc:
            answers = [rest.predict(raw), grpc.predict(raw)]
    for found in answers:
        for task, values in expected.items():
            np.testing.assert_allclose(found[task], values, atol=1e-6)


@pytest.mark.slow
def test_a_version_describes_its_calibration(version):
    described = json.loads(asset_path(version, Asset.CALIBRATION).read_text())
    assert described["method"] == "isotonic" and list(described["tasks"]) == ["ctr", "cvr"]
    np.testing.assert_allclose(described["tasks"]["ctr"]["overall"]["points"], POINTS)
    assert described["tasks"]["cvr"]["overall"] == {"rise": 0.5, "fall": 0.75, "intercept": -1.0}
    assert described["tasks"]["cvr"]["choice"]["held_out"] == {"none": 0.25, "beta": 0.125}


@pytest.mark.slow
def test_the_check_allows_what_the_last_bits_of_a_logit_make_of_a_probability(version):
    assert GoldenRows.load(asset_path(version, Asset.GOLDEN)).tolerance < 4e-6
    pieces = np.array([[0, 0.1, 0], [0, 0.1, 1e5]], np.float32)
    steep = FittedCalibration("isotonic", {"ctr": TaskCalibration(Curve(np.zeros(1, np.float32), pieces))})
    logits = np.array([[-1.0], [1e-6]], np.float32)
    # From 0.2 at 1e-6 to 0.6 at 5e-6.
    assert steep.largest_change(logits, {}, 4e-6) == pytest.approx(0.4, abs=1e-3)
    assert steep.largest_change(logits[:1], {}, 4e-6) == 0
