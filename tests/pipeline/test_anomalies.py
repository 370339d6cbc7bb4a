"""Statistics checked against a schema in groups of columns: the same anomalies as TFDV finds in all at once."""

import numpy as np
import pandas as pd
import pytest
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from ctrpipe.pipeline.monitoring import faster_tfdv
from ctrpipe.pipeline.monitoring.faster_tfdv import validate_statistics
from ctrpipe.pipeline.monitoring.validation import tfdv

FAR, NEAR = 1.0, 0.0


def statistics(columns: dict[str, np.ndarray]) -> statistics_pb2.DatasetFeatureStatisticsList:
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns))


def log(shift: float) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    numbers = {f"n{index}": random.normal(shift, 1, 200).astype(np.float32) for index in range(5)}
    texts = {f"t{index}": np.array([f"v{n % (3 + index)}" for n in range(200)], object) for index in range(4)}
    return numbers | texts


@pytest.fixture(scope="module")
def found():
    """Statistics with a new column, one less, one of another type, one outside its range and new values."""
    columns = log(NEAR)
    del columns["n1"]
    columns |= {"new": columns["n2"], "n3": columns["t0"], "n4": columns["n4"] + 100}
    return statistics({**columns, "t2": np.array(["other"] * 200, object)})


@pytest.fixture(scope="module")
def schema() -> schema_pb2.Schema:
    made = tfdv.infer_schema(statistics(log(NEAR)))
    tfdv.get_feature(made, "n4").float_domain.max = 50
    for feature in made.feature:
        feature.presence.min_fraction = 1.0
        if feature.name.startswith("n"):
            feature.drift_comparator.jensen_shannon_divergence.threshold = 0.3
        else:
            feature.drift_comparator.infinity_norm.threshold = 0.01
    return made


@pytest.mark.parametrize("size", [1, 3, 100])
def test_anomalies_are_those_of_tfdv(found, schema, size, monkeypatch):
    monkeypatch.setattr(faster_tfdv, "GROUP_COLUMNS", size)
    ours, theirs = validate_statistics(found, schema), tfdv.validate_statistics(found, schema)
    assert {"new", "n1", "n3", "n4", "t2"} <= set(theirs.anomaly_info)
    assert dict(ours.anomaly_info) == dict(theirs.anomaly_info) and ours == theirs


@pytest.mark.parametrize("size", [2, 100])
def test_distances_from_another_log_are_those_of_tfdv(found, schema, size, monkeypatch):
    monkeypatch.setattr(faster_tfdv, "GROUP_COLUMNS", size)
    other = statistics(log(FAR))
    ours, theirs = (
        check(found, schema, previous_statistics=other) for check in (validate_statistics, tfdv.validate_statistics)
    )
    by_column = [{each.path.step[0]: each for each in some.drift_skew_info} for some in (ours, theirs)]
    assert by_column[0] == by_column[1] and len(by_column[0]) >= 6
    assert dict(ours.anomaly_info) == dict(theirs.anomaly_info)


def test_a_log_without_rows_is_said_to_have_none(schema):
    empty = statistics_pb2.DatasetFeatureStatisticsList(datasets=[statistics_pb2.DatasetFeatureStatistics()])
    assert validate_statistics(empty, schema) == tfdv.validate_statistics(empty, schema)
