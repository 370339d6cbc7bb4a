"""Logged requests as rows of a log, which drift and scoring read."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.config import Monitoring
from ctrpipe.pipeline.monitoring.drift import compare_logs
from ctrpipe.serving.client import RestClient
from ctrpipe.serving.client.grpc_client import GrpcClient
from ctrpipe.serving.scoring.score import score
from ctrpipe.serving.server import ServerOptions, running_server
from ctrpipe.serving.server.request_rows import write_rows
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.spec import LogSpec
from tests.e2e.small_run import call, one_line
from tests.serving import packed_servable

SPEC = packed_servable.SPEC
ROWS = packed_servable.rows(20, seed=3)
FEATURES = ROWS.select(SPEC.feature_columns)
TASKS = list(SPEC.data.labels)


@pytest.fixture(scope="module")
def version(shared_folder):
    return packed_servable.shared_version(shared_folder)


@pytest.fixture(scope="module")
def logged(version, tmp_path_factory):
    """(folder of one model's requests, what was answered of the primary task): each row in three kinds of request."""
    folder = tmp_path_factory.mktemp("requests")
    options = ServerOptions(version.parent, "ctr", request_log=folder, sampling_rate=1.0)
    raw = raw_arrays(FEATURES, SPEC)
    with running_server(options) as addresses:
        with RestClient(f"{addresses.rest}/v1/models/ctr") as rest, GrpcClient(addresses.grpc, "ctr") as grpc:
            answers = [rest.predict(raw, "serving_raw"), grpc.predict(raw, "serving_raw")]
            examples = np.array(to_examples(FEATURES), object)
            answers.append(grpc.predict({"examples": examples}, "serving_default"))
            packed = rest.predict(raw, "transform_raw")
            rest.predict({name: packed[name] for name in ("ids", "dense")}, "serving_packed")
    return folder / "ctr", np.concatenate([answer[TASKS[0]] for answer in answers])


@pytest.fixture(scope="module")
def prepared(logged, version, tmp_path_factory):
    """(what `ctrpipe prepare requests` printed, its Parquet file)."""
    output = tmp_path_factory.mktemp("prepared") / "rows.parquet"
    code, printed = call("prepare", "requests", logged[0], output, "--model", version.parent)
    assert code == 0, printed
    return printed, output


@pytest.mark.slow
def test_the_rows_are_those_that_were_asked_about(prepared, logged):
    printed, output = prepared
    assert "1 requests to serving_packed have no raw columns\n" in printed
    assert "80 rows of 4 requests in 1 files" in printed
    table = pa.parquet.read_table(output)
    for name in SPEC.feature_columns:
        expected = ROWS[name].to_pylist() * 4
        assert table[name].to_pylist() == expected, name
    assert set(table["model_version"].to_pylist()) == {1}
    assert min(table["request_time"].to_pylist()) > 1.7e9
    served = table[f"served_{TASKS[0]}"].to_numpy()
    np.testing.assert_array_equal(served[:60], logged[1])
    assert np.isnan(served[60:]).all() and table[f"served_{TASKS[0]}"].null_count == 20  # transform_raw scores nothing


@pytest.mark.slow
def test_scoring_the_rows_answers_what_was_served(prepared, logged, version, tmp_path):
    scored = score(version.parent, [str(prepared[1])], tmp_path / "scored", workers=1)
    assert (scored.rows, scored.rejected) == (80, 0)
    found = pa.parquet.read_table(sorted((tmp_path / "scored").glob("*.parquet")))["ctr"].to_numpy()
    np.testing.assert_allclose(found[:60], logged[1], atol=1e-6)


def test_skew_is_measured_between_the_log_and_what_was_served(prepared, tmp_path):
    packed_servable.write_log(ROWS, tmp_path / "log.tsv")
    logs = [str(tmp_path / "log.tsv")], [str(prepared[1])]
    result = compare_logs(SPEC, *logs, "skew", Monitoring(), 1000, 1, Workers(processes=1))
    (comparison,) = result["comparisons"]
    assert comparison["other"]["rows"] == 80 and not result["breached"]
    moved = pa.parquet.read_table(prepared[1])
    moved = moved.set_column(moved.column_names.index("c2"), "c2", pa.array([b"other"] * 80))
    pa.parquet.write_table(moved, tmp_path / "moved.parquet")
    logs = [str(tmp_path / "log.tsv")], [str(tmp_path / "moved.parquet")]
    result = compare_logs(SPEC, *logs, "skew", Monitoring(), 1000, 1, Workers(processes=1))
    assert [column["column"] for column in result["comparisons"][0]["columns"] if column["breached"]] == ["c2"]


TWO_COLUMNS = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "n", "t"], "labels": {"ctr": "click"}},
        "features": [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["t"]}],
    }
)


def candidates() -> PredictionLog:
    record = PredictionLog()
    record.predict_log.request.inputs["n"].CopyFrom(tf.make_tensor_proto(np.array([1, 2, 3], np.float32)))
    record.predict_log.request.inputs["t"].CopyFrom(tf.make_tensor_proto([b"text"]))
    return record


def test_candidates_share_their_text(tmp_path):
    write(tmp_path / "1.tfrecord", candidates().SerializeToString())
    assert write_rows(tmp_path, TWO_COLUMNS, tmp_path / "out.parquet").rows == 3
    assert pa.parquet.read_table(tmp_path / "out.parquet")["t"].to_pylist() == [b"text"] * 3


def test_a_request_for_the_log_s_description_has_no_rows_to_miss(tmp_path):
    asked = PredictionLog()
    asked.log_metadata.model_spec.signature_name = "log_spec"
    asked.predict_log.request.inputs["request"].CopyFrom(tf.make_tensor_proto([b""]))
    write(tmp_path / "1.tfrecord", asked.SerializeToString(), candidates().SerializeToString())
    written = write_rows(tmp_path, TWO_COLUMNS, tmp_path / "out.parquet")
    assert (written.requests, written.rows, dict(written.skipped)) == (1, 3, {})


def write(path, *records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def test_what_cannot_be_read_is_one_line_and_leaves_no_file(version, tmp_path):
    def fails(message):
        one_line(*call("prepare", "requests", tmp_path / "in", tmp_path / "out", "--model", version), message)
        assert not (tmp_path / "out").exists()

    (tmp_path / "in").mkdir()
    fails("no *.tfrecord in it")
    (tmp_path / "in" / "1.tfrecord.part").touch()
    fails("its file is not complete yet; wait for a minute since its first request, or end the server")
    packed = PredictionLog()
    packed.log_metadata.model_spec.signature_name = "serving_packed"
    packed.predict_log.request.inputs["ids"].CopyFrom(tf.make_tensor_proto([[1]]))
    write(tmp_path / "in" / "1.tfrecord", packed.SerializeToString())
    fails("no request has the columns of the log; signatures asked: serving_packed")
    write(tmp_path / "in" / "2.tfrecord", packed.SerializeToString(), b"\xff")
    fails("record 2 is not a PredictionLog")
    (tmp_path / "in" / "2.tfrecord").write_bytes(b"no record, but long enough for a header")
    fails("damaged, or not a TFRecord file")
