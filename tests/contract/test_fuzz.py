"""tests.contract.fuzz sends random bodies to two servers and lists where their answers differ."""

import collections

import httpx
import pytest
from click.testing import CliRunner

from tests.contract import servers
from tests.contract.bodies import Bodies
from tests.contract.conftest import MODEL
from tests.contract.fuzz import Answer, differences, is_same, main


@pytest.mark.slow
def test_a_server_does_not_differ_from_itself(base_url):
    assert list(differences(base_url, base_url, Bodies(0), 200)) == []


def test_the_bodies_include_valid_and_refused_ones(base_url):
    statuses = collections.Counter()
    bodies = Bodies(1)
    with httpx.Client(base_url=base_url, trust_env=False) as client:
        for _ in range(400):
            method, body = bodies.next()
            statuses[client.post(f"{MODEL}:{method}", content=body).status_code] += 1
    assert set(statuses) <= {200, 400, 501} and min(statuses[200], statuses[400]) > 60


@pytest.mark.slow
@servers.ours_alone("two servers are started in this process")
def test_the_command_prints_where_two_servers_differ(addresses, model_folder):
    here = addresses.rest.removeprefix("http://")
    same = CliRunner().invoke(main, ["--against", here, "--bodies", "20"])  # it starts one of ours
    assert (same.exit_code, same.output) == (0, "20 bodies, 0 answered in two ways\n")
    with servers.start([f"--model_base_path={model_folder}", "--model_name=another"]) as other:
        there = other.rest.removeprefix("http://")
        found = CliRunner().invoke(main, ["--against", there, "--ours", here, "--bodies", "20"])
    assert found.exit_code == 1 and "Servable not found" in found.output and "20 bodies, " in found.output


OK = Answer(200, b'{"predictions": [1.0]}')


@pytest.mark.parametrize(
    ("sent", "ours", "theirs", "same"),
    [
        (b"{}", OK, OK, True),
        (b"{}", OK, Answer(200, b'{"predictions": [1]}'), False),
        (b"{}", OK, Answer(400, b'{"error": "no"}'), False),
        (b"{}", Answer(400, b'{"error": "no"}'), Answer(400, b'{"error": "other"}'), False),
        (b"{}", Answer(400, b'{"error": "no"}'), Answer(501, b'{"error": "no"}'), False),
        (b"{}", Answer(400, b'{"error": "\xef\xbf\xbd"}'), Answer(400, b'{"error": "\xff\xfe"}'), True),
        (b"{}", Answer(400, b'{"error": "1.2500000000000001"}'), Answer(400, b'{"error": "1.26"}'), False),
        (b"{}", Answer(400, b'{"error": "1.2500000000000001"}'), Answer(400, b'{"error": "1.25"}'), True),
        (b"{}", Answer(400, b'{"error": "in: a"}'), Answer(400, b'{"error": "in: goo.gle/debugproto   \\na"}'), True),
        (b'"mixed"', Answer(200, b'{"a": 1, "b": NaN}'), Answer(200, b'{"b": NaN, "a": 1}'), True),
        (b'"mixed"', Answer(200, b'{"a": 1}'), Answer(200, b'{"a": 2}'), False),
        (b'"mixed" inputs', Answer(400, b'{"error": "a"}'), Answer(501, b'{"error": "b"}'), True),
    ],
)
def test_only_arbitrary_differences_of_answers_are_ignored(sent, ours, theirs, same):
    assert is_same(sent, ours, theirs) is same
