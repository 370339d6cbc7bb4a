"""The REST client against servers that are busy, slow, gone or of another kind."""

import concurrent.futures
import email.utils
import socket
import threading
import time

import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import LabelSplit, RestClient
from tests.serving.small_servers import cut, floats, rest_server

HALF = (200, '{"outputs": [0.5]}')


def ask(url: str, **options) -> list[float]:
    with RestClient(url, **options) as client:
        return client.predict({"n": [1.0]})["ctr"].tolist()


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("ctrpipe.serving.client.rest_client.time.sleep", found.append)
    return found


def test_a_busy_server_is_asked_again_with_the_same_rows_later_each_time(waits):
    with rest_server((503, ""), (429, ""), (503, ""), HALF) as (url, posts):
        assert ask(url) == [0.5]
    assert [post.body for post in posts] == 4 * [{"signature_name": "serving_raw", "inputs": {"n": [1.0]}}]
    for wait, longest in zip(waits, (0.1, 0.2, 0.4), strict=True):
        assert longest / 2 <= wait <= longest


def test_the_waits_are_not_the_same_for_all_clients(waits):
    with rest_server((503, "busy")) as (url, posts):
        for _ in range(5):
            with pytest.raises(InputError, match="the server answers 503: busy"):
                ask(url, retries=1)
    assert len(posts) == 10 and len(set(waits)) == 5


def test_the_server_says_when_to_come_back(waits):
    with rest_server((503, "", {"Retry-After": "7"}), (429, "", {"Retry-After": "soon"}), HALF) as (url, _):
        assert ask(url) == [0.5]
    assert waits[0] == 7.0 and waits[1] <= 0.2
    waits.clear()
    date = email.utils.formatdate(time.time() + 10, usegmt=True)
    with rest_server((503, "", {"Retry-After": date}), HALF) as (url, _):
        assert ask(url) == [0.5]
    assert 8 <= waits[0] <= 10


def test_a_wait_that_ends_too_late_is_not_begun(waits):
    with rest_server((503, '{"error": "full"}', {"Retry-After": "7"})) as (url, posts):
        with pytest.raises(InputError, match="the server answers 503: full"):
            ask(url, timeout=5)
    assert len(posts) == 1 and waits == []


@pytest.mark.parametrize("status", [400, 404, 500, 501, 502, 504])
def test_other_answers_are_final(waits, status):
    with rest_server((status, '{"error": "no"}')) as (url, posts):
        with pytest.raises(InputError, match=f"the server answers {status}: no"):
            ask(url)
    assert len(posts) == 1 and waits == []


def test_a_connection_that_is_cut_is_made_again(waits):
    with rest_server(cut, HALF) as (url, posts):
        assert ask(url) == [0.5]
    assert len(posts) == 2
    with rest_server(cut) as (url, posts):
        with pytest.raises(InputError, match="is the server running"):
            ask(url, retries=2)
    assert len(posts) == 3


def test_a_server_that_is_not_there_yet_is_asked_again(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # nobody listens, until the first wait
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/models/ctr"
        with pytest.raises(InputError, match="is the server running"):
            ask(url, retries=0)
        thread = threading.Thread(target=_answer_one, args=(listener,))

        def start(seconds):
            listener.listen()
            thread.start()

        monkeypatch.setattr("ctrpipe.serving.client.rest_client.time.sleep", start)
        with pytest.raises(InputError, match="the server answers 418: tea"):
            ask(url)
        thread.join()


def _answer_one(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 418 x\r\nContent-Length: 3\r\n\r\ntea")


def test_the_timeout_is_for_all_tries():
    released = threading.Event()
    with rest_server((503, ""), lambda handler: released.wait(10)) as (url, posts):
        start = time.monotonic()
        with pytest.raises(InputError, match="no answer in 0.5 s"):
            ask(url, timeout=0.5)
        assert 0.4 < time.monotonic() - start < 2
        released.set()
    assert len(posts) == 2


def test_an_answer_in_drops_is_no_answer_in_time():
    released = threading.Event()

    def drip(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(1000):
            handler.wfile.write(b" ")
            if released.wait(0.05):
                break
        handler.close_connection = True

    with rest_server(drip) as (url, posts):
        start = time.monotonic()
        with pytest.raises(InputError, match="no answer in 0.3 s"):
            ask(url, timeout=0.3)
        assert time.monotonic() - start < 2
        released.set()
    assert len(posts) == 1


def test_an_answer_that_ends_early_is_asked_for_again(waits):
    def half(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"outputs"')
        handler.close_connection = True

    with rest_server(half, HALF) as (url, posts):
        assert ask(url) == [0.5]
    assert len(posts) == 2


def test_one_connection_serves_many_requests_and_threads_have_their_own():
    with rest_server(HALF) as (url, posts), RestClient(url) as client:
        for _ in range(5):
            client.predict({"n": [1.0]})
        assert len({post.connection for post in posts}) == 1
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda number: client.predict({"n": [float(number)]})["ctr"][0], range(200)))
        assert found == [0.5] * 200 and len({post.connection for post in posts}) <= 9
        assert sorted(post.body["inputs"]["n"][0] for post in posts[5:]) == list(range(200))


def test_outputs_are_float32_by_name_whether_the_answer_names_them_or_not():
    named = (200, '{"outputs": {"ctr": [0.5, NaN], "cvr": [0.25, 0.125]}}')
    with rest_server((200, '{"outputs": [0.5, 0.1]}'), named) as (url, _), RestClient(url) as client:
        first, second = client.predict({"n": [1.0, 2.0]}), client.predict({"n": [1.0, 2.0]})
    assert list(first) == ["ctr"] and first["ctr"].dtype == np.float32
    np.testing.assert_array_equal(first["ctr"], floats(0.5, 0.1))
    np.testing.assert_array_equal(second["ctr"], floats(0.5, np.nan))
    np.testing.assert_array_equal(second["cvr"], floats(0.25, 0.125))


def test_version_and_label_are_part_of_the_path():
    columns = {"n": [1.0]}
    with rest_server(HALF) as (url, posts):
        with RestClient(url + "/") as client:
            answers = [client.ask(columns), client.ask(columns, version=3), client.ask(columns, label="a b")]
        with RestClient(url + "/versions/3") as client:
            answers.append(client.ask(columns))
        with RestClient(url + "/labels/canary") as client:
            answers += [client.ask(columns), client.ask(columns, label="stable")]
    suffixes = ["", "/versions/3", "/labels/a%20b", "/versions/3", "/labels/canary", "/labels/stable"]
    assert [post.path for post in posts] == [f"/v1/models/ctr{suffix}:predict" for suffix in suffixes]
    assert [answer.version for answer in answers] == [None, 3, None, 3, None, None]
    assert [answer.label for answer in answers] == [None, None, "a b", None, "canary", "stable"]


def test_a_split_sends_the_same_user_to_the_same_label():
    split = LabelSplit({"stable": 1, "canary": 1})
    with rest_server(HALF) as (url, posts), RestClient(url, split=split) as client:
        answers = [client.ask({"n": [1.0]}, key=user % 10) for user in range(40)]
        with pytest.raises(InputError, match="it names a version or a label already"):
            RestClient(url + "/labels/stable", split=split)
    assert [answer.label for answer in answers] == [split.choose(user % 10) for user in range(40)]
    assert [post.path.split("/")[-1] for post in posts] == [f"{answer.label}:predict" for answer in answers]
    assert {answer.label for answer in answers} == {"stable", "canary"}


def test_the_version_that_answers_is_asked_by_its_number():
    with rest_server(HALF) as (url, posts), RestClient(url, label="canary", say_version=True) as client:
        answer = client.ask({"n": [1.0]})
    assert (answer.label, answer.version) == ("canary", 7)
    assert [post.path for post in posts] == ["/v1/models/ctr/versions/7:predict"]


@pytest.mark.parametrize(
    "body", ["[1]", "<html>", "", '{"outputs": [null]}', '{"outputs": [[1], [1, 2]]}', "[" * 10**5]
)
def test_an_answer_that_is_none_is_one_line(body):
    with rest_server((200, body)) as (url, _):
        with pytest.raises(InputError, match=f"^{url}: the answer [^\n]+$"):
            ask(url)


def test_status_of_something_else_is_one_line():
    with rest_server(HALF) as (url, _), RestClient(url) as client:
        with pytest.raises(InputError, match="the answer is not a status"):
            client.status()  # it answers METADATA to every GET
        assert client.version_of() == 7


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8501/v1/models/ctr",
        "no url",
        "http://:99999/v1/models/ctr",
        "ftp://127.0.0.1/v1/models/x",
        "http://x/y",
    ],
)
def test_what_is_no_url_is_one_line(url):
    with pytest.raises(InputError, match="not a URL like"):
        RestClient(url)
