"""The REST client and `ctrpipe predict`, against our server and against servers that answer something else."""

import contextlib
import http.server
import json
import pathlib
import socket
import threading

import pytest
import yaml

from serving.client import RestClient
from serving.server import ServerOptions, running_server
from tests.e2e.small_run import call, one_line
from tests.serving.small_servable import probability, save, spec
from transforms.errors import InputError

ROWS = [(5.0, "a"), (None, "bé"), (-2.0, ""), (30.5, "ccc")]
LOG = "".join(f"1\t{'' if number is None else number}\t{text}\n" for number, text in ROWS)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> pathlib.Path:
    return save(tmp_path_factory.mktemp("models") / "ctr" / "7", spec()).parent


@pytest.fixture(scope="module")
def url(model):
    with running_server(ServerOptions(model, "ctr")) as addresses:
        yield f"{addresses.rest}/v1/models/ctr"


@pytest.fixture
def log(tmp_path) -> pathlib.Path:
    path = tmp_path / "log.tsv"
    path.write_text(LOG)
    return path


@contextlib.contextmanager
def answering(*answers: tuple[int, str]):
    """A server that gives these answers (status, body) in turn, the last one for ever; yields (URL, requests)."""
    requests: list[dict] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, body = answers[min(len(requests), len(answers)) - 1]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/models/ctr", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def predict(url: str, *arguments) -> tuple[int, str]:
    return call("predict", "--url", url, *arguments)


def printed(output: str) -> list[tuple[int, float]]:
    rows = [line.split("\t") for line in output.splitlines() if "\t" in line]
    return [(int(row), float(value)) for row, value in rows]


def expected(count: int) -> list[tuple[int, float]]:
    return [(row, pytest.approx(probability(*ROWS[row]), abs=1e-6)) for row in range(count)]


def test_the_format_comes_from_the_server_the_model_or_the_configuration(url, model, log, tmp_path):
    config = {"name": "x", "model": {"name": "lr"}, **spec().model_dump(mode="json", exclude_none=True)}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    for source in ([], ["--model", model], ["--model", model / "7"], ["--config", tmp_path / "config.yaml"]):
        code, output = predict(url, "--input", log, "--rows", 3, *source)
        assert code == 0 and printed(output) == expected(3)
        assert len(output.splitlines()) == 3


def test_fewer_rows_than_asked_for_are_printed_and_said(url, log):
    code, output = predict(url, "--input", log, "--rows", 9)
    assert code == 0 and printed(output) == expected(4)
    assert f"{log} has 4 good rows, fewer than the 9 asked for" in output


def test_malformed_rows_are_passed_over_and_said(url, log):
    lines = LOG.splitlines()
    log.write_text("\n".join(["bad", *lines[:2], "1\tx\ty", *lines[2:], "worse"]))
    code, output = predict(url, "--input", log, "--rows", 3)
    assert code == 0 and [row for row, _ in printed(output)] == [1, 2, 4]
    assert "2 malformed rows were passed over, the first is row 0: expected 3 columns, found 1" in output
    log.write_text("bad\nworse\n")
    one_line(*predict(url, "--input", log), "no good row in it")


def test_many_rows_travel_in_several_requests(url, log, monkeypatch):
    monkeypatch.setattr("pipeline.predict.BATCH", 7)
    monkeypatch.setattr("transforms.lines.CHUNK_BYTES", 60)
    log.write_text("".join(f"1\t{row}\t\n" for row in range(50)))
    code, output = predict(url, "--input", log, "--rows", 40)
    assert code == 0
    assert printed(output) == [(row, pytest.approx(probability(row, ""), abs=1e-6)) for row in range(40)]


def test_what_cannot_be_used_is_one_line(url, model, log, tmp_path):
    one_line(*predict(url, "--input", tmp_path / "absent"), "no such file")
    one_line(*predict(url, "--input", log, "--model", tmp_path), "no model version here")
    one_line(*predict(url, "--input", log, "--config", tmp_path / "absent.yaml"), "cannot read the configuration")
    one_line(*predict(url[:-3] + "other", "--input", log), "the server answers 404: Servable not found")
    one_line(*predict(url + "/versions/1", "--input", log), "Specific(ctr, 1)")
    for address in ("127.0.0.1:8501/v1/models/ctr", "no url", "http://:99999", "ftp://127.0.0.1/x", "http://a..b/x"):
        one_line(*predict(address, "--input", log), f"{address}: ")


def test_a_server_that_is_not_there_is_one_line(log, monkeypatch):
    monkeypatch.setattr("serving.client.time.sleep", lambda seconds: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1/models/ctr"
        code, output = predict(address, "--input", log)
        one_line(code, output, "is the server running?")
        assert "--config" not in output  # which would not help


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, '{"error": "first\\nsecond"}', "the server answers 500: first second"),
        (502, "<html>Bad\nGateway</html>", "the server answers 502: <html>Bad Gateway</html>"),
        (404, "", "the server answers 404: nothing more"),
        (301, "", "the server answers 301"),
        (400, '["error"]', 'the server answers 400: ["error"]'),
        (200, "<html>hello</html>", "the answer is no JSON object"),
        (200, "", "the answer is no JSON object"),
        (200, "[1, 2]", "the answer is no JSON object"),
        (200, '{"predictions": [1]}', "the answer has no 'outputs'"),
        (200, '{"outputs": [0.5]}', "the answer holds no probability of 'ctr' for each row"),
        (200, '{"outputs": {"other": [0.5, 0.5]}}', "the answer holds no probability of 'ctr' for each row"),
        (200, '{"outputs": ["a", "b"]}', "the answer holds no probability of 'ctr' for each row"),
        (200, '{"outputs": null}', "the answer holds no probability of 'ctr' for each row"),
    ],
)
def test_a_bad_answer_is_one_line(model, log, status, body, message):
    with answering((status, body)) as (address, _):
        one_line(*predict(address, "--input", log, "--rows", 2, "--model", model), message)


@pytest.mark.parametrize("outputs", ["[1]", "[]", '["{}"]', '{"log_spec": ["nothing"]}', '{"other": []}', "null"])
def test_a_server_that_does_not_know_the_log_is_one_line(log, outputs):
    with answering((200, f'{{"outputs": {outputs}}}')) as (address, _):
        one_line(*predict(address, "--input", log), "give --model or --config")


def test_a_model_without_the_signature_gets_the_hint(log):
    message = '{"error": "Serving signature name: \\"log_spec\\" not found in signature def"}'
    with answering((400, message)) as (address, _):
        one_line(*predict(address, "--input", log), "not found in signature def; give --model or --config")


def test_a_busy_server_is_asked_again_with_the_same_rows(model, log, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr("serving.client.time.sleep", waits.append)
    with answering((503, ""), (429, ""), (200, '{"outputs": [0.25, 0.5]}')) as (address, requests):
        code, output = predict(address, "--input", log, "--rows", 2, "--model", model)
    assert code == 0 and printed(output) == [(0, 0.25), (1, 0.5)]
    assert waits == [0.1, 0.2] and requests[0] == requests[1] == requests[2]
    assert requests[0]["signature_name"] == "serving_raw"
    assert requests[0]["inputs"]["c"] == ["a", "bé"] and str(requests[0]["inputs"]["n"]) == "[5.0, nan]"
    with answering((503, "busy")) as (address, requests):
        one_line(*predict(address, "--input", log, "--model", model), "the server answers 503: busy")
    assert len(requests) == 4


def test_status_and_metadata(url):
    with RestClient(url + "/") as client:
        assert client.status()["model_version_status"][0]["version"] == "7"
        assert "serving_raw" in client.metadata()["metadata"]["signature_def"]["signature_def"]
        with pytest.raises(InputError, match="Missing named input: c"):
            client.predict({"n": [1.0]})
