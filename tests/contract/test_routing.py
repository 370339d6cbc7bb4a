"""Routes and HTTP (R1-R15)."""

import email.utils
import gzip
import http.client
import socket
import time
import urllib.parse

import pytest

from tests.contract import servers
from tests.contract.conftest import MODEL, caller
from tests.contract.models import NAME

BODY = '{"instances": [1.0, 5.0]}'
ANSWER = (200, {"predictions": [2.5, 4.5]})
NOT_CONVERTED = (400, "")


@pytest.mark.parametrize(
    "suffix", [":predict", "/versions/123:predict", "/versions/00123:predict", "/Versions/123:predict"]
)
def test_R1_predict_by_name_and_version(call, suffix):
    assert call("POST", MODEL + suffix, BODY) == ANSWER
    assert call("POST", MODEL.replace("/v1/models", "/V1/Models") + suffix, BODY) == ANSWER


@pytest.mark.parametrize("method", [":PREDICT", ":Classify", ":rEgress"])
def test_R1_the_method_is_in_lower_case(call, method):
    assert call("POST", MODEL + method, BODY) == (400, {"error": f"Malformed request: POST {MODEL}{method}"})


def test_R2_status_and_metadata_by_name_and_version(call):
    for path in (MODEL, f"{MODEL}/versions/123"):
        assert "model_version_status" in call("GET", path)[1]
        assert "model_spec" in call("GET", f"{path}/metadata")[1]
        assert "model_version_status" in call("GET", f"{path}/Metadata")[1]


def test_R3_names_are_decoded_after_matching(call):
    assert call("POST", f"/v1/models/%{ord(NAME):x}:predict", BODY) == ANSWER
    found = call("POST", "/v1/models/a%2Fb%3A:predict", BODY)
    assert found == (404, {"error": "Servable not found for request: Latest(a/b:)"})
    found = call("POST", f"{MODEL}/labels/a%20b:predict", BODY)
    assert found == (400, {"error": "Unrecognized servable version label: a b"})


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/"), ("GET", "/v1/other"), ("POST", "/v1/models/")])
def test_R4_what_matches_no_route_is_malformed(call, method, path):
    assert call(method, path, "{}") == (400, {"error": f"Malformed request: {method} {path}"})


@pytest.mark.parametrize("path", ["/", "/v2/models/m", "/v1", "/favicon.ico"])
def test_R5_other_paths_are_no_json(call, path):
    status, answer = call("GET", path)
    assert status == 404 and isinstance(answer, str) and "404 Not Found" in answer


def test_R6_the_query_is_part_of_the_path(call):
    found = call("POST", f"{MODEL}:predict?x=1", BODY)
    assert found == (400, {"error": f"Malformed request: POST {MODEL}:predict?x=1"})


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_R7_other_methods_are_malformed(call, method):
    assert call(method, f"{MODEL}:predict", "{}") == (400, {"error": f"Malformed request: {method} {MODEL}:predict"})


def test_R7_head_is_malformed(base_url):
    call, client = caller(base_url)  # a connection of its own: libevent sends a body, and the next answer after it
    with client:
        assert call("HEAD", MODEL)[0] == 400


@servers.ours_alone("libevent sends the error after the headers of an answer to HEAD")
def test_R7_an_answer_to_head_has_no_body(base_url):
    url = urllib.parse.urlsplit(base_url)
    with socket.create_connection((url.hostname, url.port), 10) as connection:
        connection.sendall(f"HEAD {MODEL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    assert received.endswith(b"\r\n\r\n") and received.count(b"\r\n\r\n") == 1


def test_R8_a_preflight_needs_an_origin(call):
    assert call("OPTIONS", MODEL, Origin="http://a.b") == (200, "")
    assert call("OPTIONS", MODEL, Origin="https://a.b") == (200, "")
    assert call("OPTIONS", MODEL, Origin="null, https://a.b") == (200, "")
    assert call("OPTIONS", MODEL, Origin="a.b") == (400, "")
    assert call("OPTIONS", MODEL) == (400, "")


def test_R9_cors_headers_only_with_the_flag(model_folder, base_url):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base_url).netloc)
    connection.request("GET", MODEL)
    assert not [name for name, _ in connection.getresponse().getheaders() if name.lower().startswith("access-control")]
    connection.close()
    flags = [f"--model_base_path={model_folder}", f"--model_name={NAME}", "--rest_api_enable_cors_support"]
    with servers.start(flags) as addresses:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(addresses.rest).netloc)
        connection.request("OPTIONS", MODEL, headers={"Origin": "http://a.b"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert answer.headers["Access-Control-Allow-Methods"] == "POST, GET"
        assert answer.headers["Access-Control-Allow-Headers"] == "Content-Type"
        connection.close()


def test_R10_json_whatever_the_request_says_it_is(base_url):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base_url).netloc)
    for body, status in ((BODY, 200), ("{", 400)):
        connection.request("POST", f"{MODEL}:predict", body, {"Content-Type": "text/html"})
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
    connection.close()


def test_R11_gzip_bodies(base_url):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base_url).netloc)
    headers = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    connection.request("POST", f"{MODEL}:predict", gzip.compress(BODY.encode()), headers)
    answer = connection.getresponse()
    assert b"4.5" in answer.read() and answer.headers["Content-Encoding"] is None
    packed = gzip.compress(BODY.encode())
    for broken in (packed[:-1], packed[:-8] + bytes(8), packed + b"x", packed + packed, b"no gzip", packed[:5], b""):
        connection.request("POST", f"{MODEL}:predict", broken, headers)
        answer = connection.getresponse()
        assert answer.status == 400 and b"JSON Parse error: The document is empty" in answer.read(), broken
    connection.close()


def test_R12_versions_over_int64_have_an_empty_body(call):
    for version in (2**63, "9" * 5000):
        assert call("POST", f"{MODEL}/versions/{version}:predict", BODY) == NOT_CONVERTED
    assert call("POST", f"{MODEL}/versions/{2**63}:PREDICT", BODY) == NOT_CONVERTED
    assert call("GET", f"{MODEL}/versions/{2**63}") == NOT_CONVERTED
    assert call("GET", f"{MODEL}/versions/{2**63}/metadata") == NOT_CONVERTED


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{MODEL}/versions/abc:predict"),
        ("POST", f"{MODEL}/version/1:predict"),
        ("POST", f"{MODEL}/label/x:predict"),
        ("POST", f"{MODEL}/versions/1/labels/x:predict"),
        ("GET", f"{MODEL}:predict"),
        ("POST", f"{MODEL}/metadata"),
        ("POST", "/v1/models"),
    ],
)
def test_R13_near_misses_are_malformed(call, method, path):
    assert call(method, path, "{}") == (400, {"error": f"Malformed request: {method} {path}"})


def test_R14_no_list_of_models(call):
    assert call("GET", "/v1/models") == (400, {"error": "Missing model name in request."})


@servers.ours_alone("the harness gives a binary two ports")
def test_R15_rest_is_off_by_default_and_not_on_the_port_of_grpc(model_folder, caplog):
    from ctrpipe.serving.server.options import parse_flags
    from ctrpipe.serving.server.run import _rest_port

    flags = [f"--model_base_path={model_folder}", f"--model_name={NAME}"]
    assert _rest_port(parse_flags(flags)) is None
    assert _rest_port(parse_flags([*flags, "--rest_api_port=8501"])) == 8501
    assert _rest_port(parse_flags([*flags, "--rest_api_port=8500"])) is None
    assert "cannot be same as --port" in caplog.text


def raw(base_url, line):
    """The status, the headers and the body of the answer to a request line."""
    url = urllib.parse.urlsplit(base_url)
    with socket.create_connection((url.hostname, url.port), 10) as connection:
        connection.sendall(line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = http.client.HTTPResponse(connection, method=line.partition(b" ")[0].decode())
        answer.begin()
        return answer.status, answer.headers, answer.read().decode()


PAGE = "<HTML><HEAD>\n<TITLE>{0} {1}</TITLE>\n</HEAD><BODY>\n<H1>{1}</H1>\n</BODY></HTML>\n"


@pytest.mark.parametrize("method", ["TRACE", "PROPFIND", "LOCK", "REPORT"])
@pytest.mark.parametrize("path", [MODEL, "/v1/other", "/other"])
def test_R16_other_methods_are_not_implemented(base_url, method, path):
    status, headers, body = raw(base_url, f"{method} {path}".encode())
    assert (status, headers["Content-Type"], body) == (501, "text/html", PAGE.format(501, "Not Implemented"))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/a{b}",
        "/v1/models/100%",
        "/v1/models/%4x:predict",
        "/v1/models/m|n/metadata",
        '/v1/"',
        "/a^b",
        "/v1/a\\b",
    ],
)
def test_R16_a_path_that_is_no_uri_is_a_bad_request(base_url, path):
    for method in ("GET", "POST", "PUT"):
        status, headers, body = raw(base_url, f"{method} {path}".encode())
        assert (status, headers["Content-Type"], body) == (400, "text/html", PAGE.format(400, "Bad Request"))


@pytest.mark.parametrize("name", ["a-b._~", "!$&'()*+,;=@", "%C3%A9%20"])
def test_R16_every_other_name_is_looked_for(call, name):
    found = call("POST", f"/v1/models/{name}:predict", BODY)
    decoded = urllib.parse.unquote(name)
    assert found == (404, {"error": f"Servable not found for request: Latest({decoded})"})


@pytest.mark.parametrize("line", [b"GET /v1/models/m", b"GET /", b"TRACE /", b"POST /v1/models/m:predict"])
def test_R16_every_answer_has_a_date(base_url, line):
    _, headers, _ = raw(base_url, line)
    sent = email.utils.parsedate_to_datetime(headers["Date"])
    assert headers["Date"].endswith(" GMT") and abs(sent.timestamp() - time.time()) < 5


def test_requests_in_one_connection_are_answered_in_their_order(base_url):
    url = urllib.parse.urlsplit(base_url)
    request = "POST {}:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}"
    bodies = [f'{{"instances": [{number}]}}' for number in range(40)]
    with socket.create_connection((url.hostname, url.port), 10) as connection:
        connection.sendall("".join(request.format(MODEL, len(body), body) for body in bodies).encode())
        received = b""
        while received.count(b"predictions") < 40:
            part = connection.recv(1 << 16)
            assert part
            received += part
    positions = [received.index(f"[{number / 2 + 2}\n".encode()) for number in range(40)]
    assert positions == sorted(positions)


def test_chunked_bodies(call):
    def parts():
        yield b'{"instances": '
        yield b"[1.0, 5.0]}"

    assert call("POST", f"{MODEL}:predict", parts()) == ANSWER


def test_an_unexpected_client_does_not_stop_the_server(base_url, call):
    url = urllib.parse.urlsplit(base_url)
    for raw in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\n"):
        with socket.create_connection((url.hostname, url.port), 10) as connection:
            connection.sendall(raw)
    assert call("POST", f"{MODEL}:predict", BODY) == ANSWER
