"""The benchmark as a whole, on a logistic regression and small servers before it."""

import contextlib
import json
import pathlib
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from tensorflow_serving.apis import predict_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.run.sample_export import LOG, PREPARED, make_export
from ctrpipe.serving.latency.benchmark import MeasuredModel
from ctrpipe.serving.latency.compare import show_comparison, summary, write_comparison
from ctrpipe.serving.latency.ratios import targets
from ctrpipe.serving.latency.report import JSON, PAGE, last_line, page, show, write
from ctrpipe.serving.latency.requests import GRPC_PATH, KINDS
from ctrpipe.serving.latency.run import measure_beside, measure_latency
from ctrpipe.serving.latency.settings import QUICK, Settings, read_settings
from ctrpipe.serving.latency.target import at_url, started
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server.check import check_servable

SMALL = Settings(
    rows=(100,),
    concurrency=(1, 2),
    rounds=2,
    seconds=0.04,
    warm_up=0.0,
    generators=1,
    open_loop={"rows": (100,), "loads": (0.3,), "seconds": 0.2},
)
CELL = {"kind", "rows", "concurrency", "loop", "requests", "errors", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "p99.9_ms"}
CELL |= {"mean_ms", "max_ms", "requests_per_s", "rows_per_s", "generator_cpu", "generator_lag_p99_ms", "rounds"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("exports")
    make_export("lr", folder, rows=2000)
    return folder


@contextlib.contextmanager
def serving(version: pathlib.Path, wrong: float = 0.0, broken: tuple[str, ...] = (), seconds: float = 0.0):
    """A REST and a gRPC server with the plainest code there is; yields (URL, gRPC address).

    Args:
        wrong: Added to every probability.
        broken: Signatures that are answered with an error.
        seconds: Additional seconds of each answer.
    """
    servable = Servable(version)
    numeric = {name for name, info in servable.signatures["serving_raw"].inputs.items() if info.dtype == 1}

    def run(signature: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
        if signature in broken:
            raise KeyError(f"no {signature}")
        time.sleep(seconds)
        return servable.run(signature, inputs)["ctr"] + wrong

    class Handler(BaseHTTPRequestHandler):
        protocol_version, server_version, sys_version = "HTTP/1.1", "small", ""
        disable_nagle_algorithm = True

        def do_GET(self):
            self.answer(200, b'{"model_version_status": [{"state": "AVAILABLE"}]}')

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                self.answer(200, json.dumps(self.predict(body)).encode())
            except KeyError as error:
                self.answer(400, json.dumps({"error": str(error)}).encode())

        def predict(self, body):
            signature = body["signature_name"]
            if "inputs" in body:
                types = {"ids": np.int32, "dense": np.float32}
                inputs = {name: np.array(values, types[name]) for name, values in body["inputs"].items()}
                return {"outputs": run(signature, inputs).tolist()}
            rows = body["instances"]
            if "b64" in rows[0]:
                import base64

                examples = np.array([base64.b64decode(row["b64"]) for row in rows], object)
                return {"predictions": run(signature, {"examples": examples}).tolist()}
            columns = {
                name: np.array([row[name] for row in rows], np.float32)
                if name in numeric
                else np.array([row[name].encode() for row in rows], object)
                for name in rows[0]
            }
            return {"predictions": run(signature, columns).tolist()}

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    def predict(request, context):
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        answer = predict_pb2.PredictResponse()
        answer.outputs["ctr"].CopyFrom(tf.make_tensor_proto(run(request.model_spec.signature_name, inputs)))
        return answer

    method = grpc.unary_unary_rpc_method_handler(
        predict, predict_pb2.PredictRequest.FromString, predict_pb2.PredictResponse.SerializeToString
    )
    service, _, name = GRPC_PATH[1:].partition("/")
    rpc = grpc.server(ThreadPoolExecutor(4), [grpc.method_handlers_generic_handler(service, {name: method})])
    port = rpc.add_insecure_port("127.0.0.1:0")
    rpc.start()
    rest = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    rest.daemon_threads = True
    threading.Thread(target=rest.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{rest.server_port}/v1/models/ctr", f"127.0.0.1:{port}"
    finally:
        rest.shutdown()
        rest.server_close()
        rpc.stop(0)


@pytest.fixture
def no_ceiling(monkeypatch):
    """For tests that do not look at it."""
    monkeypatch.setattr("ctrpipe.serving.latency.run.ceilings", lambda *arguments: [])
    monkeypatch.setattr("ctrpipe.serving.latency.run.busy", lambda: 0.0)


@pytest.fixture(scope="module")
def report(folder) -> dict:
    """A whole report, of all kinds."""
    with pytest.MonkeyPatch.context() as patch, serving(folder / "lr" / "1") as (url, address):
        patch.setattr("ctrpipe.serving.latency.papers.BERT4CTR_BATCHES", 3)
        patch.setattr("ctrpipe.serving.latency.benchmark.CEILING_SECONDS", 0.1)
        patch.setattr("ctrpipe.serving.latency.benchmark.WARM_SECONDS", 0.02)
        return measure_latency([folder / "lr"], folder / LOG, SMALL, (), url, address, baseline=folder / "lr")


@pytest.mark.slow
def test_every_cell_is_measured_and_whole(report):
    model = report["models"][0]
    assert model["skipped"] == {} and set(model["largest_difference"]) == set(KINDS)
    assert max(model["largest_difference"].values()) < 1e-6
    cells = {(cell["kind"], cell["rows"], cell["concurrency"], cell["loop"]): cell for cell in model["cells"]}
    closed = {(kind, 100, clients, "closed") for kind in KINDS for clients in (1, 2)}
    calls = {("call_packed", 100, clients, "closed") for clients in (1, 2)}
    single = ("loader_packed", "call_examples", "call_raw", "saved_model_packed")
    calls |= {(kind, 100, 1, "closed") for kind in single}
    opened = {(kind, 100, 64, "open") for kind in ("rest_columnar", "grpc_packed")}
    assert set(cells) == closed | calls | opened
    for key, cell in cells.items():
        assert CELL <= set(cell), key
        assert cell["errors"] == {} and cell["requests"] > 0 and cell["max_ms"] >= cell["mean_ms"] > 0, key
        assert len(cell["rounds"]) == (2 if cell["loop"] == "closed" else 1)
    assert cells["rest_columnar", 100, 64, "open"]["rate_per_s"] > 0
    assert len(report["ceiling"]) == 2 * 2


@pytest.mark.slow
def test_the_report_says_what_ran_where(report):
    assert report["target"]["server"] == "small" and report["target"]["flags"] is None
    assert report["machine"]["cores"] >= 1 and set(report["busy"]) == {"before", "after"}
    assert {"tensorflow", "grpcio", "numpy"} <= set(report["versions"])
    assert report["settings"]["rows"] == [100] and report["interrupted"] is False
    assert report["models"][0]["ratios"]["rest_packed_over_call"].keys() == {"100"}
    hiformer, bert4ctr = report["papers"]["hiformer"], report["papers"]["bert4ctr"]
    assert hiformer["baseline"] == "lr-2" and hiformer["models"]["lr-2"]["relative"] == 1.0  # two of one name
    assert 0.2 < hiformer["models"]["lr"]["relative"] < 5  # the same model twice
    assert set(bert4ctr["ms_per_sample"]["lr"]) == {"average", "median", "p90", "p95"}


@pytest.mark.slow
def test_what_is_written_is_whole_and_opens_offline(report, tmp_path, capsys):
    paths = write(report, tmp_path / "out")
    assert [path.name for path in paths] == [JSON, PAGE]
    assert json.loads(paths[0].read_text()) == json.loads(json.dumps(report))
    text = paths[1].read_text()
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", text)
    assert text.count("<svg") >= 3 and all(link.startswith("#") for link in links)
    assert "<script " not in text and "@import" not in text and set(re.findall(r"url\(.", text)) == {"url(#"}
    for cell in report["models"][0]["cells"]:
        assert f">{cell['kind']}</" in text
    show(report)
    printed = capsys.readouterr().out
    assert "rest_b64" in printed and "small at http://" in printed
    assert "The server over the model alone" in printed and " bar " not in printed and "missed" not in printed
    found = json.loads(json.dumps(last_line(report)))
    assert found["ratios"]["lr"]["grpc_packed_over_rest"].keys() == {"100"}


@pytest.mark.large(like="tests/serving/test_latency.py::test_every_cell_is_measured_and_whole")
@pytest.mark.slow
def test_ctrl_c_leaves_what_is_there(folder, no_ceiling, capsys):
    def interrupt(text: str) -> None:
        if "round 2" in text:
            raise KeyboardInterrupt

    with serving(folder / "lr" / "1") as (url, address):
        settings = SMALL.model_copy(update={"papers": False})
        found = measure_latency([folder / "lr"], None, settings, (), url, address, progress=interrupt)
    assert found["interrupted"] and found["papers"] == {}
    assert all(len(cell["rounds"]) == 1 for cell in found["models"][0]["cells"])
    assert found["models"][0]["ratios"]["rest_packed_over_call"]
    show(found)
    assert "Interrupted" in capsys.readouterr().out


@pytest.mark.slow
def test_a_kind_that_the_server_cannot_answer_is_left_out_and_named(folder, no_ceiling):
    settings = SMALL.model_copy(update={"papers": False, "open_loop": None, "rounds": 1})
    with serving(folder / "lr" / "1", broken=("serving_default",)) as (url, _):
        found = measure_latency([folder / "lr"], None, settings, (), url)["models"][0]
    assert "HTTP 400" in found["skipped"]["rest_b64"]
    assert "--grpc HOST:PORT" in found["skipped"]["grpc_packed"]
    assert {cell["kind"] for cell in found["cells"]} >= {"rest_row", "rest_columnar", "call_examples"}
    assert "rest_b64" not in {cell["kind"] for cell in found["cells"]}


@pytest.mark.slow
def test_a_server_of_another_model_is_refused(folder, no_ceiling):
    settings = SMALL.model_copy(update={"kinds": ("rest_columnar",)})
    with serving(folder / "lr" / "1", wrong=0.01) as (url, _):
        with pytest.raises(InputError, match="does it serve that model"):
            measure_latency([folder / "lr"], None, settings, (), url)


@pytest.mark.slow
def test_bodies_hold_the_logs_own_rows(folder):
    model = MeasuredModel(folder / "lr", folder / LOG, most_rows=3)
    assert model.rows.count == 24
    first = (folder / LOG).read_text().splitlines()[1].split("\t")
    row = json.loads(model.rows.bodies("rest_row", 1, "ctr")[1])["instances"][0]
    assert row["C1"] == first[14] and row["C26"] == first[39]
    assert (np.isnan(row["I1"]) and first[1] == "") or row["I1"] == float(first[1])
    bodies = model.rows.bodies("grpc_examples", 3, "ctr")
    assert len(bodies) == 8 and len(set(bodies)) == 8
    request = predict_pb2.PredictRequest.FromString(bodies[0])
    assert request.model_spec.name == "ctr" and request.model_spec.signature_name == "serving_default"
    assert len(model.rows.inputs("serving_packed", 100)) == 1  # too few rows: they come again
    assert model.rows.inputs("serving_packed", 100)[0]["ids"].shape == (100, 39)


@pytest.mark.slow
def test_the_commands_history_is_that_of_the_rows(folder, tmp_path):
    """Only what makes the rows can know that this model reads none."""
    arguments = ["--model", str(folder / "lr"), "--data", str(folder / LOG), "--output", str(tmp_path)]
    result = CliRunner().invoke(main, ["bench", "latency", "--history", "3", *arguments])
    assert result.exit_code == 2 and "--history: the model reads no history" in result.output


@pytest.mark.slow
def test_a_model_without_a_log_brings_its_own_rows(folder):
    model = MeasuredModel(folder / "lr", None, most_rows=3)
    with_log = MeasuredModel(folder / "lr", folder / LOG, most_rows=3)
    assert model.rows.count == 10
    for signature in ("serving_packed", "serving_raw"):
        for name, values in model.rows.inputs(signature, 10)[0].items():
            np.testing.assert_array_equal(values, with_log.rows.inputs(signature, 10)[0][name])


# The export that it measures ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.slow
def test_bars_are_set_beside_the_ratios_only_where_they_are_asked_for(report, capsys, monkeypatch):
    monkeypatch.setattr("ctrpipe.serving.latency.plots.draw_plots", lambda report: {})
    found = targets(report["models"][0]["ratios"])
    assert [one["name"] for one in report["targets"]] == [one["name"] for one in found]
    assert all(set(one) == {"name", "value"} for one in report["targets"])
    with_bars = {**report, "targets": found}
    show(with_bars)
    printed = capsys.readouterr().out
    assert " bar " in printed and ("met" in printed or "missed" in printed)
    assert ">bar</th>" in page(with_bars) and ">bar</th>" not in page(report)


@pytest.mark.slow
def test_a_server_that_takes_longer_is_seen_beside_another(folder, tmp_path, capsys):
    settings = SMALL.model_copy(update={"kinds": ("rest_columnar", "grpc_packed", "rest_b64"), "seconds": 0.4})
    version = folder / "lr" / "1"
    with serving(version) as (url, address), serving(version, broken=("serving_default",), seconds=0.005) as other:
        found = measure_beside(folder / "lr", folder / LOG, settings, (), other, url, address)
    assert set(found["skipped"]) == {"rest_b64"} and "no serving_default" in found["skipped"]["rest_b64"]
    cells = {(cell["kind"], cell["clients"]): cell for cell in found["cells"]}
    assert set(cells) == {(kind, clients) for kind in ("rest_columnar", "grpc_packed") for clients in (1, 2)}
    for (_, clients), cell in cells.items():
        assert cell["errors"] == [{}, {}] and cell["rows"] == 100
        ratio = cell["p50_ratio" if clients == 1 else "rows_per_s_ratio"]
        assert ratio["low"] <= ratio["value"] <= ratio["high"]
        if clients == 1:
            first, second = cell["p50_ms"]
            assert 3 < second - first < 15 and ratio["high"] < 1
            assert ratio["value"] == pytest.approx(first / second)
    written = write_comparison(found, tmp_path / "out")
    assert json.loads(written.read_text()) == json.loads(json.dumps(found))
    show_comparison(found)
    printed = capsys.readouterr().out
    assert "rest_b64 was not measured" in printed and f"{found['servers'][0]['url']} over" in printed
    assert json.loads(json.dumps(summary(found)))["cells"] == found["cells"]


@pytest.mark.slow
def test_servers_of_two_models_are_not_compared(folder):
    settings = SMALL.model_copy(update={"kinds": ("rest_columnar",)})
    version = folder / "lr" / "1"
    with serving(version) as (url, address), serving(version, wrong=0.1) as other:
        with pytest.raises(
            InputError, match="no kind of request is answered by both servers .*does it serve that model"
        ):
            measure_beside(folder / "lr", None, settings, (), other, url, address)


def test_a_sample_export_serves_and_shares_its_log(folder):
    assert check_servable(folder / "lr" / "1") < 1e-6
    log, prepared = (folder / LOG).stat().st_mtime_ns, (folder / PREPARED).read_text()
    fm = make_export("fm", folder, rows=2000, embedding_dim=4)
    assert fm == folder / "fm" / "1" and check_servable(fm) < 1e-6
    assert (folder / LOG).stat().st_mtime_ns == log and (folder / PREPARED).read_text() == prepared


@pytest.mark.parametrize(("model", "options"), [("nosuch", {}), ("lr", {"nosuch": 1})])
def test_a_sample_export_of_no_model_is_refused_before_anything_is_made(model, options, tmp_path):
    with pytest.raises(InputError, match="nosuch"):
        make_export(model, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# Settings, targets, the command ---------------------------------------------------------------------------------------


def test_options_win_over_the_file_and_the_file_over_the_default(tmp_path):
    path = tmp_path / "bench.yaml"
    path.write_text("rows: [1, 7]\nseconds: 2\nopen_loop: {rates: [50], seconds: 3}\n")
    found = read_settings(path, False, rows=(5,), rounds=None, kinds=())
    assert (found.rows, found.seconds, found.rounds, found.kinds) == ((5,), 2.0, 5, Settings().kinds)
    assert found.open_loop and found.open_loop.rates == (50.0,) and found.open_loop.loads == (0.5, 0.8)
    rates = read_settings(None, True, rates=(20.0,)).open_loop
    assert rates and (rates.rates, rates.loads, rates.rows) == ((20.0,), (), QUICK.open_loop.rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rowz: [1]", "rowz: unknown key"),
        ("rows: [0]", "rows.0: Input should be greater than or equal to 1"),
        ("kinds: [rest]", "kinds.0"),
        ("- 1", "expected a mapping"),
        ("rows: [", "not valid YAML"),
    ],
)
def test_a_mistake_in_the_settings_is_one_line(text, words, tmp_path):
    path = tmp_path / "bench.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(words)) as error:
        read_settings(path, False)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:8501/v1/models/ctr", "127.0.0.1:8501", "http://127.0.0.1/v1/models/ctr", "remote"]
)
def test_a_url_of_no_model_is_refused(url):
    with pytest.raises(InputError, match="expected local, or a URL like"):
        at_url(url, None)


def test_a_server_that_ends_at_once_is_named_with_its_last_words(tmp_path):
    command = (sys.executable, "-c", "import sys; print('no such flag'); sys.exit(2)")
    with pytest.raises(InputError, match="ended with exit code 2; its last lines: no such flag"):
        with started(command, tmp_path):
            pass


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "http://127.0.0.1:1/v1/models/ctr"], "give --model"),
        (["--target", "http://127.0.0.1:1/v1/models/ctr", "--model", "m"], "no answer"),
        (["--kind", "rest"], "kinds.0"),
        (["--beside", "http://127.0.0.1:1/v1/models/ctr"], "--beside: give --model once"),
        (["--beside-grpc", "127.0.0.1:1", "--model", "m"], "--beside-grpc needs --beside"),
        (["--beside", "http://127.0.0.1:1/v1/models/ctr", "--model", "m"], "no answer"),
        (["--beside", "http://127.0.0.1", "--model", "m"], "--beside http://127.0.0.1: expected a URL like"),
        (["--model", "m", "--server-flag", "--rest_api_timeout_in_ms=0"], "--rest_api_timeout_in_ms=0"),
        (["--output", __file__], "a file is in the way of the output folder"),
        (["--seconds", "0"], "seconds: Input should be greater than 0"),
    ],
)
def test_the_command_refuses_in_one_line(arguments, words, tmp_path):
    result = CliRunner().invoke(main, ["bench", "latency", "--output", str(tmp_path), *arguments])
    assert result.exit_code == 2 and words in result.output
    assert len(result.output.strip().splitlines()) == 1
