"""A small model behind a server, the calls to it, and at the end of `make contract` the table of items."""

import collections
import json
import os

import httpx
import pytest

from tests.contract import models, servers
from tests.contract.items import items_of, read_items

MODEL = f"/v1/models/{models.NAME}"


@pytest.fixture(scope="session")
def contract_folder(shared_folder):
    """The folder of `models.save_all`."""
    return shared_folder("contract", models.save_all)


@pytest.fixture(scope="session")
def addresses(contract_folder):
    """The shared server: /v1/models/m, version 123."""
    flags = [] if servers.URL else models.flags(contract_folder)
    with servers.shared(flags) as found:
        yield found


@pytest.fixture(scope="session")
def base_url(addresses):
    return addresses.rest


@pytest.fixture(scope="session")
def model_folder(contract_folder):
    """A base path with version 123, for servers with flags of their own."""
    return contract_folder / models.NAME


def caller(url):
    """call(method, path, body) -> (status, JSON or text); and the client to close."""
    client = httpx.Client(base_url=url, trust_env=False, timeout=60)

    def call(method, path, body=None, **headers):
        answer = client.request(method, path, content=body, headers=headers)
        try:
            return answer.status_code, answer.json()
        except ValueError:
            return answer.status_code, answer.text

    return call, client


@pytest.fixture(scope="session")
def call(base_url):
    call, client = caller(base_url)
    with client:
        yield call


@pytest.fixture(scope="session")
def predict(call):
    """predict(body, suffix) -> (status, JSON)."""

    def predict(body, suffix=":predict"):
        return call("POST", MODEL + suffix, body if isinstance(body, str | bytes) else json.dumps(body))

    return predict


@pytest.fixture(scope="session")
def error(predict):
    """error(body, suffix) -> (status, message)."""

    def error(body, suffix=":predict"):
        status, answer = predict(body, suffix)
        assert status != 200 and set(answer) == {"error"}, answer
        return status, answer["error"]

    return error


def pytest_terminal_summary(terminalreporter):
    if not os.environ.get("CTRPIPE_CONTRACT_TABLE"):
        return
    outcomes = collections.defaultdict(collections.Counter)
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            is_ours = outcome == "skipped" and servers.OURS_ALONE in str(report.longrepr)
            for item in items_of(report.nodeid.rpartition("::")[2]):
                outcomes[item][servers.OURS_ALONE if is_ours else outcome] += 1
    terminalreporter.section("contract")
    for code, item in read_items().items():
        if item.is_advice:
            continue
        found = outcomes[code]
        order = ("failed", "error", "passed", "skipped", servers.OURS_ALONE)
        verdict = next((name for name in order if found[name]), "no test")
        counts = ", ".join(f"{count} {name}" for name, count in found.items())
        terminalreporter.write_line(f"{code:<4} {item.section:<32} {verdict:<10} {counts}")
