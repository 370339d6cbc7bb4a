"""`python -m tests.contract.fuzz --against HOST:PORT`: compares the answers of two servers byte by byte.

The other server, say tensorflow_model_server, serves the folder of `python -m tests.contract.models FOLDER`.
"""

import contextlib
import json
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import click
import httpx

from ctrpipe.common.libraries import load_tensorflow
from tests.contract import models, servers
from tests.contract.bodies import SIGNATURES, Bodies

SHOWN = 10  # differences; and how much of a body and an answer
SHOWN_BYTES = 1000
TIMEOUT_SECONDS = 60
_SEVERAL_INPUTS = [name for name, inputs in SIGNATURES.items() if len(inputs) > 1]


class Answer(NamedTuple):
    status: int
    body: bytes

    def error(self) -> str:
        """Returns the error's text, 15 digits of each number (J9), and without protobuf's mark."""
        text = json.loads(self.body.decode("utf-8", "replace"))["error"] if self.body else ""
        text = re.sub(r"goo\.gle/debug\w+ *\n", "", text)
        text = re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda number: f"{float(number[0]):.15g}", text)
        return re.sub("\ufffd+", "\ufffd", text)

    def members(self) -> str:
        """Returns the JSON with its members sorted: TF Serving's order of several outputs is arbitrary."""
        return json.dumps(json.loads(self.body.decode("latin-1")), sort_keys=True)


class Difference(NamedTuple):
    """A body with different answers of two servers."""

    method: str
    sent: bytes
    ours: Answer
    theirs: Answer

    def __str__(self) -> str:
        lines = [f":{self.method} {self.sent[:SHOWN_BYTES]!r}"]
        for name, answer in (("ours", self.ours), ("theirs", self.theirs)):
            lines.append(f"  {name:<6} {answer.status} {answer.body[:SHOWN_BYTES]!r}")
        return "\n".join(lines)


def is_same(sent: bytes, ours: Answer, theirs: Answer) -> bool:
    """Returns whether two answers to a body are equal, except where TF Serving's answer is arbitrary."""
    if ours == theirs:
        return True
    several = any(b'"%b"' % name.encode() in sent for name in _SEVERAL_INPUTS)
    if 200 in (ours.status, theirs.status):
        return ours.status == theirs.status and several and ours.members() == theirs.members()
    if several and b"inputs" in sent:  # which of several inputs is read first, and its mistake told, is arbitrary
        return True
    return ours.status == theirs.status and ours.error() == theirs.error()


def differences(ours: str, theirs: str, bodies: Bodies, count: int) -> Iterator[Difference]:
    """Sends bodies to two servers; yields the differences.

    Args:
        ours: The URL of a server.
        theirs: The URL of another one.
        bodies: What is sent.
        count: How many.
    """
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=TIMEOUT_SECONDS))
            for url in (ours, theirs)
        ]
        for _ in range(count):
            method, sent = bodies.next()
            found = [client.post(f"/v1/models/{models.NAME}:{method}", content=sent) for client in clients]
            answers = [Answer(answer.status_code, answer.content) for answer in found]
            if not is_same(sent, *answers):
                yield Difference(method, sent, *answers)


@contextlib.contextmanager
def _server(address: str | None) -> Iterator[str]:
    """Yields the URL of a server: of `ctrpipe serve`, until the context ends, or the one at an address."""
    if address:
        yield f"http://{address}"
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models.save_all(folder)
        with servers.start(models.flags(folder)) as addresses:
            assert addresses.rest
            yield addresses.rest


@click.command()
@click.option("--against", required=True, metavar="HOST:PORT", help="REST of the other server.")
@click.option("--ours", default=None, metavar="HOST:PORT", help="Default: `ctrpipe serve`, started here.")
@click.option("--bodies", "count", default=20_000, show_default=True, help="How many.")
@click.option("--seed", default=0, show_default=True, help="The same seed sends the same.")
def main(against: str, ours: str | None, count: int, seed: int) -> None:
    """Send the same bodies to two servers and print where they differ; exit code 1 if they do."""
    load_tensorflow()
    found = 0
    with _server(ours) as url:
        for difference in differences(url, f"http://{against}", Bodies(seed), count):
            found += 1
            if found <= SHOWN:
                click.echo(str(difference))
    click.echo(f"{count} bodies, {found} answered in two ways")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
