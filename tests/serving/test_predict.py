"""`ctrpipe predict` against our server and against servers that answer something else."""

import json
import pathlib
import socket

import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import LabelSplit, RestClient, VersionStatus
from ctrpipe.serving.server import ServerOptions, running_server
from tests.e2e.small_run import call, one_line
from tests.serving.small_servable import probability, save, spec
from tests.serving.small_servers import GrpcServer, floats, grpc_server, rest_server

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


def predict(url: str, *arguments) -> tuple[int, str]:
    return call("predict", "--url", url, *arguments)


def printed(output: str) -> list[tuple[int, float]]:
    rows = [line.split("\t") for line in output.splitlines() if "\t" in line]
    return [(int(row), float(value)) for row, value in rows]


def expected(count: int) -> list[tuple[int, float]]:
    return [(row + 1, pytest.approx(probability(*ROWS[row]), abs=1e-6)) for row in range(count)]


def test_the_format_comes_from_the_server_the_model_or_the_configuration(url, model, log, tmp_path):
    config = {"name": "x", "model": {"name": "lr"}, **spec().model_dump(mode="json", exclude_none=True)}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    for source in ([], ["--model", model], ["--model", model / "7"], ["--config", tmp_path / "config.yaml"]):
        code, output = predict(url, "--input", log, "--rows", 3, *source)
        assert code == 0 and printed(output) == expected(3)
        assert len(output.splitlines()) == 3


def test_explanations_follow_their_rows_over_rest_and_grpc(log, tmp_path):
    base = save(tmp_path / "ctr" / "1", spec(), explains=True).parent
    with running_server(ServerOptions(base, "ctr")) as addresses:
        asked = ["--input", log, "--rows", 2, "--explain"]
        code, rest = predict(f"{addresses.rest}/v1/models/ctr", *asked)
        assert code == 0 and (code, rest) == call("predict", "--grpc", addresses.grpc, *asked)
    assert printed(rest) == expected(2)
    assert f"{log}:1: probability 0.5374; logit +0.1500, that of the baseline -0.0100; integrated gradients" in rest
    bars = [line.split() for line in rest.splitlines() if "+0.1000" in line or "+0.0600" in line or "+0.3000" in line]
    assert [bar[1:6:2] for bar in bars] == [["c", "a", "+0.1000"], ["n", "5", "+0.0600"], ["c", "bé", "+0.3000"]]
    assert [bar[7] for bar in bars] == ["+" * 24, "+" * 14, "+" * 24]
    assert "(missing)" in rest


def test_a_model_that_explains_nothing_is_one_line(url, log):
    one_line(*predict(url, "--input", log, "--explain"), "the model explains its answers where serving.explain is true")


def test_fewer_rows_than_asked_for_are_printed_and_said(url, log):
    code, output = predict(url, "--input", log, "--rows", 9)
    assert code == 0 and printed(output) == expected(4)
    assert f"{log} has 4 good rows, fewer than the 9 asked for" in output


def test_malformed_rows_are_passed_over_and_said(url, log):
    lines = LOG.splitlines()
    log.write_text("\n".join(["bad", *lines[:2], "1\tx\ty", *lines[2:], "worse"]))
    code, output = predict(url, "--input", log, "--rows", 3)
    assert code == 0 and [row for row, _ in printed(output)] == [2, 3, 5]
    assert "2 malformed rows were skipped; the first is line 1: expected 3 columns, found 1" in output
    log.write_text("bad\nworse\n")
    one_line(*predict(url, "--input", log), "no good row in it")


def test_many_rows_travel_in_several_requests(url, log, monkeypatch):
    monkeypatch.setattr("ctrpipe.serving.client.predict_rows.BATCH", 7)
    monkeypatch.setattr("ctrpipe.transforms.log.lines.CHUNK_BYTES", 60)
    log.write_text("".join(f"1\t{row}\t\n" for row in range(50)))
    code, output = predict(url, "--input", log, "--rows", 40)
    assert code == 0
    assert printed(output) == [(row + 1, pytest.approx(probability(row, ""), abs=1e-6)) for row in range(40)]


def test_what_cannot_be_used_is_one_line(url, model, log, tmp_path):
    one_line(*predict(url, "--input", tmp_path / "absent"), "no such file")
    one_line(*predict(url, "--input", log, "--model", tmp_path), "no model version here")
    one_line(*predict(url, "--input", log, "--config", tmp_path / "absent.yaml"), "cannot read the configuration")
    one_line(*predict(url[:-3] + "other", "--input", log), "the server answers 404: Servable not found")
    one_line(*predict(url + "/versions/1", "--input", log), "Specific(ctr, 1)")
    for address in ("127.0.0.1:8501/v1/models/ctr", "no url", "http://:99999", "http://a..b/v1/models/ctr"):
        one_line(*predict(address, "--input", log), f"{address}: ")
    one_line(*call("predict", "--input", log), "Give --url http://HOST:PORT/v1/models/NAME, or --grpc HOST:PORT")
    one_line(*predict(url, "--grpc", "127.0.0.1:1", "--input", log), "or --grpc HOST:PORT")
    one_line(*predict(url, "--model_name", "ctr", "--input", log), "--model_name applies to --grpc")
    one_line(*predict(url, "--label", "a", "--label-weights", "a=1", "--input", log), "not both")
    one_line(*predict(url, "--label-weights", "a", "--input", log), "write them as stable=95,canary=5")
    one_line(*predict(url, "--key", "c", "--input", log), "--key needs --label-weights")
    weights = ["--label-weights", "a=1", "--key", "d"]
    one_line(*predict(url, "--input", log, "--model", model, *weights), "--key d: no column of the model; it has n, c")


def test_a_server_that_is_not_there_is_one_line(log, monkeypatch):
    monkeypatch.setattr("ctrpipe.serving.client.rest_client.time.sleep", lambda seconds: None)
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
        (200, "<html>hello</html>", "the answer is not a JSON object"),
        (200, "", "the answer is not a JSON object"),
        (200, "[1, 2]", "the answer is not a JSON object"),
        (200, '{"predictions": [1]}', "the answer has no 'outputs'"),
        (200, '{"outputs": [0.5]}', "the answer holds no probability of 'ctr' for each row"),
        (200, '{"outputs": {"other": [0.5, 0.5]}}', "the answer holds no probability of 'ctr' for each row"),
        (200, '{"outputs": ["a", "b"]}', "the answer holds no probability of 'ctr' for each row"),
        (200, '{"outputs": 0.5}', "the answer holds no probability of 'ctr' for each row"),
        (200, '{"outputs": null}', "the answer holds no tensor"),
    ],
)
def test_a_bad_answer_is_one_line(model, log, status, body, message):
    with rest_server((status, body)) as (address, _):
        one_line(*predict(address, "--input", log, "--rows", 2, "--model", model), message)


@pytest.mark.parametrize("outputs", ["[1]", "[]", '["{}"]', '{"log_spec": ["nothing"]}', '{"other": []}', '"x"'])
def test_a_server_that_does_not_know_the_log_is_one_line(log, outputs):
    with rest_server((200, f'{{"outputs": {outputs}}}')) as (address, _):
        one_line(*predict(address, "--input", log), "give --model or --config")


def test_a_client_whose_row_came_second_in_a_batch_asks_again(model, log):
    description = json.dumps({"outputs": [(model / "7" / "assets.extra" / "log_spec.json").read_text()]})
    answers = (200, '{"outputs": [""]}'), (200, '{"outputs": [""]}'), (200, description), (200, '{"outputs": [0.25]}')
    with rest_server(*answers) as (address, posts):
        code, output = predict(address, "--input", log, "--rows", 1)
    assert code == 0 and printed(output) == [(1, 0.25)]
    assert [post.body["signature_name"] for post in posts] == ["log_spec"] * 3 + ["serving_raw"]


def test_a_server_that_says_nothing_of_the_log_is_one_line(log, monkeypatch):
    monkeypatch.setattr("ctrpipe.serving.client.predict_rows.time.sleep", lambda seconds: None)
    with rest_server((200, '{"outputs": [""]}')) as (address, posts):
        one_line(*predict(address, "--input", log), "give --model or --config")
    assert len(posts) == 20


def test_a_model_without_the_signature_gets_the_hint(log):
    message = '{"error": "Serving signature name: \\"log_spec\\" not found in signature def"}'
    with rest_server((400, message)) as (address, _):
        one_line(*predict(address, "--input", log), "not found in signature def; give --model or --config")


def test_rows_travel_as_the_log_has_them(model, log):
    with rest_server((200, '{"outputs": [0.25, 0.5]}')) as (address, posts):
        code, output = predict(address, "--input", log, "--rows", 2, "--model", model)
    assert code == 0 and printed(output) == [(1, 0.25), (2, 0.5)]
    assert posts[0].body["signature_name"] == "serving_raw"
    assert posts[0].body["inputs"]["c"] == ["a", "bé"] and str(posts[0].body["inputs"]["n"]) == "[5.0, nan]"


def test_verbose_says_which_version_answered(url, log):
    code, output = predict(url, "--input", log, "--rows", 1, "--verbose")
    assert code == 0 and output.split() == ["1", f"{probability(*ROWS[0]):.6f}", "-", "7"]
    one_line(*predict(url, "--input", log, "--label", "canary"), "Unrecognized servable version label: canary")


def test_rows_are_divided_between_labels_and_stay_with_their_user(model, log):
    log.write_text("".join(f"1\t{row}\t{'user' + str(row % 20)}\n" for row in range(200)))

    def echo(handler):  # the row's number, as a probability
        numbers = posts[-1].body["inputs"]["n"]
        handler.answer(200, f'{{"outputs": {[number / 1000 for number in numbers]}}}')

    with rest_server(echo) as (address, posts):
        options = ["--input", log, "--rows", 200, "--model", model, "--label-weights", "stable=50,canary=50"]
        code, output = predict(address, *options, "--key", "c", "--verbose")
    rows = [line.split("\t") for line in output.splitlines()]
    assert code == 0 and [(int(row), float(value)) for row, value, *_ in rows] == [
        (n + 1, n / 1000) for n in range(200)
    ]
    split = LabelSplit.parse("stable=50,canary=50")
    assert [label for _, _, label, _ in rows] == [split.choose(f"user{row % 20}") for row in range(200)]
    assert {label for _, _, label, _ in rows} == {"stable", "canary"} and len(posts) == 2


def test_over_grpc(model, log):
    servicer = GrpcServer({"ctr": floats(0.25, 0.5)})
    with grpc_server(servicer) as address:
        options = ["--grpc", address, "--input", log, "--rows", 2, "--model", model]
        code, output = call("predict", *options, "--label", "canary", "--verbose")
        assert code == 0 and output.splitlines() == ["1\t0.250000\tcanary\t7", "2\t0.500000\tcanary\t7"]
        assert call("predict", *options, "--model_name", "other")[0] == 0
    first, second = servicer.requests
    assert (first.model_spec.name, first.model_spec.version_label) == ("ctr", "canary")
    assert (second.model_spec.name, second.model_spec.version_label) == ("other", "")
    assert list(first.inputs["c"].string_val) == [b"a", "bé".encode()]
    one_line(*call("predict", "--grpc", "nowhere", "--input", log), "not an address like 127.0.0.1:8500")


def test_status_and_metadata(url):
    with RestClient(url + "/") as client:
        assert client.status() == [VersionStatus(7, "AVAILABLE")]
        assert "serving_raw" in client.metadata()["metadata"]["signature_def"]["signature_def"]
        assert client.version_of() == 7
        with pytest.raises(InputError, match="Missing named input: c"):
            client.predict({"n": [1.0]})
