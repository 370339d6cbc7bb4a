"""Drafts a commented configuration for a log without one (`ctrpipe init`)."""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from ctrpipe.common import stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import openmp_missing
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.printable import excerpt
from ctrpipe.common.stores import is_url, local_path
from ctrpipe.pipeline.config.load import check_config, read_yaml
from ctrpipe.pipeline.config.packaged_configs import configs_folder
from ctrpipe.pipeline.draft.columns import (
    CLICK_TASK,
    LabelGuess,
    columns_of_two_words,
    guess_column,
    guess_label,
    guess_number,
)
from ctrpipe.pipeline.draft.division import Division, divided
from ctrpipe.pipeline.draft.event_words import event_rule, keys_of_events
from ctrpipe.pipeline.draft.made_columns import MadeColumn
from ctrpipe.pipeline.draft.missing_words import as_missing, missing_words, told, with_missing_values
from ctrpipe.pipeline.draft.numbered import numbered_vectors
from ctrpipe.pipeline.draft.other_times import other_times, times_after
from ctrpipe.pipeline.draft.passing import passing_columns
from ctrpipe.pipeline.draft.recipe import LogSize, count_rows, recipe
from ctrpipe.pipeline.draft.roles import Role, counted_label, may_be_weight, more_than, roles
from ctrpipe.pipeline.draft.sets.mind import impressions_column, is_behaviors
from ctrpipe.pipeline.draft.sets.registry import SETS, draft_of_behaviors, draft_of_set
from ctrpipe.pipeline.draft.weighted_lists import weighted_pairs
from ctrpipe.pipeline.draft.written_numbers import Form, plain_numbers
from ctrpipe.transforms.kddcup2012 import is_kddcup2012
from ctrpipe.transforms.log.derived.weighted import BEFORE
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.kinds.categorical import OFTEN
from ctrpipe.transforms.log.kinds.guess import ColumnSample, Guess
from ctrpipe.transforms.log.kinds.numeric import AMOUNT
from ctrpipe.transforms.log.kinds.sequence import ItemSequence
from ctrpipe.transforms.log.late_ends import rows_without_clicks
from ctrpipe.transforms.log.queries import has_order
from ctrpipe.transforms.log.sample import LIST_SEPARATOR, ROWS, LogSample, read_sample
from ctrpipe.transforms.log.suspects import ALONE, gives_away, own_item_gives_away
from ctrpipe.transforms.log.words import NUMBER

_OF_ITEMS = 0.8  # of a list's elements are values of the column whose items they are
_FEWEST_ITEMS = 20  # different values of this column
_FEWEST_CLICKS = 30  # of which a tenth are test rows
_FEWEST_ROWS = 30  # below a second header
_MANY_ALIKE = 8  # columns that share a comment
_NAMED = 4  # columns that share a question, by name
# A file that a program numbers or names by date, as Spark and Beam do, or a folder of a partition, as Hive names it.
_PART = re.compile(r"part([-_]?\d.*)?|[\d_-]+|[^=]+=.*")


@dataclasses.dataclass(frozen=True)
class Said:
    """A user's statements about a log, which replace guesses.

    Attributes:
        label, time, user, group, weight: Names of columns; None where the draft guesses.
        drop: Names of columns to leave out of the features.
        delimiter: The delimiter of a text file.
    """

    label: str | None = None
    time: str | None = None
    user: str | None = None
    group: str | None = None
    weight: str | None = None
    drop: tuple[str, ...] = ()
    delimiter: str | None = None

    def check(self, path: str, columns: Collection[str]) -> None:
        """Raises InputError for a column that the log lacks, and for two conflicting splits."""
        named = {key: (getattr(self, key),) for key in ("label", "time", "user", "group", "weight")}
        for key, names in {**named, "drop": self.drop}.items():
            if absent := [name for name in names if name is not None and name not in columns]:
                raise InputError(
                    f"{path}: --{key} {absent[0]}: no such column; it has {excerpt(', '.join(columns))}"
                    f"{did_you_mean(absent[0], columns)}"
                )
        if self.time and self.group:
            raise InputError("--time and --group: a log is divided by one of them; give one")
        used = [name for name in (self.label, self.weight, self.time, self.user) if name in self.drop]
        if used:
            raise InputError(f"--drop {used[0]}: another option names the column; leave one of the two out")


def draft(
    patterns: Sequence[str], label: str | None = None, name: str | None = None, said: Said | None = None
) -> tuple[str, list[str]]:
    """Returns the YAML of a configuration for a log, and a sentence for each uncertain guess.

    Args:
        patterns: The log's files and globs.
        label: The label column; None: the most likely one.
        name: The configuration's name for an in-memory log; its files are then not listed. None: derived from the file
            name.
        said: The user's statements, which replace guesses. `label` overrides its label.

    Raises:
        InputError: a file cannot be read, no column looks like a label, or `said` names a missing column.
    """
    said = dataclasses.replace(said or Said(), label=label or (said.label if said else None))
    if is_kddcup2012(pathlib.Path(patterns[0])):
        return _of_kddcup2012(patterns[0]), []
    files = find_files(list(patterns))
    path = files[0]
    sample = read_sample(path, said.delimiter)
    if is_behaviors(sample):
        return draft_of_behaviors(patterns, name or _name_of(path)), ["The files are taken for MIND's behaviors.tsv."]
    if lists := impressions_column(sample):
        raise InputError(
            f"{path}: {lists} lists impressions, as '{excerpt(sample.columns[lists][0])}'; make a row of each by "
            f"ctrpipe prepare impressions {excerpt(patterns[0])} OUTPUT --column {lists}"
        )
    said.check(path, sample.columns)
    words = missing_words(sample, [said.label] if said.label else [])
    as_written = {name: sample.columns[name] for name in words}  # no label has a word for a missing value
    sample, forms = plain_numbers(as_missing(sample, words))
    is_whole = len(files) == 1 and sample.rows < ROWS
    _check_counts(path, sample, said)
    _check_plain(path, forms, [said.label] if said.label else [])
    target = _label(path, dataclasses.replace(sample, columns={**sample.columns, **as_written}), said.label)
    targets = [target.column, *([target.number.column] if target.number else [])]
    _check_plain(path, forms, targets)
    sample = with_missing_values(sample, words, targets)
    _check_events(path, sample, target)
    if target.has_gaps:  # rows without a label say nothing about the other columns and the label
        sample = sample.with_values(target.column)
    clicks = target.clicks(sample.columns[target.column])
    if is_whole and len(set(clicks)) == 1 and not 0 < clicks[0] < 1:
        raise InputError(
            f"{path}: the label {target.column} is {excerpt(sample.columns[target.column][0], 40)} in all "
            f"{sample.rows:,} rows, and a model needs both classes; name another one with --label"
        )
    left_out = {*targets, *target.others}
    kept = {said.time, said.user, said.group}
    of_no_feature = {
        column: role for column, role in roles(sample, target.column, clicks).items() if column not in kept
    }
    if said.weight:
        of_no_feature = {column: role for column, role in of_no_feature.items() if not role.is_weight}
        of_no_feature[said.weight] = Role("as --weight says", is_weight=True)
    weights = {name: role for name, role in of_no_feature.items() if role.is_weight and name not in left_out}
    _check_plain(path, forms, list(weights))
    left_out |= set(weights)
    guesses = {
        name: _as_written(
            _guess(name, values, sample, of_no_feature.get(name), clicks, said, is_whole),
            None if name in of_no_feature or name in said.drop else forms.get(name),
        )
        for name, values in sample.columns.items()
        if name not in left_out
    }
    not_own = other_times(sample.columns, guesses)
    guesses |= {name: guess for name, guess in not_own.items() if name not in kept}
    after = times_after(sample.columns, guesses, clicks)
    guesses |= {name: guess for name, guess in after.items() if name not in kept}
    if not any(guess.settings for guess in guesses.values()):
        raise _no_columns(path, target.column)
    guesses |= {name: told(guesses[name], words[name]) for name in words if name in guesses}
    is_ordered = all(map(has_order, patterns))
    division = divided(sample, guesses, target.column, said.time, said.group, said.user, is_ordered)
    if division.without:
        text = "left out: no test row has a value of it that a training row has, as the split says"
        guesses[division.without] = Guess({}, text)
    guesses |= {
        name: guess
        for name, guess in passing_columns(sample.columns, guesses, division.settings, is_whole).items()
        if name not in kept
    }
    if not any(guess.settings for guess in guesses.values()):
        raise _no_columns(path, target.column)
    rows = count_rows(files, sample)
    histories = _histories(sample, guesses)
    no_trees = openmp_missing()
    columns = sum(bool(guess.settings) for guess in guesses.values())
    task = target.number.task if target.number else ""
    size = LogSize(rows, columns, sum(clicks) / len(clicks), bool(histories), not no_trees, task)
    if not task:
        guesses |= histories
    guesses = {
        name: _with_buckets(_in_brackets(guess) if name in sample.bracketed else guess, size.buckets)
        for name, guess in guesses.items()
    }
    made = [*weighted_pairs(sample, guesses), *numbered_vectors(sample, guesses)]
    parts = {name for column in made for name in column.of}
    guesses = {name: guess for name, guess in guesses.items() if name not in parts}
    guesses |= {column.name: column.guess for column in made}
    unsure = [*sample.unsure, *_few_clicks(target.column, clicks, rows), *_own_items(sample, histories, clicks)]
    if no_trees and not size.is_large and not task:
        unsure.append(
            f"LightGBM cannot be loaded here ({no_trees}): the model is a logistic regression without its trees. "
            "Install OpenMP's library, libgomp1 on Debian and Ubuntu, and draft again."
        )
    if target.is_unsure:
        unsure.append(f"{target.column}: {target.comment}")
    unsure += _asked(guesses)
    unsure += [f"{name}: {role.comment}" for name, role in weights.items() if name != said.weight]
    unsure += [
        f"{name} looks like a label too, and is left out: it would give the label away." for name in target.others
    ]
    of_log = None if name else patterns
    text = _page(of_log, name or _name_of(path), sample, target, guesses, weights, made, division, size)
    check_config(read_yaml(text), (), path)
    return text, unsure


def _no_columns(path: str, label: str) -> InputError:
    return InputError(f"{path}: no column besides the label {label} carries information; is this a log?")


def draft_of_known(dataset: str, patterns: Sequence[str], said: Said | None = None) -> tuple[str, list[str]]:
    """Returns the YAML of a configuration for a published data set, and a sentence about each missing part.

    Args:
        dataset: The name of the data set.
        patterns: Its folder.
        said: Must be None or say nothing: the columns of the set are known.

    Raises:
        InputError: there is no such set, the folder is a URL, or it lacks the set's files.
    """
    if dataset not in SETS:
        known = ", ".join(SETS)
        raise InputError(f"--dataset {dataset}: unknown; the known sets are {known}{did_you_mean(dataset, SETS)}")
    given = [f"--{key}" for key, value in dataclasses.asdict(said or Said()).items() if value]
    if len(patterns) != 1 or given:
        beside = given[0] if given else f"{len(patterns)} paths"
        raise InputError(f"--dataset {dataset} and {beside}: give the folder of the set alone")
    if is_url(patterns[0]):
        raise InputError(f"{patterns[0]}: --dataset takes a local path; copy the folder of the set here first")
    return draft_of_set(dataset, local_path(patterns[0]))


def _of_kddcup2012(folder: str) -> str:
    lines = (
        "# Written by `ctrpipe init`: the files of KDD Cup 2012, track 2, which a run joins first.",
        f"extends: {_flow(str(configs_folder() / 'kddcup2012' / 'cascading_deepfm.yaml'))}",
        "name: kddcup2012",
        f"data: {{paths: {_flow([folder])}}}",
    )
    return "\n".join(lines) + "\n"


def _label(path: str, sample: LogSample, label: str | None) -> LabelGuess:
    if label is not None and label not in sample.columns:
        raise InputError(
            f"{path}: --label {label}: no such column; it has {excerpt(', '.join(sample.columns))}"
            f"{did_you_mean(label, sample.columns)}"
        )
    guess = guess_label(sample, label)
    if guess is None and label is not None and label not in sample.lists:
        guess = _beside_clicks(path, sample, label)
    if guess is None and label is not None:
        _check_second_header(path, sample, label)
        values = excerpt(", ".join(sorted(set(sample.columns[label]))[:5]))
        raise InputError(f"{path}: --label {label}: {values} are not values of a label; write data.labels by hand")
    if guess is None:
        columns = excerpt(", ".join(sample.columns))
        if candidates := _of_two_words(sample):
            raise InputError(
                f"{path}: none of {columns} looks like a label; name it with --label, such as {' or '.join(candidates)}"
            )
        raise InputError(f"{path}: none of {columns} looks like a label; name it with --label")
    return guess


def _of_two_words(sample: LogSample) -> list[str]:
    """Returns the columns that may be the label, each with its two values."""
    return [
        f"{excerpt(name)} ({' or '.join(map(excerpt, sorted(set(sample.columns[name]))))})"
        for name in columns_of_two_words(sample)[:_NAMED]
    ]


def _check_events(path: str, sample: LogSample, target: LabelGuess) -> None:
    """Raises InputError if a row is an event, such as a click in addition to the row of its impression."""
    if event_rule(target.column, sample.columns[target.column]) is None or not isinstance(target.rule, dict):
        return
    if keys := keys_of_events(sample, target.column, target.rule["positive"]):
        positive, negative = (" or ".join(target.rule[key]) for key in ("positive", "negative"))
        raise InputError(
            f"{path}: {target.column} names events: a row with {positive} has an earlier one with {negative} of the "
            f"same {' and '.join(map(_one_line, keys))}, and a model needs one row for each impression; write "
            "impressions and clicks to a file each, and join them by `ctrpipe prepare labels`"
        )


def _check_second_header(path: str, sample: LogSample, label: str) -> None:
    """Raises InputError if only the first row's value makes the label invalid, as a row of units does."""
    first, *others = sample.columns[label]
    if first in others or len(others) < _FEWEST_ROWS:
        return
    rest = {name: values[1:] for name, values in sample.columns.items()}
    if guess_label(dataclasses.replace(sample, columns=rest), label):
        raise InputError(
            f"{path}: --label {label}: '{excerpt(first, 40)}' in the first row is not a label, but the others are; is "
            "it a second header, such as units? Remove it from the file"
        )


def _check_counts(path: str, sample: LogSample, said: Said) -> None:
    """Raises InputError if the rows count clicks and impressions and have no rate as a label."""
    counted = counted_label(sample)
    if counted is None or counted[1] in said.drop or said.label not in (None, *counted):
        return
    clicks, impressions = counted
    if said.label is None and guess_label(sample):
        return
    if wrong := more_than(sample, clicks, impressions):
        numbers = (sample.columns[name][wrong[0]] for name in counted)
        raise InputError(
            f"{path}: {clicks} is larger than {impressions} in {len(wrong):,} of the first {sample.rows:,} rows, as "
            f"{' and '.join(numbers)}; a row of clicks and impressions needs at least as many impressions"
        )
    raise InputError(
        f"{path}: {clicks} counts the clicks of a row's {impressions}, and a label is their rate; add a column of "
        f"{clicks} divided by {impressions} to the log, and name it with --label, and --weight {impressions}"
    )


def _beside_clicks(path: str, sample: LogSample, column: str) -> LabelGuess | None:
    """Returns the click label for a model that also predicts a numeric column; None if the column is not numeric.

    Raises:
        InputError: no other column looks like a label of clicks, which is the first task of a model.
    """
    number = guess_number(column, sample.columns[column])
    if number is None:
        return None
    others = {name: values for name, values in sample.columns.items() if name != column}
    clicks = guess_label(dataclasses.replace(sample, columns=others))
    if clicks is None:
        raise InputError(
            f"{path}: --label {column}: numbers, which a model predicts in addition to clicks, and none of "
            f"{excerpt(', '.join(others))} looks like a label of clicks; add a column of 0 and 1 to the log, or write "
            f"data.labels by hand, such as {{ctr: {{column: {column}, threshold: 1}}}}"
        )
    return dataclasses.replace(clicks, number=number)


def _name_of(path: str) -> str:
    """Returns the name of a log's file, or of the nearest folder with a name if the file is a part, such as part-0."""
    whole = path if is_url(path) else str(pathlib.Path(path).absolute())
    names = (name.split(".")[0] for name in reversed(whole.split("/")))
    own = next((name for name in names if name and not _PART.fullmatch(name)), "")
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", own).strip("-.") or "log"


def _page(
    patterns: Sequence[str] | None,
    name: str,
    sample: LogSample,
    label: LabelGuess,
    guesses: dict[str, Guess],
    weights: dict[str, Role],
    made: Sequence[MadeColumn],
    division: Division,
    size: LogSize,
) -> str:
    labels: dict[str, Any] = {CLICK_TASK: label.rule}
    if number := label.number:
        labels[number.task] = {"column": number.column, "predicts": number.predicts}
    lines = [
        f"# Written by `ctrpipe init` from the first {sample.rows:,} rows of the log. Look at what is marked with ?.",
        "# docs/configuration.md has every key; `ctrpipe check` says whether it still fits the log after a change.",
        f"name: {_flow(name)}",
        "data:",
        *([f"  paths: {_flow(list(patterns))}"] if patterns else []),
    ]
    lines += [f"  {key}: {_flow(value)}" for key, value in sample.data.items()]
    lines += [
        f"  # {label.comment}",
        *([f"  # {_one_line(number.column)}: {number.comment}"] if number else []),
        f"  labels: {_flow(labels)}",
        *(line for column, role in weights.items() for line in _weight(column, role)),
        f"  # {division.why}",
        f"  split: {_flow(division.settings)}",
        *(["derived:"] if made else []),
        *(f"  {_flow({column.name: dict(column.derived)})[1:-1]}" for column in made),
        "features:",
    ]
    for settings, members in _groups(guesses):
        lines += _comments(members)
        entry = {"columns": [column for column, _ in members], **settings}
        lines.append(f"  - {_flow(entry)}")
    lines += [f"  #? {_one_line(column)}: {guess.comment}" for column, guess in guesses.items() if not guess.settings]
    lines += recipe(size)
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"


def _guess(
    name: str,
    values: Sequence[str],
    sample: LogSample,
    role: Role | None,
    clicks: Sequence[float],
    said: Said,
    is_whole: bool,
) -> Guess:
    if name in said.drop:
        return Guess({}, "left out, as --drop says")
    if role:
        return Guess({}, role.comment, True)
    is_list = name in sample.lists
    guess = guess_column(name, values, is_list, BEFORE if name in sample.maps else "")
    if name in sample.within and guess.settings:
        return ItemSequence.guess_nested(ColumnSample(name, values, True), LIST_SEPARATOR, sample.within[name])
    if name == said.user and guess.settings.get("kind") != "categorical":
        return Guess({"kind": "categorical", **OFTEN}, "the user, as --user says")
    if not guess.settings or is_list:
        return guess
    if len(set(values)) == 1 and name != said.time:
        if is_whole:
            return Guess({}, f"one value in all rows, {excerpt(values[0], 40)}: left out", True)
        partitions: Any = sample.data.get("partitions", ())
        if guess.settings["kind"] != "time" and name not in partitions:
            seen = f"one value, {excerpt(values[0], 40)}, in the first {sample.rows:,} rows"
            return dataclasses.replace(guess, comment=f"{seen}: does it vary later in the log?", unsure=True)
    if name not in (said.user, said.time) and (text := _betrays(values, guess, clicks)):
        if text.startswith(ALONE):
            return Guess({}, f"{text}; left out: is it known before the click?", True)
        return dataclasses.replace(
            guess, comment=f"{guess.comment}; {text}: is it known before the click?", unsure=True
        )
    if may_be_weight(name, values):
        comment = f"{guess.comment}; or the weight of the row (data.weight)?"
        return dataclasses.replace(guess, comment=comment, unsure=True)
    return guess


def _check_plain(path: str, forms: Mapping[str, Form], columns: Sequence[str]) -> None:
    """Raises InputError if a label's or weight's numbers have a written form, which only features support."""
    for column in columns:
        if column in forms and forms[column].settings:
            raise InputError(
                f"{path}: {column}: numbers as {forms[column].example}, and a label or a weight has plain ones; write "
                "1234.5 in the log, or name another column with --label or --weight"
            )


def _as_written(guess: Guess, form: Form | None) -> Guess:
    """Returns the guess for numbers with a written form, which are amounts and not codes."""
    if form is None or (not guess.settings and not guess.is_unrepeated):
        return guess
    comment, unsure = guess.comment, guess.unsure
    settings = guess.settings
    if form.settings:
        if settings.get("kind") != "numeric":
            settings, comment, unsure = AMOUNT, "numbers", False
        settings = {**settings, "written": form.settings}
        comment = f"{comment}, as {form.example}; a request has the number alone"
    if form.question:
        comment, unsure = f"{comment}; {form.question}", True
    return Guess(settings, comment, unsure)


def _in_brackets(guess: Guess) -> Guess:
    """Returns the guess of a column whose lists are in brackets in the log."""
    if guess.settings.get("kind") not in ("multivalent", "sequence"):
        return guess
    comment = f"{guess.comment}; in brackets, and in a request with {guess.settings['separator']!r} between the values"
    return dataclasses.replace(guess, settings={**guess.settings, "brackets": True}, comment=comment)


def _with_buckets(guess: Guess, buckets: int) -> Guess:
    """Returns the guess of a column of numbers with another number of buckets, and any other guess as it is."""
    if guess.settings.get("transform") != "quantile_bucketize":
        return guess
    return dataclasses.replace(guess, settings={**guess.settings, "buckets": buckets})


def _betrays(values: Sequence[str], guess: Guess, clicks: Sequence[float]) -> str:
    """Returns how a column's values reveal the label; "" if they do not."""
    if guess.settings["kind"] == "numeric":
        numbers = [float(value) if NUMBER.fullmatch(value) else None for value in values]
        column = pa.chunked_array([pa.array(numbers, pa.float64())])
    else:
        column = pa.chunked_array([pa.array([value or None for value in values], pa.string())])
    return gives_away(column, np.asarray(clicks, np.float64))


def _histories(sample: LogSample, guesses: dict[str, Guess]) -> dict[str, Guess]:
    """Returns the columns of lists whose elements are another column's values, as histories of its items."""
    single = {
        name: set(sample.columns[name])
        for name, guess in guesses.items()
        if guess.settings.get("kind") == "categorical" and guess.settings.get("transform", "vocabulary") == "vocabulary"
    }
    histories = {}
    for name, guess in guesses.items():
        if guess.settings.get("kind") != "multivalent":
            continue
        separator = guess.settings["separator"]
        elements = [item for value in sample.columns[name] for item in value.split(separator) if item]
        shares = {owner: sum(item in values for item in elements) / len(elements) for owner, values in single.items()}
        owners = [one for one in single if shares[one] >= _OF_ITEMS and len(single[one]) >= _FEWEST_ITEMS]
        if not owners:
            continue
        # Numbers of items may all be numbers of users too: the column with the fewest values besides them is the owner.
        items = set(elements)
        owner = max(owners, key=lambda one: len(single[one] & items) / len(single[one] | items))
        settings = {"kind": "sequence", "separator": separator, "max_length": guess.settings["max_length"]}
        comment = f"{guess.comment}; items of {owner}: a history of them, which models such as din read item by item"
        histories[name] = Guess({**settings, "shared_with": owner}, comment)
    return histories | _with_nested(histories, guesses, sample)


def _own_items(sample: LogSample, histories: Mapping[str, Guess], clicks: Sequence[float]) -> Iterator[str]:
    """Yields a sentence about each history that reveals the label by including its own row's item."""
    for name, guess in histories.items():
        owner = guess.settings["shared_with"]
        if not isinstance(owner, str):
            continue
        held, own = (pa.array([value.encode() for value in sample.columns[one]], pa.binary()) for one in (name, owner))
        label = np.asarray(clicks, np.float64)
        if text := own_item_gives_away(held, own, guess.settings["separator"], label, owner):
            yield f"{name}: {text}."


def _few_clicks(label: str, clicks: Sequence[float], rows: int) -> Iterator[str]:
    """Yields a sentence if a log has too few clicks to measure a model's quality, or if its clicks end early."""
    shares = sum(clicks), len(clicks) - sum(clicks)
    fewest = round(min(shares) * rows / len(clicks))
    if fewest < _FEWEST_CLICKS:
        of_what = "positive" if shares[0] <= shares[1] else "negative"
        yield f"{label}: {of_what} in {fewest:,} of {rows:,} rows: too few to train a model and to test it."
    if late := rows_without_clicks(np.asarray(clicks, np.float64)):
        yield (
            f"{label}: 0 in the last {late:,} of the first {len(clicks):,} rows, which is not chance: their clicks may "
            "not have arrived yet; leave these rows out of the log."
        )


def _with_nested(histories: dict[str, Guess], guesses: dict[str, Guess], sample: LogSample) -> dict[str, Guess]:
    """Adds the nested lists with as many items per row as a history, such as categories, to the histories."""
    joined: dict[str, Guess] = {}
    for name, guess in histories.items():
        length = [value.count(LIST_SEPARATOR) if value else -1 for value in sample.columns[name]]
        alike = [
            other
            for other in sample.within
            if other not in joined
            and guesses.get(other, guess).settings.get("kind") == "sequence"
            and [value.count(LIST_SEPARATOR) if value else -1 for value in sample.columns[other]] == length
        ]
        alike = [other for other in alike if sample.within[other] == sample.within[alike[0]]]
        if not alike or guess.settings["separator"] != LIST_SEPARATOR:
            continue
        members = [column for column in guesses if column in (name, *alike)]
        settings = {
            **guess.settings,
            "shared_with": [guess.settings["shared_with"] if column == name else None for column in members],
            "within": sample.within[alike[0]],
            "values_per_item": {other: guesses[other].settings["values_per_item"][other] for other in alike},
        }
        joined |= {
            column: Guess(settings, (guess if column == name else guesses[column]).comment) for column in members
        }
    return joined


def _weight(column: str, role: Role) -> list[str]:
    return [f"  #? {_one_line(column)}: {role.comment}", f"  weight: {_flow(column)}"]


def _groups(guesses: dict[str, Guess]) -> list[tuple[dict[str, Any], list[tuple[str, Guess]]]]:
    """Returns the columns grouped by equal settings."""
    groups: dict[str, tuple[dict[str, Any], list[tuple[str, Guess]]]] = {}
    for column, guess in guesses.items():
        if guess.settings:
            groups.setdefault(repr(guess.settings), (guess.settings, []))[1].append((_one_line(column), guess))
    return list(groups.values())


def _comments(members: Sequence[tuple[str, Guess]]) -> Iterator[str]:
    """Yields the comment of each column, one for many columns that follow one another and have the same."""
    for (comment, unsure), alike in itertools.groupby(members, lambda member: (member[1].comment, member[1].unsure)):
        columns = [column for column, _ in alike]
        if len(columns) >= _MANY_ALIKE:
            columns = [f"{columns[0]} to {columns[-1]}, {len(columns):,} columns"]
        yield from (f"  #{'?' if unsure else ''} {column}: {comment}" for column in columns)


def _asked(guesses: Mapping[str, Guess]) -> Iterator[str]:
    """Yields a sentence for each comment on columns to ask about, one for all columns that share it."""
    columns: dict[str, list[str]] = {}
    for name, guess in guesses.items():
        if guess.unsure:
            columns.setdefault(guess.comment, []).append(name)
    for comment, names in columns.items():
        shown = names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1:,} more columns"]
        named = " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)
        yield f"{named}: {comment.removesuffix('?')}{'?' if comment.endswith('?') else '.'}"


def _one_line(column: str) -> str:
    return column.replace("\n", " ")


def _flow(value: object) -> str:
    """Returns a value as single-line YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n...\n").strip()


def write_draft(text: str, output: pathlib.Path | str | None) -> pathlib.Path | str:
    """Writes a configuration to a new file, by default `<name>.yaml`, and returns its path.

    Args:
        text: The configuration.
        output: The file, or its URL in a store, as text.

    Raises:
        InputError: the file exists or cannot be written, or the store refuses a request or does not answer.
    """
    if isinstance(output, str):
        if stores.is_file(output):
            raise _exists(output)
        stores.write_bytes(output, text.encode())
        return output
    path = output or pathlib.Path(f"{read_yaml(text)['name']}.yaml")
    try:
        with open(path, "x") as file:
            file.write(text)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    return path


def _exists(path: pathlib.Path | str) -> InputError:
    return InputError(f"{path}: the file exists, and may have been edited; name another file with --output")
