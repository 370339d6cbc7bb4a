"""Fuzzed REST requests, with a valid one after each connection."""

import json
import time

from tests.fuzz.connection import LIMIT_SECONDS, Connection, Fault, judge, play
from tests.fuzz.rest_requests import MODEL, Script, Sent, request, scripts
from tests.fuzz.rounds import Outcome, run_round

_GOOD = Sent(request(json.dumps({"instances": [1.0, -2.0]}).encode(), f"{MODEL}:predict"), {"predictions": [2.5, 1.0]})


def rest_round(address: tuple[str, int], number: int, examples: int) -> Outcome:
    """Opens this many connections with up to eight requests each; in between the server answers a valid one."""

    def send(script: Script) -> list[int]:
        try:
            statuses = play(address, script)
        except OSError as error:
            raise Fault(f"the connection broke: {error}") from error
        ask_good(address)
        return statuses

    return run_round(number, examples, scripts(), send)


def ask_good(address: tuple[str, int]) -> int:
    """Returns the status of a valid request. Raises Fault if the answer is wrong."""
    try:
        with Connection(address) as connection:
            connection.send(_GOOD.data)
            answer = connection.response(time.monotonic() + LIMIT_SECONDS)
    except OSError as error:
        raise Fault(f"after it, a right request: {error}") from error
    if answer is None:
        raise Fault("after it, a right request was not answered")
    return judge(_GOOD, *answer)
