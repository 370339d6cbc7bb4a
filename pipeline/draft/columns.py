"""Infers the kinds of a log's columns and its label from their names and first values."""

import collections
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from ctrpipe.common.printable import excerpt
from ctrpipe.pipeline.draft.roles import is_split_marker
from ctrpipe.transforms.log.sample import LogSample, are_row_numbers
from ctrpipe.transforms.log.spec import NUMBER, USUAL_MISSING
from ctrpipe.transforms.log.times import EightDigits, time_pattern

# A column has a kind if at least this share of its values matches it.
_SHARE = 0.99
# Names of label columns, most likely first.
_LABELS = (
    *("click", "clicked", "is_click", "is_clicked", "label", "ctr", "target", "y", "clk", "conversion"),
    *("converted", "purchase", "purchased", "buy", "like", "liked", "recommended_ind", "rating", "stars", "score"),
)
# Names of labels that are rates, which are taken only where no column has two values.
_RATES = (
    "ctr",
    "click_rate",
    "clickrate",
    "click_through_rate",
    "click",
    "label",
    "target",
    "y",
    "cvr",
    "conversion_rate",
)
_PAIRS = (("1", "0"), ("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"), ("click", "noclick"), ("2", "1"))
_PATTERNS = (
    *("%m/%d/%Y %I:%M:%S %p", "%d/%b/%Y:%H:%M:%S %z", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y"),
    *("%m/%d/%Y %H:%M", "%m/%d/%Y", "%d/%m/%Y %H:%M", "%d/%m/%Y", "%d-%b-%Y", "%Y/%m/%d"),
)
_TIME_NAME = re.compile(r"(^|_|\b)(time|timestamp|ts|dt|ds|date|day|hour|datetime|created|at)(_|\b|$)", re.IGNORECASE)
_ID_NAME = re.compile(r"(^|[_\s])(id|code|zip|type|category|hash|key|model|ip|site|app|device|user|item|ad)s?$", re.I)
_CODE_NAME = re.compile(r"^[Cc]\d+$")
_NUMBER_NAME = re.compile(r"(price|count|age|num|amount|age|duration|len|size|rate|score|views|clicks|^I\d+$)", re.I)
_SEPARATORS = "|,; "
_MOST_CODES = 32  # distinct whole numbers that are more likely codes than amounts
_INDEX_NAME = re.compile(r"Unnamed: \d+(\.\d+)*(_level_\d+)?|__index_level_\d+__|level_0|index|rownames")
_FEWEST_DIGITS = 8  # of a time that is written as a number
_FEWEST_ROWS = 20  # in which a column that counts on numbers the rows
_EPOCH_SPAN = 1.25  # maximum ratio of the latest to the earliest epoch of a log


@dataclasses.dataclass(frozen=True)
class Guess:
    """The inferred kind of a column.

    Attributes:
        settings: Keys of a feature; empty if the column is left out.
        comment: What was observed in the values, and what is uncertain.
        unsure: Whether a user should check the guess.
    """

    settings: dict[str, Any]
    comment: str
    unsure: bool = False


@dataclasses.dataclass(frozen=True)
class LabelGuess:
    """The inferred label column and its entry in `data.labels`."""

    column: str
    rule: str | dict[str, Any]
    comment: str
    others: tuple[str, ...] = ()  # other possible labels, which would leak this one

    def clicks(self, values: Sequence[str]) -> list[float]:
        """Returns the label of each row by the rule, 0 to 1; another word than a positive one is 0."""
        if isinstance(self.rule, str):
            numbers = {value: float(value) if NUMBER.fullmatch(value) else value.lower() == "true" for value in values}
            return [float(numbers[value]) for value in values]
        if "threshold" in self.rule:
            return [float(bool(NUMBER.fullmatch(each)) and float(each) >= self.rule["threshold"]) for each in values]
        return [float(value in self.rule["positive"]) for value in values]


def guess_label(sample: LogSample, column: str | None = None) -> LabelGuess | None:
    """Returns the most likely label, or the guess for `column` if given; None if no column looks like a label."""
    rules = {name: rule for name in sample.columns if (rule := _label_rule(name, sample.columns[name]))}
    if column is not None:
        rule = rules.get(column) or _rate_rule(column, sample.columns[column])
        return LabelGuess(column, *rule) if rule else None
    rules = {name: rule for name, rule in rules.items() if not is_split_marker(name, sample.columns[name])}
    named = [name for wanted in _LABELS for name in rules if name.lower().replace(" ", "_") == wanted]
    first = [name for name, (rule, _) in rules.items() if isinstance(rule, str)]
    likely = [*named, *first]
    if not likely:
        ratings = list(rules)
        likely = ratings[:1]
    if not likely:
        rates = {name.lower(): name for name in sample.columns}
        named_rates = [rates[wanted] for wanted in _RATES if wanted in rates]
        found = ((name, rule) for name in named_rates if (rule := _rate_rule(name, sample.columns[name])))
        return next((LabelGuess(name, *rule) for name, rule in found), None)
    others = tuple(name for name in named if name != likely[0])
    return LabelGuess(likely[0], *rules[likely[0]], others)


def _label_rule(name: str, values: Sequence[str]) -> tuple[str | dict[str, Any], str] | None:
    distinct = collections.Counter(values)
    words = {value.lower().removesuffix(".0") for value in distinct}
    rows = len(values)
    for positive, negative in _PAIRS:
        if words == {positive, negative} or (words == {negative} and name.lower() in _LABELS):
            count = sum(distinct[value] for value in distinct if value.lower().removesuffix(".0") == positive)
            seen = f"positive in {count / rows:.1%} of the first {rows:,} rows"
            if positive in ("1", "true"):
                return name, seen
            spelt = [sorted(v for v in distinct if v.lower().removesuffix(".0") == w) for w in (positive, negative)]
            return {"column": name, "positive": spelt[0] or [positive], "negative": spelt[1]}, seen
    if words <= {str(number) for number in range(11)} and 3 <= len(words) and min(words) in ("0", "1"):
        highest = max(int(word) for word in words)
        threshold = -(-highest * 4 // 5)
        count = sum(total for value, total in distinct.items() if float(value) >= threshold)
        seen = f"a rating up to {highest}: {threshold} and more in {count / rows:.1%} of the first {rows:,} rows"
        return {"column": name, "threshold": threshold}, seen
    return None


def _rate_rule(name: str, values: Sequence[str]) -> tuple[str, str] | None:
    """Returns the rule of a label that is a rate, as the clicks of a row's impressions; None if it is none."""
    if not all(NUMBER.fullmatch(value) and 0 <= float(value) <= 1 for value in values):
        return None
    if not any(0 < float(value) < 1 for value in values):
        return None
    mean = sum(map(float, values)) / len(values)
    return name, f"a rate between 0 and 1, {mean:.4g} on average in the first {len(values):,} rows"


def guess_column(name: str, values: Sequence[str], is_list: bool) -> Guess:
    """Returns the inferred kind of a column."""
    present = [value for value in values if value not in USUAL_MISSING and value != ""]
    missing = 1 - len(present) / len(values)
    seen = f"{missing:.0%} missing" if missing else "never missing"
    if not present:
        return Guess({}, "without a value in the first rows, so that it is left out", True)
    if _is_index(name, present):
        return _all_different("the row's own number, as the index of pandas")
    distinct = collections.Counter(present)
    seen = f"{len(distinct):,} different values, {seen}"
    if is_list:
        return _lists(present, "|", f"lists, {seen}")
    if time_format := _time_format(name, present):
        return _time(time_format, present, seen)
    if _most(present, lambda value: bool(NUMBER.fullmatch(value))):
        return _number(name, present, distinct, seen)
    if separator := _separator(present):
        return _lists(present, separator, f"several values parted by {separator!r}, {seen}")
    if len(distinct) > 0.95 * len(present) and len(present) > 100:
        if sum(map(len, present)) / len(present) > 24 and " " in present[0]:
            return _lists(present, " ", f"texts, read as words, {seen}; kind: text is for models with an encoder")
        return _all_different(seen)
    return Guess(_vocabulary(distinct), seen)


def _is_index(name: str, present: Sequence[str]) -> bool:
    if not are_row_numbers(present):
        return False
    is_time = len(present[0]) >= _FEWEST_DIGITS or _TIME_NAME.search(name)
    counts_on = all(int(value) == int(present[0]) + place for place, value in enumerate(present))
    return bool(_INDEX_NAME.fullmatch(name)) or (counts_on and len(present) >= _FEWEST_ROWS and not is_time)


def _time(time_format: str, present: Sequence[str], seen: str) -> Guess:
    comment, unsure = f"times as {excerpt(present[0])}, {seen}", "/%m/" in time_format or "%m/%d" in time_format
    digits = EightDigits.among(present)
    if time_format == "auto" and digits.example:
        # A run reads more rows, but may not be asked what these rows leave open.
        time_format = "yyyymmdd" if digits.no_hour or not digits.are_told else "yymmddhh"
        unsure = not digits.are_told
        comment += "; or format: yymmddhh, which fits as well?" if unsure else ""
        if not all(len(value) == 8 for value in present):
            time_format = "auto"
    return Guess({"kind": "time"} | ({} if time_format == "auto" else {"format": time_format}), comment, unsure)


def _all_different(seen: str) -> Guess:
    return Guess({}, f"another value in each row ({seen}), so that nothing repeats: left out", True)


def _number(name: str, present: Sequence[str], distinct: collections.Counter[str], seen: str) -> Guess:
    numeric = Guess({"kind": "numeric", "transform": "quantile_bucketize", "buckets": 32}, f"numbers, {seen}")
    if any("." in value.removesuffix(".0") or "e" in value.lower() for value in present):
        return numeric
    codes = Guess(_vocabulary(distinct), f"whole numbers taken as ids, {seen}")
    if _NUMBER_NAME.search(name) and not _ID_NAME.search(name):
        return numeric
    if _ID_NAME.search(name) or _CODE_NAME.match(name):
        if len(distinct) > 0.95 * len(present) and len(present) > 100:
            return _all_different(seen)
        return codes
    if any(len(value) > 9 for value in present) or len(distinct) <= 2:
        return _all_different(seen) if len(distinct) > 0.95 * len(present) else codes
    numbers = sorted(int(float(value)) for value in present)
    if len(distinct) == len(present) > 100:
        span = numbers[-1] - numbers[0]
        return _all_different(seen) if span < 2 * len(present) else dataclasses.replace(numeric, unsure=True)
    is_amount = numbers[0] <= 1 and numbers[len(numbers) // 2] * 4 < numbers[-1] and len(distinct) > _MOST_CODES
    guess = numeric if is_amount else codes
    other = "categorical with vocabulary" if is_amount else "numeric"
    return dataclasses.replace(guess, comment=f"{guess.comment}; or {other}?", unsure=True)


def _vocabulary(distinct: collections.Counter[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {"kind": "categorical"}
    if len(distinct) > 1000 and sum(1 for count in distinct.values() if count > 1) > 100:
        settings |= {"top_k": 500_000, "min_count": 2}
    return settings


def _lists(present: Sequence[str], separator: str, comment: str) -> Guess:
    lengths = sorted(len([token for token in value.split(separator) if token]) for value in present)
    length = max(2, min(50, lengths[int(0.95 * (len(lengths) - 1))]))
    settings = {"kind": "multivalent", "separator": separator, "max_length": length, "top_k": 100_000}
    return Guess(settings, f"{comment}; 95% of the rows have up to {length}")


def _separator(present: Sequence[str]) -> str | None:
    """Returns the separator of a list column; None for single values.

    In a list column, many rows have several values, and the values repeat.
    """
    for separator in _SEPARATORS:
        tokens = [[token for token in value.split(separator) if token] for value in present]
        several = sum(len(row) > 1 for row in tokens)
        different = {token for row in tokens for token in row}
        total = sum(map(len, tokens))
        lengths = {len(row) for row in tokens}
        if several > 0.2 * len(present) and len(lengths) > 2 and len(different) < 0.5 * total:
            return separator
    return None


def _time_format(name: str, present: Sequence[str]) -> str | None:
    auto = re.compile(time_pattern("auto"))
    if _most(present, lambda value: bool(auto.match(value))):
        if not all(value.isdigit() for value in present):
            return "auto"
        numbers = sorted(int(value) for value in present)
        are_near = len(present[0]) > 8 and numbers[-1] < _EPOCH_SPAN * numbers[0] and len(set(present)) > 2
        return "auto" if _TIME_NAME.search(name) or (are_near and not _ID_NAME.search(name)) else None
    for pattern in _PATTERNS:
        expression = re.compile(time_pattern(pattern))
        if _most(present, lambda value, expression=expression: bool(expression.match(value))):  # type: ignore[misc]
            if not present[0].isdigit() or _TIME_NAME.search(name):
                return pattern
    return None


def _most(present: Sequence[str], is_one: Callable[[str], bool]) -> bool:
    most = len(present) * (1 - _SHARE)
    wrong = 0
    for value in present:
        wrong += not is_one(value)
        if wrong > most:
            return False
    return True
