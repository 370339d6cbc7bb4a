"""Finds times other than the rows' own, such as birthdays and clicks, which `ctrpipe init` leaves out."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ctrpipe.pipeline.draft.roles import TIME_END, is_outcome
from ctrpipe.transforms.log.epochs import seconds_of_column
from ctrpipe.transforms.log.kinds.guess import Guess
from ctrpipe.transforms.log.ordering import moments_of
from ctrpipe.transforms.log.strange_times import are_after, passing_gives_away

# A time that says when something else happened than the row: a log is not divided by it.
OTHER_TIME = re.compile(
    r"birth|dob|born|sign_?up|register|regist|joined|release|publish|expir|install|first|last|member|account|update",
    re.IGNORECASE,
)
_BIRTH = re.compile(r"birth|born|(^|_)dob(_|$)", re.IGNORECASE)
_YEAR = 365 * 86_400.0  # seconds
_WIDER = 10  # times the span of the rows' own times


def other_times(columns: Mapping[str, Sequence[str]], guesses: Mapping[str, Guess]) -> dict[str, Guess]:
    """Returns a guess that leaves the column out, for each column with times of other events.

    These are birthdays, and times that span more than a year if the column has a name such as `signup`, or if the log
    has another column of times that spans less than a tenth as long.

    Args:
        columns: The values by column.
        guesses: The kind of each column.
    """
    formats = {
        name: str(guess.settings.get("format", "auto"))
        for name, guess in guesses.items()
        if guess.settings.get("kind") == "time"
    }
    ends = {name: _ends(columns[name], time_format) for name, time_format in formats.items()}
    spans = {name: last - first for name, (first, last) in ends.items()}
    own = min((span for name, span in spans.items() if not OTHER_TIME.search(name)), default=np.inf)
    return {
        name: _left_out(name, ends[name])
        for name, span in spans.items()
        if _BIRTH.search(name) or (span > _YEAR and (OTHER_TIME.search(name) or span > _WIDER * own))
    }


def times_after(
    columns: Mapping[str, Sequence[str]], guesses: Mapping[str, Guess], clicks: Sequence[float]
) -> dict[str, Guess]:
    """Returns a guess for each column whose times are never earlier than another column's.

    The column is left out if it is named after a click or a later event, or if the time between the two columns gives
    the label away. Otherwise the time may be planned, such as a departure, and the user is asked, except about
    times after those of another event, such as a signup.

    Args:
        columns: The values by column.
        guesses: The kind of each column.
        clicks: The label of each row, 0 to 1.
    """
    moments = {
        name: moments_of(_words(columns[name]), str(guess.settings.get("format", "auto")))
        for name, guess in guesses.items()
        if guess.settings.get("kind") == "time"
    }
    changed: dict[str, Guess] = {}
    for name, own in itertools.permutations(moments, 2):
        if own in changed or not are_after(moments[name], moments[own]):
            continue
        text = passing_gives_away(moments[name], moments[own], np.asarray(clicks, np.float64))
        told = f"times after those of {own}"
        if text or is_outcome(TIME_END.sub("", name)):
            why = f"the time between both: {text}" if text else "of what follows the click, by its name"
            changed[name] = Guess({}, f"{told}; {why}: left out, as no request has it", True)
        elif name not in changed and not OTHER_TIME.search(own):
            comment = f"{guesses[name].comment.removesuffix('?')}; {told}: are they known when the row is shown?"
            changed[name] = dataclasses.replace(guesses[name], comment=comment, unsure=True)
    return changed


def seconds_of(values: Sequence[str], time_format: str) -> np.ndarray:
    """Returns the seconds since 1970 of some times, NaN for those that cannot be read."""
    return seconds_of_column(_words(values), time_format)


def _words(values: Sequence[str]) -> pa.Array:
    return pa.array([value.encode() for value in values], pa.binary())


def _ends(values: Sequence[str], time_format: str) -> tuple[float, float]:
    """Returns the seconds since 1970 between which 90% of some times lie; 0 and 0 if none can be read."""
    seconds = seconds_of(values, time_format)
    known = seconds[~np.isnan(seconds)]
    if not len(known):
        return 0.0, 0.0
    first, last = np.quantile(known, [0.05, 0.95])
    return float(first), float(last)


def _left_out(name: str, ends: tuple[float, float]) -> Guess:
    first, last = (int(np.datetime64(int(end), "s").astype("datetime64[Y]").astype(int)) + 1970 for end in ends)
    of_years = f"of {first}" if first == last else f"of {first} to {last}"
    told = f"dates {of_years}, which are not the rows' own: a model would read their hour and weekday alone"
    return Guess({}, f"{told}: left out; write the age, such as days before the row, as a number", True)
