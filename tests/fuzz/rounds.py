"""Rounds of Hypothesis's examples, in processes: each has its own seed, and ends with the smallest fault."""

import collections
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st


@dataclasses.dataclass
class Outcome:
    """The outcome of a round.

    Attributes:
        seed: With which it can be done again.
        requests: How many were sent.
        answers: Of these, how many were answered with what.
        seconds: How long it took.
        slowest: Seconds of the slowest example.
        fault: The smallest example that shows a fault, and the fault; "" where there is none.
    """

    seed: int
    requests: int = 0
    answers: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0
    slowest: float = 0.0
    fault: str = ""


def run_round(number: int, examples: int, strategy: st.SearchStrategy, judge: Callable[[Any], list[Any]]) -> Outcome:
    """Draws and checks `examples` examples.

    Args:
        number: The seed.
        examples: How many are drawn; after a fault further ones look for a smaller one.
        strategy: What they are drawn from.
        judge: Sends an example and returns what each of its requests was answered with; an AssertionError is a fault.
    """
    outcome = Outcome(number)
    started = time.perf_counter()
    first = ""

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,  # each request has a limit of its own
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(strategy)
    def examine(example: Any) -> None:
        nonlocal first
        began = time.perf_counter()
        try:
            answers = judge(example)
        except AssertionError as error:
            first = first or f"{error}\nin {example!r}"
            raise AssertionError(f"{error}\nin {example!r}") from None
        outcome.slowest = max(outcome.slowest, time.perf_counter() - began)
        outcome.requests += max(1, len(answers))  # one that nobody waits for has no answer
        outcome.answers.update(answers)

    try:
        examine()
    except AssertionError as error:
        outcome.fault = str(error)
    except BaseExceptionGroup:  # it did not fail again: what was seen is all there is
        outcome.fault = f"{first}\n(not again when repeated)"
    except Exception as error:
        outcome.fault = f"{first}\n({type(error).__name__}: {error})"
    outcome.seconds = time.perf_counter() - started
    return outcome
