"""Finds columns that are not features: weights, split markers, row numbers and other labels.

A model with such a column is almost perfect on the log and useless in production, where a request lacks the column.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from ctrpipe.pipeline.draft.truths import PAIRS
from ctrpipe.transforms.log.sample import LogSample
from ctrpipe.transforms.log.words import NUMBER, USUAL_MISSING

_OF_WHAT = (
    "sample|row|instance|importance|example|case|obs|observation|event|training|train|propensity|ips|ipw|sampling"
)
_SURE_WEIGHT = re.compile(rf"({_OF_WHAT})_?(weights?|wt|wgt)|inverse_propensity|class_weight", re.IGNORECASE)
_WEIGHT = re.compile(r"w|weights?|wt|wgt", re.IGNORECASE)
_IMPRESSIONS = re.compile(
    r"(n|num|nr|no|total)?_?(of_)?(imps?|impressions?|shows?|exposures?|trials?|views?)(_?(count|cnt|num))?",
    re.IGNORECASE,
)
COUNTED = re.compile(
    r"(n|num|nr|no|total)?_?(of_)?(clicks?|clicked|clk|orders?|ordered|conversions?|conv|cvr|purchases?|purchased|bought|"
    r"installs?|installed|sales?|sold|likes?|signups?|leads?)(_?(count|cnt|num))?",
    re.IGNORECASE,
)
_FEW_WEIGHTS = 32  # different values; amounts have more
_MEAN_TOLERANCE = 0.02  # of weights that are scaled to the number of rows

_SPLIT_WORDS = frozenset(
    "train training trn tr valid validation val va dev develop development eval evaluation test testing tst te holdout "
    "hold_out oot".split()
)
_SPLIT = re.compile(
    r"(data|train_test|ml|cv|tt)?_?(split|splits|fold|folds|fold_?id|kfold|k_fold|part|partition|subset|set|dataset|data_?set"
    r"|phase|usage|stage|set_?type|split_?(name|type|id))",
    re.IGNORECASE,
)
_FOLD = re.compile(
    r"((data|train_test|cv)_?)?(split|fold|fold_?id|kfold|k_fold|fold_?(nr|no|num|number))", re.IGNORECASE
)
_SPLIT_FLAG = re.compile(
    r"(is|in)_?(train|training|test|testing|validation|holdout|hold_out)(_?(set|row))?", re.IGNORECASE
)
_MOST_FOLDS = 20
_MARKER = (
    "says which rows are for training and which for a test: left out; for the same sets write each to files of its own "
    "(data.split: {by: files})"
)

_ROW_ID = re.compile(
    r"_?id|(row|record|request|req|impression|imp|event|log|bid|auction|trace|transaction|hit|instance|sample|example|"
    r"session|view|pageview)_?(id|no|nr|num|number|key|hash|uuid|guid)|row|uuid|guid|bidid|uid_request|rownum",
    re.IGNORECASE,
)
_FEWEST_IDS = 20  # rows that say something about an id
_ID_SHARE = 0.25  # of different values, from which an id of rows cannot be learnt

_OTHER_LABEL = re.compile(
    r"(is|has|did|was|post_?click|label|y|target)?_?(click|clicked|clk|order|orders|ordered|buy|bought|purchase|purchased|"
    r"conversion|converted|conv|cvr|install|installed|add_?to_?cart|checkout|signup|sign_up|booked|booking|like|liked|"
    r"follow|followed|forward|share|shared|hate|favou?rite|long_?view|finish|finished|dislike|sale|sold|label|target|"
    r"opened|unsubscribed?|bounced?|replied|responded|response)s?(_?(bool|flag|ind|indicator|yn))?",
    re.IGNORECASE,
)
TIME_END = re.compile(r"[_ ]?(timestamp|datetime|time|date|ts|dt|at|on)$", re.IGNORECASE)  # of a name of times
# A number that follows a click: a time that somebody stayed, or what somebody paid.
_OUTCOME = re.compile(
    r"((total|avg|mean|log)_?)?("
    r"(watch|watched|watching|play|played|playing|view|viewed|viewing|listen|listened|listening|dwell|stay|read|reading|"
    r"engagement)_?(time|duration|seconds|secs|length|ratio|rate|percent|progress)(_?(s|ms|sec|secs|seconds|millis|minutes))?"
    r"|(seconds|secs|ms|minutes)_?(watched|played|viewed|read)|time_?(spent|on_?(page|site|item))|dwell"
    r"|revenue|gmv|(order|purchase|basket|cart|conversion|sale|sales)_?(value|amount|revenue|price|total)|amount_?(paid|spent))",
    re.IGNORECASE,
)
_MOST_OUTCOME = 1e8  # a larger number is a moment
_CHANCE = 1e-6  # of a value that is in rows with a click alone


@dataclasses.dataclass(frozen=True)
class Role:
    """The role of a column that is not a feature.

    Attributes:
        comment: The inferred role, and what to do with the column.
        is_weight: Whether the draft names it as `data.weight`.
    """

    comment: str
    is_weight: bool = False


def is_split_marker(name: str, values: Sequence[str]) -> bool:
    """Returns whether a column marks training and test rows."""
    present = {value.strip().lower().removesuffix(".0") for value in set(values) if _is(value)}
    if not present:
        return False
    if present <= _SPLIT_WORDS:
        trains = any(value.startswith(("train", "trn")) or value == "tr" for value in present)
        return bool(_SPLIT.fullmatch(name)) or (trains and len(present) > 1)
    if _SPLIT_FLAG.fullmatch(name):
        return present <= {"0", "1", "true", "false", "yes", "no", "y", "n", "t", "f"}
    return bool(_FOLD.fullmatch(name)) and len(present) <= _MOST_FOLDS and all(value.isdigit() for value in present)


def is_outcome(name: str) -> bool:
    """Returns whether a name is an outcome of an impression, such as clicked, is_booked or outcome.order."""
    return _OTHER_LABEL.fullmatch(name.rsplit(".", 1)[-1]) is not None


def of_truth(name: str) -> str:
    """Removes the boolean part of a name: `click` for is_click, click_bool and Click Flag."""
    return re.sub(r"^(is|was|has|did)_|_(bool|flag|ind|indicator|yn)$", "", name.lower().replace(" ", "_"))


def may_be_weight(name: str, values: Sequence[str]) -> bool:
    """Returns whether a column may be the weight of the row, but also another weight, such as a product's."""
    return _WEIGHT.fullmatch(name) is not None and _numbers(values) is not None


def counted_label(sample: LogSample) -> tuple[str, str] | None:
    """Returns the columns of clicks and of impressions if rows count several of both; None otherwise."""
    counts = {name: numbers for name, values in sample.columns.items() if (numbers := _counts(values)) is not None}
    shown = next((name for name in counts if _IMPRESSIONS.fullmatch(name)), None)
    clicked = next((name for name in counts if COUNTED.fullmatch(name) and max(counts[name]) > 1), None)
    return None if shown is None or clicked is None else (clicked, shown)


def more_than(sample: LogSample, column: str, other: str) -> list[int]:
    """Returns the rows whose number in `column` exceeds the number in `other`."""
    pairs = zip(sample.columns[column], sample.columns[other], strict=True)
    return [row for row, (number, least) in enumerate(pairs) if float(number) > float(least)]


def roles(sample: LogSample, label: str, clicks: Sequence[float]) -> dict[str, Role]:
    """Returns the columns that are not features, without the label.

    Args:
        sample: The first rows of a log.
        label: The label's column.
        clicks: The label of each row, 0 to 1.
    """
    by_column: dict[str, Role] = {}
    for name, values in sample.columns.items():
        if name == label or name in sample.lists:
            continue
        if is_split_marker(name, values):
            by_column[name] = Role(_MARKER)
        elif text := _row_id(name, values):
            by_column[name] = Role(text)
        elif text := _other_label(name, values, clicks) or _outcome(name, values) or _zero_without(values, clicks):
            by_column[name] = Role(text)
    rest = {name: values for name, values in sample.columns.items() if name not in {label, *sample.lists, *by_column}}
    return by_column | _weights(rest, clicks)


def _numbers(values: Sequence[str]) -> list[float] | None:
    """Returns values as numbers of at least 0; None if one is missing or something else."""
    if not values or not all(NUMBER.fullmatch(value) for value in values):
        return None
    numbers = [float(value) for value in values]
    return numbers if all(0 <= number < math.inf for number in numbers) else None


def _counts(values: Sequence[str]) -> list[float] | None:
    """Returns values as whole numbers of at least 0; None if one is missing or something else."""
    numbers = _numbers(values)
    return numbers if numbers and all(number.is_integer() for number in numbers) else None


# Weights --------------------------------------------------------------------------------------------------------------


def _weights(columns: Mapping[str, Sequence[str]], clicks: Sequence[float]) -> dict[str, Role]:
    """Returns the weight of the rows, and the columns that may be a weight."""
    is_rate = any(0 < click < 1 for click in clicks)
    by_column: dict[str, Role] = {}
    numbers_by_name = {name: numbers for name, values in columns.items() if (numbers := _numbers(values)) is not None}
    for name, numbers in numbers_by_name.items():
        of_impressions = is_rate and _IMPRESSIONS.fullmatch(name) is not None
        is_sure = of_impressions or _SURE_WEIGHT.fullmatch(name) is not None
        if not is_sure and not _WEIGHT.fullmatch(name):
            continue
        if len(set(numbers)) == 1:
            by_column[name] = Role(f"{numbers[0]:g} in each row, a constant weight: left out")
        elif is_sure or _weighs(numbers, clicks):
            if any(role.is_weight for role in by_column.values()):
                by_column[name] = Role("a second weight of the rows: left out; or is this one data.weight?")
            else:
                of_what = "the impressions of the rate" if of_impressions else "the weight of the row"
                by_column[name] = Role(f"taken for {of_what}, which is no feature; is it one?", is_weight=True)
        elif len(set(numbers)) <= _FEW_WEIGHTS:
            by_column[name] = Role("the weight of the row (data.weight), or a feature? Left out until you say which")
    if is_rate:
        shown = next((numbers_by_name[name] for name, role in by_column.items() if role.is_weight), None)
        for name, numbers in numbers_by_name.items():
            if shown and name not in by_column and _counts_clicks(numbers, shown, clicks):
                by_column[name] = Role(
                    "the label's rate times the weight: left out, because it would give the label away"
                )
    return by_column


def _weighs(numbers: Sequence[float], clicks: Sequence[float]) -> bool:
    """Returns whether numbers are row weights: with mean 1, or with one value for clicks and one for other rows."""
    if abs(sum(numbers) / len(numbers) - 1) < _MEAN_TOLERANCE and len(numbers) >= _FEWEST_IDS:
        return True
    of_click = {number for number, click in zip(numbers, clicks, strict=True) if click == 1}
    of_other = {number for number, click in zip(numbers, clicks, strict=True) if click == 0}
    return len(of_click) == len(of_other) == 1 and of_click != of_other


def _counts_clicks(numbers: Sequence[float], shown: Sequence[float], rates: Sequence[float]) -> bool:
    # A rate may be rounded, so that its product with the impressions is near the count.
    return all(
        abs(number - views * rate) <= 0.5 + 0.005 * views
        for number, views, rate in zip(numbers, shown, rates, strict=True)
    ) and all(float(number).is_integer() for number in numbers)


# Ids and labels -------------------------------------------------------------------------------------------------------


def _row_id(name: str, values: Sequence[str]) -> str:
    """Returns the evidence that a column is an id of the row or its request; "" if it is not."""
    present = [value for value in values if _is(value)]
    if len(present) < _FEWEST_IDS:
        return ""
    different = len(set(present))
    if not _ROW_ID.fullmatch(name):
        return ""
    if different == len(present):
        return f"another value in each row ({different:,} different values), nothing repeats: left out"
    if different > _ID_SHARE * len(present):
        return f"an id of the row or its request ({different:,} different values), as it hardly repeats: left out"
    return ""


def _outcome(name: str, values: Sequence[str]) -> str:
    """Returns the evidence that a number is the outcome of the impression; "" without evidence."""
    present = [value for value in values if _is(value)]
    if len(set(present)) <= 2 or not _OUTCOME.fullmatch(name) or not all(map(NUMBER.fullmatch, present)):
        return ""
    if max(map(float, present)) >= _MOST_OUTCOME:
        return ""
    return (
        f"a number that follows the click, by its name: left out, as no request has it; --label {name} drafts a model "
        "that predicts it in addition to the clicks"
    )


def _other_label(name: str, values: Sequence[str], clicks: Sequence[float]) -> str:
    """Returns the reason why a column is known only after the click; "" if there is none."""
    words = {value.lower().removesuffix(".0") for value in set(values) if _is(value)}
    pair = next((pair for pair in PAIRS if words and words <= set(pair)), None)
    if pair and _OTHER_LABEL.fullmatch(name):
        return "looks like a label too: left out; or is it known before the click?"
    rate = sum(clicks) / len(clicks)
    rows = list(zip(values, clicks, strict=True))
    if not all(map(_is, values)) and _are_clicked([click for value, click in rows if _is(value)], rate):
        return "a value only in rows with a click, as what follows it: left out; is it known before the click?"
    if pair and _are_clicked([click for value, click in rows if value.lower().removesuffix(".0") == pair[0]], rate):
        return f"{pair[0]} only in rows with a click, as what follows it: left out; is it known before the click?"
    if pair and _precedes([value.lower().removesuffix(".0") == pair[0] for value in values], clicks):
        return (
            f"{pair[0]} in every row with a click, as a step before it, such as the click before a purchase: left out; "
            "is it known when the row is shown?"
        )
    return ""


def _zero_without(values: Sequence[str], clicks: Sequence[float]) -> str:
    """Returns the evidence that a number other than 0 follows the click; "" without evidence."""
    if not all(map(NUMBER.fullmatch, values)):
        return ""
    others = [click for value, click in zip(values, clicks, strict=True) if float(value) != 0]
    if not _are_clicked(others, sum(clicks) / len(clicks)):
        return ""
    return "other than 0 only in rows with a click, as what follows it: left out; is it known before the click?"


def _precedes(flags: Sequence[bool], clicks: Sequence[float]) -> bool:
    """Returns whether every clicked row has a flag that other rows lack, beyond chance at the share of the flag."""
    clicked = [flag for flag, click in zip(flags, clicks, strict=True) if click > 0]
    share = sum(flags) / len(flags)
    return bool(clicked) and all(clicked) and share < 1 and share ** len(clicked) < _CHANCE


def _are_clicked(clicks: Sequence[float], rate: float) -> bool:
    """Returns whether all of the given rows are clicked, beyond chance at this click rate."""
    return bool(clicks) and all(click == 1 for click in clicks) and 0 < rate < 1 and rate ** len(clicks) < _CHANCE


def _is(value: str) -> bool:
    return value != "" and value not in USUAL_MISSING
