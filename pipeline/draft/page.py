"""Drafts a commented configuration for a log without one (`ctrpipe init`)."""

import dataclasses
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import excerpt
from ctrpipe.common.stores import name_of
from ctrpipe.pipeline.config.load import check_config, read_yaml
from ctrpipe.pipeline.config.packaged_configs import configs_folder
from ctrpipe.pipeline.draft.columns import LabelGuess, guess_column, guess_label
from ctrpipe.pipeline.draft.roles import Role, may_be_weight, roles
from ctrpipe.pipeline.draft.sets.mind import impressions_column, is_behaviors
from ctrpipe.pipeline.draft.sets.registry import SETS, draft_of_behaviors, draft_of_set
from ctrpipe.transforms.kddcup2012 import is_kddcup2012
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.kinds.guess import Guess
from ctrpipe.transforms.log.sample import LogSample, read_sample

# The settings of configs/criteo/dcn_v2.yaml, with wider embeddings. `python -m benchmarks.baseline` compares them with
# a logistic regression on small logs.
_MODEL = (
    "model:",
    "  {name: dcn_v2, embedding_dim: 16, layers: 2, hidden_units: [64, 32], dropout: 0.2, use_linear: true, "
    "linear_rate: 3.0}",
    "training:",
    "  epochs: 30  # stops earlier where the validation rows get no better",
    "  batch_size: 256  # on millions of rows 4096, which is faster",
    "  evaluations_per_epoch: 2",
    "  patience: 8",
    "  plateau: {factor: 0.3, patience: 3}",
    "  averaged_evaluations: 2",
    "  learning_rate: 0.0033  # times linear_rate for the linear part; on millions of rows begin with 0.001",
    "  table_l2: 0.0036",
    "  regularisation_rows: 42000  # what table_l2 and dropout are stated for; more rows need less of them",
    "  end_at_base_rate: true  # the mean prediction is the click rate of the training rows",
)


def draft(patterns: Sequence[str], label: str | None = None, name: str | None = None) -> tuple[str, list[str]]:
    """Returns the YAML of a configuration for a log, and a sentence for each uncertain guess.

    Args:
        patterns: The log's files and globs.
        label: The label column; None: the most likely one.
        name: The configuration's name for an in-memory log; its files are then not listed. None: derived from the file
            name.

    Raises:
        InputError: a file cannot be read, or no column looks like a label.
    """
    if is_kddcup2012(pathlib.Path(patterns[0])):
        return _of_kddcup2012(patterns[0]), []
    path = find_files(list(patterns))[0]
    sample = read_sample(path)
    if is_behaviors(sample):
        return draft_of_behaviors(patterns, name or _name_of(path)), ["The files are taken for MIND's behaviors.tsv."]
    if lists := impressions_column(sample):
        raise InputError(
            f"{path}: {lists} lists impressions, as '{excerpt(sample.columns[lists][0])}'; make a row of each by "
            f"ctrpipe prepare impressions {excerpt(patterns[0])} OUTPUT --column {lists}"
        )
    target = _label(path, sample, label)
    left_out = {target.column, *target.others}
    of_no_feature = roles(sample, target.column, target.clicks(sample.columns[target.column]))
    weights = {name: role for name, role in of_no_feature.items() if role.is_weight and name not in left_out}
    left_out |= set(weights)
    guesses = {
        name: _guess(name, values, name in sample.lists, of_no_feature.get(name))
        for name, values in sample.columns.items()
        if name not in left_out
    }
    if not any(guess.settings for guess in guesses.values()):
        raise InputError(f"{path}: no column besides the label {target.column} carries information; is this a log?")
    unsure = list(sample.unsure)
    unsure += [f"{name}: {guess.comment}." for name, guess in guesses.items() if guess.unsure]
    unsure += [f"{name}: {role.comment}" for name, role in weights.items()]
    unsure += [f"{name} looks like a label too, and is left out: it would betray the label." for name in target.others]
    text = _page(None if name else patterns, name or _name_of(path), sample, target, guesses, weights)
    check_config(read_yaml(text), (), path)
    return text, unsure


def draft_of_known(dataset: str, patterns: Sequence[str], label: str | None = None) -> tuple[str, list[str]]:
    """Returns the YAML of a configuration for a published data set, and no uncertain guess.

    Args:
        dataset: The name of the data set.
        patterns: Its folder.
        label: Must be None: the label of the set is known.

    Raises:
        InputError: there is no such set, or the folder lacks its files.
    """
    if dataset not in SETS:
        raise InputError(f"--dataset {dataset}: unknown; the known sets are {', '.join(SETS)}")
    if len(patterns) != 1 or label is not None:
        given = "--label" if label is not None else f"{len(patterns)} paths"
        raise InputError(f"--dataset {dataset} and {given}: give the folder of the set alone")
    return draft_of_set(dataset, pathlib.Path(patterns[0])), []


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
        raise InputError(f"{path}: --label {label}: no such column; it has {excerpt(', '.join(sample.columns))}")
    guess = guess_label(sample, label)
    if guess is None and label is not None:
        values = excerpt(", ".join(sorted(set(sample.columns[label]))[:5]))
        raise InputError(f"{path}: --label {label}: {values} are not values of a label; write data.labels by hand")
    if guess is None:
        raise InputError(
            f"{path}: none of {excerpt(', '.join(sample.columns))} looks like a label; name it with --label"
        )
    return guess


def _name_of(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name_of(path).split(".")[0]).strip("-.") or "log"


def _page(
    patterns: Sequence[str] | None,
    name: str,
    sample: LogSample,
    label: LabelGuess,
    guesses: dict[str, Guess],
    weights: dict[str, Role],
) -> str:
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
        f"  labels: {{ctr: {_flow(label.rule)}}}",
        *(line for column, role in weights.items() for line in _weight(column, role)),
        *_split(sample, guesses, label),
        "features:",
    ]
    for settings, members in _groups(guesses):
        lines += [f"  #{'?' if guess.unsure else ''} {column}: {guess.comment}" for column, guess in members]
        entry = {"columns": [column for column, _ in members], **settings}
        lines.append(f"  - {_flow(entry)}")
    lines += [f"  #? {_one_line(column)}: {guess.comment}" for column, guess in guesses.items() if not guess.settings]
    lines += [
        "# `ctrpipe models` lists the others.",
        *_MODEL,
        "evaluation: {baseline: {name: lr}}  # a logistic regression on the same rows",
        "# A model that misses a gate, or is worse than the base rate (gates: {rig: {min: 0}}), is not pushed:",
        "# gates: {auc: {min: 0.6}, calibration: {min: 0.9, max: 1.1}}",
    ]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"


def _guess(name: str, values: Sequence[str], is_list: bool, role: Role | None) -> Guess:
    if role:
        return Guess({}, role.comment, True)
    guess = guess_column(name, values, is_list)
    if guess.settings and not is_list and may_be_weight(name, values):
        comment = f"{guess.comment}; or the weight of the row (data.weight)?"
        return dataclasses.replace(guess, comment=comment, unsure=True)
    return guess


def _weight(column: str, role: Role) -> list[str]:
    return [f"  #? {_one_line(column)}: {role.comment}", f"  weight: {_flow(column)}"]


def _split(sample: LogSample, guesses: dict[str, Guess], label: LabelGuess) -> list[str]:
    times = [name for name, guess in guesses.items() if guess.settings.get("kind") == "time"]
    order, chance = "  split: {by: order}", "  split: {by: hash}"
    if "partitions" in sample.data:
        return ["  # the last rows are the test rows; the folders are read in order, day=2 before day=10", order]
    digits = [name for name in times if all(value.isdigit() for value in sample.columns[name])]
    out_of_order = [name for name in digits if not _rises([int(value) for value in sample.columns[name]])]
    if out_of_order:
        return [f"  # by chance, as {out_of_order[0]} says that the log is not in the order of time", chance]
    if _runs(sample.columns[label.column]) <= 3:
        return ["  # by chance, as the log seems to be sorted by the label", chance]
    return ["  # the log's last rows are the test rows; by: hash draws them by chance", order]


def _rises(numbers: list[int]) -> bool:
    """Returns whether numbers rise from row to row, with falls in at most 20% of the rows."""
    falls = sum(second < first for first, second in zip(numbers, numbers[1:], strict=False))
    return falls <= 0.2 * len(numbers)


def _runs(values: list[str]) -> int:
    return 1 + sum(first != second for first, second in zip(values, values[1:], strict=False))


def _groups(guesses: dict[str, Guess]) -> list[tuple[dict[str, Any], list[tuple[str, Guess]]]]:
    """Returns the columns grouped by equal settings."""
    groups: dict[str, tuple[dict[str, Any], list[tuple[str, Guess]]]] = {}
    for column, guess in guesses.items():
        if guess.settings:
            groups.setdefault(repr(guess.settings), (guess.settings, []))[1].append((_one_line(column), guess))
    return list(groups.values())


def _one_line(column: str) -> str:
    return column.replace("\n", " ")


def _flow(value: Any) -> str:
    """Returns a value as single-line YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n...\n").strip()


def write_draft(text: str, output: pathlib.Path | None) -> pathlib.Path:
    """Writes a configuration to a new file, by default `<name>.yaml`, and returns its path.

    Raises:
        InputError: the file exists or cannot be written.
    """
    path = output or pathlib.Path(f"{read_yaml(text)['name']}.yaml")
    try:
        with open(path, "x") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(
            f"{path}: the file exists, and may have been edited; name another file with --output"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    return path
