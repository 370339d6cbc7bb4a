"""Finds the column that groups rows, such as a session or a user, for the split of `ctrpipe init`."""

import dataclasses
import re
import statistics

from ctrpipe.transforms.log.sample import LogSample

# A number without an id in its name may be a count, as of impressions; a query repeats from session to session.
_ID = r"_?(id|key|hash|uuid|guid)"
_SESSION = re.compile(
    rf"(session|sess)({_ID})?|(visit|request|req|impression|imp|display|auction|basket|cart|search|srch){_ID}",
    re.IGNORECASE,
)
_USER = re.compile(
    rf"(user|uid|member|customer|cust|visitor|client|account|person|patient|cookie|viewer|buyer)({_ID})?", re.IGNORECASE
)
_FEWEST = 20  # groups of several rows
_LEAST_ROWS = 1.5  # of a group, on average
_SCATTERED = 0.2  # of the log, between the first and the last row of a group


@dataclasses.dataclass(frozen=True)
class Group:
    """A column whose values group rows.

    Attributes:
        column: Its name.
        is_scattered: Whether the rows of one session are spread over the log. The log is then not in the order of time.
    """

    column: str
    is_scattered: bool


def is_session(name: str) -> bool:
    """Returns whether a column's name is a session's or a request's, whose values do not recur."""
    return _SESSION.fullmatch(name.rsplit(".", 1)[-1]) is not None


def group_of(sample: LogSample, label: str) -> Group | None:
    """Returns the column of sessions, otherwise the column of users; None if the log has neither.

    In a log sorted by time, the rows of a session are close together, and the rows of a user are not.

    Args:
        sample: The first rows of a log.
        label: The label's column.
    """
    for pattern in (_SESSION, _USER):
        for name, values in sample.columns.items():
            if name == label or name in sample.lists or not pattern.fullmatch(name.rsplit(".", 1)[-1]):
                continue
            places: dict[str, list[int]] = {}
            for row, value in enumerate(values):
                if value:
                    places.setdefault(value, []).append(row)
            several = [rows for rows in places.values() if len(rows) > 1]
            if len(several) < _FEWEST or sum(map(len, places.values())) < _LEAST_ROWS * len(places):
                continue
            span = statistics.median(rows[-1] - rows[0] for rows in several)
            return Group(name, pattern is _SESSION and span > _SCATTERED * len(values))
    return None
