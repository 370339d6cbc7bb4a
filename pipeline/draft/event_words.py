"""Finds labels whose values name what followed an impression, such as `none`, `click` and `purchase`."""

import collections
import re
from collections.abc import Sequence
from typing import Any

from ctrpipe.pipeline.draft.roles import is_outcome
from ctrpipe.transforms.log.sample import LogSample

_NOTHING = re.compile(
    r"|none|null|no|nothing|no[\s_-]?(click|action|interaction|response|event)|(ad_?)?(view|impression|imp|show|display)"
    r"(s|ed|n)?|expos(ure|ed)|seen|skip(ped)?|ignored?|pass(ed)?",
    re.IGNORECASE,
)
_MOST_WORDS = 12
_KEY_SHARE = 0.5  # of different values, from which a column cannot say which impression an event belongs to
_HAVE_BOTH = 0.9  # of the events with a row of their impression


def event_rule(name: str, values: Sequence[str]) -> tuple[dict[str, Any], str] | None:
    """Returns the rule of a label whose words name events, and a sentence with their share; None for other values."""
    counts = collections.Counter(values)
    if not 2 <= len(counts) <= _MOST_WORDS:
        return None
    nothing = sorted(word for word in counts if _NOTHING.fullmatch(word))
    events = sorted(set(counts) - set(nothing))
    if not nothing or not events or not all(map(is_outcome, events)):
        return None
    share = sum(counts[word] for word in events) / len(values)
    seen = f"{' or '.join(events)} in {share:.1%} of the first {len(values):,} rows: is this what to predict?"
    return {"column": name, "positive": events, "negative": nothing}, seen


def keys_of_events(sample: LogSample, column: str, positive: Sequence[str]) -> list[str]:
    """Returns the columns that link an event to the earlier row of its impression; [] if each row is an impression
    with its outcome.

    Args:
        sample: The first rows of a log.
        column: The column of `event_rule`.
        positive: Its words for events.
    """
    others = (name for name in sample.columns if name != column)
    keys = [name for name in others if len(set(sample.columns[name])) <= _KEY_SHARE * sample.rows]
    if not keys:
        return []
    shown = set[tuple[str, ...]]()
    known: dict[bool, list[bool]] = {True: [], False: []}
    for word, *key in zip(sample.columns[column], *(sample.columns[name] for name in keys), strict=True):
        known[word in positive].append(tuple(key) in shown)
        if word not in positive:
            shown.add(tuple(key))
    of_events, of_others = (sum(found) / len(found) for found in (known[True], known[False]))
    return keys if of_events >= _HAVE_BOTH and of_others <= 1 - _KEY_SHARE else []
