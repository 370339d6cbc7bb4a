"""Infers the kinds of a log's columns and its label from their names and first values."""

import collections
import dataclasses
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ctrpipe.pipeline.draft.event_words import event_rule
from ctrpipe.pipeline.draft.roles import COUNTED, TIME_END, counted_label, is_outcome, is_split_marker, of_truth
from ctrpipe.pipeline.draft.truths import PAIRS, negated
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.kinds.guess import TIME_NAME, ColumnSample, Guess
from ctrpipe.transforms.log.kinds.kind import Kind
from ctrpipe.transforms.log.kinds.multivalent import Multivalent
from ctrpipe.transforms.log.kinds.numeric import Numeric
from ctrpipe.transforms.log.kinds.time import Time
from ctrpipe.transforms.log.kinds.vector import Vector
from ctrpipe.transforms.log.sample import LogSample, are_row_numbers
from ctrpipe.transforms.log.words import NUMBER, USUAL_MISSING

# Names of label columns, most likely first.
_LABELS = (
    *("click", "clicked", "label", "ctr", "target", "y", "clk", "conversion"),
    *("converted", "purchase", "purchased", "buy", "like", "liked", "recommended", "rating", "stars", "score"),
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
# Words for what a model predicts, where a label has two values.
_POSITIVE = re.compile(
    r"(is_?|has_?)?(clicks?|clicked|clk|conver\w+|bought|buy|purchas\w+|order\w*|paid|sold|subscrib\w+|signed|joined|churn\w*|"
    r"positive|pos|success\w*|good|like[sd]?|won|win|accept\w*|approved?|fraud\w*|spam|default\w*|ja|oui|si|s[ií]|sim|da|>.*)",
    re.IGNORECASE,
)
_TRUTHS = (frozenset(("1", "1.0", "true", "True", "TRUE")), frozenset(("0", "0.0", "false", "False", "FALSE")))
_MISSING = frozenset(("", *USUAL_MISSING))
# The kinds that a column may be drafted as, in the order in which they are asked; the first that takes it has it.
_ASKED: tuple[type[Kind], ...] = (Time, Numeric, Vector, Multivalent, Categorical)
CLICK_TASK = "ctr"
_INDEX_NAME = re.compile(r"Unnamed: \d+(\.\d+)*(_level_\d+)?|__index_level_\d+__|level_0|index|rownames")
_FEWEST_DIGITS = 8  # of a time that is written as a number
_FEWEST_ROWS = 20  # in which a column that counts on numbers the rows
# Words for an end that a model predicts and that may also be known before, so that they only rank labels.
_END_NAME = re.compile(
    r"(is|has|was)?(cancel(l?ed|l?ation)?|churn(ed)?|attrition|exited|no[_-]?show|renewed|returned|refunded|survived|retained|"
    r"readmitted|defaulted|fraud|spam|approved|accepted|applied|subscribed|hired|won|success)",
    re.IGNORECASE,
)
# Small numbers that are no rating: where and when a row was shown, ages and counts.
_NO_RATING = re.compile(
    r"(^|_|\b)(pos|position|rank|slot|index|hour|weekday|dow|month|day|age|count|cnt|num|number|size|"
    r"quantity|qty|depth)(_|\b|$)",
    re.IGNORECASE,
)
# How a table names what became of a row; a person's status is a property.
_RESULT_NAME = re.compile(
    r"(?!.*(marital|civil|family|relationship|employment|working|housing|smoking|member|account|social|health))"
    r"(.*[_\s.])?(status|outcome|result|response|class)",
    re.IGNORECASE,
)
_BEFORE = re.compile(r"(last|prev|previous|prior|first)([_\s-]|(?=[A-Z]))")  # what happened before the row
_PROPERTY_NAME = re.compile(r"(is|has|with|in|on)_", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class LabelGuess:
    """The inferred label column and its entry in `data.labels`."""

    column: str
    rule: str | dict[str, Any]
    comment: str
    others: tuple[str, ...] = ()  # other possible labels, which would leak this one
    has_gaps: bool = False  # whether rows without a value have no label by the rule
    number: "NumberLabel | None" = None  # what a model predicts in addition to the clicks

    @property
    def is_unsure(self) -> bool:
        """Whether a user should check it."""
        return self.comment.endswith("?")

    def clicks(self, values: Sequence[str]) -> list[float]:
        """Returns the label of each row, 0 to 1, by the rule; words other than the positive one are 0."""
        if isinstance(self.rule, str):
            numbers = {value: float(value) if NUMBER.fullmatch(value) else value.lower() == "true" for value in values}
            return [float(numbers[value]) for value in values]
        if "positive" not in self.rule and "negative" in self.rule:
            return [float(value not in self.rule["negative"]) for value in values]
        if "threshold" in self.rule:
            return [float(bool(NUMBER.fullmatch(each)) and float(each) >= self.rule["threshold"]) for each in values]
        return [float(value in self.rule["positive"]) for value in values]


@dataclasses.dataclass(frozen=True)
class NumberLabel:
    """A label that is a number, and its task in `data.labels`."""

    task: str
    column: str
    predicts: str
    comment: str


def guess_number(column: str, values: Sequence[str]) -> NumberLabel | None:
    """Returns a regression task for a numeric column; None if the column has other values, or only two."""
    present = [value for value in values if value and value not in USUAL_MISSING]
    if len(set(present)) <= 2 or not all(map(NUMBER.fullmatch, present)):
        return None
    numbers = [float(value) for value in present]
    if not all(map(math.isfinite, numbers)):
        return None
    task = re.sub(r"^[^A-Za-z]+|[^A-Za-z0-9_]", "", column) or "number"
    missing = 1 - len(present) / len(values)
    predicts = "count" if min(numbers) >= 0 else "mean"
    comment = f"a number, {statistics.fmean(numbers):.4g} on average" + (f", {missing:.0%} missing" if missing else "")
    return NumberLabel("number" if task == CLICK_TASK else task, column, predicts, comment)


def guess_label(sample: LogSample, column: str | None = None) -> LabelGuess | None:
    """Returns the most likely label, or the guess for `column` if given; None if no column looks like a label."""
    rules = {name: rule for name in sample.columns if (rule := _label_rule(name, sample.columns[name]))}
    if column is not None:
        values = sample.columns[column]
        rule = (
            rules.get(column) or _rate_rule(column, values) or _word_rule(column, values) or event_rule(column, values)
        )
        return LabelGuess(column, *rule) if rule else _with_gaps(column, values, sample)
    no_labels = counted_label(sample) or ()
    rules = {
        name: rule
        for name, rule in rules.items()
        if name not in no_labels
        and not is_split_marker(name, sample.columns[name])
        and not (isinstance(rule[0], dict) and "threshold" in rule[0] and _is_no_rating(name))
    }
    named = [name for wanted in _LABELS for name in rules if of_truth(name) == wanted]
    two = _of_two_values(rules, sample)
    unread = {name: values for name, values in sample.columns.items() if name not in rules}
    events = {
        name: rule for name, values in unread.items() if not _BEFORE.match(name) and (rule := event_rule(name, values))
    }
    likely = [*named, *events, *two]
    rules = {name: (rule, comment + _asked(name, likely, sample)) for name, (rule, comment) in rules.items()} | events
    words = [name for wanted in _LABELS for name in sample.columns if of_truth(name) == wanted]
    if not likely:
        results = [name for name in sample.columns if _RESULT_NAME.fullmatch(of_truth(name)) and name not in words]
        in_words = [name for name in [*words, *results] if name not in rules and name not in sample.lists]
        guesses = ((name, _word_rule(name, sample.columns[name])) for name in in_words)
        first = next(((name, rule) for name, rule in guesses if rule), None)
        if first:
            return LabelGuess(first[0], *first[1])
        likely = list(rules)[:1]  # a rating by its values alone
        rules = {name: (rule, f"{comment}; is it the label (--label)?") for name, (rule, comment) in rules.items()}
    if not likely:
        rates = {name.lower(): name for name in sample.columns}
        named_rates = [rates[wanted] for wanted in _RATES if wanted in rates]
        rates_of = ((name, _rate_rule(name, sample.columns[name])) for name in named_rates)
        found_rate = next((LabelGuess(name, *rule) for name, rule in rates_of if rule), None)
        timed = [name for name in sample.columns if is_outcome(TIME_END.sub("", name)) and name not in words]
        gaps = (_with_gaps(name, sample.columns[name], sample) for name in [*words, *timed])
        return found_rate or next(filter(None, gaps), None)
    others = tuple(name for name in named if name != likely[0])
    return LabelGuess(likely[0], *rules[likely[0]], others)


def columns_of_two_words(sample: LogSample) -> list[str]:
    """Returns the columns whose values are two words, the most likely label first."""
    single = {name: values for name, values in sample.columns.items() if name not in sample.lists}
    return _of_two_values({name: rule for name, values in single.items() if (rule := _word_rule(name, values))}, sample)


def _is_no_rating(name: str) -> bool:
    return _NO_RATING.search(name) is not None and not COUNTED.fullmatch(name)


def _of_two_values(rules: Mapping[str, tuple[str | dict[str, Any], str]], sample: LogSample) -> list[str]:
    """Returns the columns with two values that may be the label, the most likely first.

    Names of outcomes rank higher, then names of other ends, such as is_canceled; names of properties, such as
    is_mobile, rank lower. 0 and 1 rank above words. The first and the last column rank above the others, because tables
    have their label at an end.
    """
    two = [name for name, (rule, _) in rules.items() if isinstance(rule, str) or "positive" in rule]
    ends = [next(iter(sample.columns)), next(reversed(sample.columns))]
    place = {name: ends.index(name) if name in ends else len(ends) for name in two}

    def unlikely(name: str) -> tuple[int, bool, int]:
        is_end = _END_NAME.fullmatch(of_truth(name)) is not None
        named = 0 if is_outcome(name) else 1 if is_end else 3 if _PROPERTY_NAME.match(name) else 2
        return named, isinstance(rules[name][0], dict), place[name]

    return sorted(two, key=unlikely)


def _asked(name: str, likely: Sequence[str], sample: LogSample) -> str:
    """Returns the question whether a column is the label; "" if its name, or its position without names, makes it
    clear.
    """
    is_first = sample.data.get("header") is False and name == next(iter(sample.columns))
    if is_outcome(name) or of_truth(name) in _LABELS or is_first or name not in likely:
        return ""
    others = [other for other in likely if other != name]
    return f"; is it the label{f', or {others[0]}' if others else ''} (--label)?"


def _with_gaps(name: str, values: Sequence[str], sample: LogSample) -> LabelGuess | None:
    """Returns the guess for a label with missing values; None without missing values, or without a label in the others.

    If all present values are equal, as after a join with clicks only, missing values are the other class.
    """
    present = [value for value in values if value not in _MISSING]
    gaps = sorted({value for value in values if value in _MISSING})
    if not gaps or not present:
        return None
    share = f"{1 - len(present) / len(values):.1%} of the first {len(values):,} rows"
    if len(set(present)) == 1 and present[0] not in _TRUTHS[1]:
        rule: dict[str, Any] = {"column": name, "positive": [present[0]], "negative": gaps}
        return LabelGuess(name, rule, f"no value, in {share}, is taken for the negative class: does it mean that?")
    guess = guess_label(dataclasses.replace(sample, columns={name: present}), name)
    if guess is None:
        if len(present) < _FEWEST_ROWS or guess_column(name, present, False).settings.get("kind") != "time":
            return None
        asked = f"a row without a time, {share}, is taken for the negative class: does it mean that?"
        return LabelGuess(name, {"column": name, "negative": gaps}, asked)
    asked = "which are malformed: leave them out, or does it mean the negative class (see positive and negative)?"
    return dataclasses.replace(guess, comment=f"{guess.comment}; no value in {share}, {asked}", has_gaps=True)


def _label_rule(name: str, values: Sequence[str]) -> tuple[str | dict[str, Any], str] | None:
    distinct = collections.Counter(values)
    words = {value.lower().removesuffix(".0") for value in distinct}
    rows = len(values)
    if all(any(map(truth.__contains__, distinct)) for truth in _TRUTHS) and set(distinct) <= frozenset.union(*_TRUTHS):
        count = sum(distinct[value] for value in _TRUTHS[0])
        return name, f"positive in {count / rows:.1%} of the first {rows:,} rows"
    if len(distinct) == 2 and (negative := negated(distinct)):
        [positive] = set(distinct) - {negative}
        seen = f"positive in {distinct[positive] / rows:.1%} of the first {rows:,} rows"
        return {"column": name, "positive": [positive], "negative": [negative]}, seen
    for positive, negative in (*PAIRS, ("2", "1")):
        is_constant = len(words) == 1 and words <= {positive, negative} and name.lower() in _LABELS
        if words == {positive, negative} or is_constant:
            count = sum(distinct[value] for value in distinct if value.lower().removesuffix(".0") == positive)
            seen = f"positive in {count / rows:.1%} of the first {rows:,} rows"
            if positive in ("1", "true"):
                return name, seen
            if positive == "2":
                seen = f"2 is {seen}, and 1 negative: or is it the other way round?"
            spelt = [sorted(v for v in distinct if v.lower().removesuffix(".0") == w) for w in (positive, negative)]
            return {"column": name, "positive": spelt[0] or [positive], "negative": spelt[1]}, seen
    if words <= {str(number) for number in range(11)} and 3 <= len(words) and min(words) in ("0", "1"):
        highest = max(int(word) for word in words)
        if "0" in words and (_POSITIVE.fullmatch(name) or COUNTED.fullmatch(name)):  # counted clicks are no rating
            count = sum(total for value, total in distinct.items() if float(value) >= 1)
            seen = f"a count up to {highest}: 1 and more in {count / rows:.1%} of the first {rows:,} rows"
            twos = sum(total for value, total in distinct.items() if float(value) == 2) / rows
            asked = f"; {twos:.1%} have 2: is it a count, or does it mean something else, such as unknown?"
            return {"column": name, "threshold": 1}, seen + (asked if highest == 2 else "")
        threshold = -(-highest * 4 // 5)
        count = sum(total for value, total in distinct.items() if float(value) >= threshold)
        seen = f"a rating up to {highest}: {threshold} and more in {count / rows:.1%} of the first {rows:,} rows"
        return {"column": name, "threshold": threshold}, seen
    return None


def _word_rule(name: str, values: Sequence[str]) -> tuple[dict[str, Any], str] | None:
    """Returns the rule for a label with two words; None for another number of words.

    The positive word is the one that usually means a click; if this does not distinguish them, the rarer one.
    """
    distinct = collections.Counter(values)
    if len(distinct) != 2 or "" in distinct:
        return None
    named = [word for word in distinct if _POSITIVE.fullmatch(word.strip())]
    rarer = min(distinct, key=lambda word: (distinct[word], word))
    positive = named[0] if len(named) == 1 else rarer
    [negative] = set(distinct) - {positive}
    why = "" if len(named) == 1 else ", the rarer word: is it what a model should predict?"
    comment = (
        f"positive is {positive!r} in {distinct[positive] / len(values):.1%} of the first {len(values):,} rows{why}"
    )
    return {"column": name, "positive": [positive], "negative": [negative]}, comment


def _rate_rule(name: str, values: Sequence[str]) -> tuple[str, str] | None:
    """Returns the rule of a label that is a rate of clicks per impression; None if the label is not a rate."""
    if not all(NUMBER.fullmatch(value) and 0 <= float(value) <= 1 for value in values):
        return None
    if not any(0 < float(value) < 1 for value in values):
        return None
    mean = sum(map(float, values)) / len(values)
    return name, f"a rate between 0 and 1, {mean:.4g} on average in the first {len(values):,} rows"


def guess_column(name: str, values: Sequence[str], is_list: bool, weights: str = "") -> Guess:
    """Returns the inferred kind of a column; `weights` stands between an element and its weight in maps."""
    column = ColumnSample(name, values, is_list, weights)
    if not column.present:
        return Guess({}, "without a value in the first rows: left out", True)
    if not any(value.strip() for value in column.present):
        return Guess({}, "nothing but blanks in the first rows: left out", True)
    if _is_index(name, column.present):
        return Guess.nothing_repeats("the row's own number, as the index of pandas")
    guesses = (kind.guess(column) for kind in _ASKED)
    return next(guess for guess in guesses if guess)


def _is_index(name: str, present: Sequence[str]) -> bool:
    if not are_row_numbers(present):
        return False
    is_time = len(present[0]) >= _FEWEST_DIGITS or TIME_NAME.search(name)
    counts_on = all(int(value) == int(present[0]) + place for place, value in enumerate(present))
    return bool(_INDEX_NAME.fullmatch(name)) or (counts_on and len(present) >= _FEWEST_ROWS and not is_time)
