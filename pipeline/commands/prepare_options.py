"""Turns the options of `ctrpipe prepare history`, `join` and `labels` into sections of a configuration."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pydantic

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.histories import EventLog
from ctrpipe.transforms.log.impression_lists import ImpressionLists
from ctrpipe.transforms.log.section import Section
from ctrpipe.transforms.log.side_tables import Join
from ctrpipe.transforms.log.spec import LabelDelay

_Section = TypeVar("_Section", bound=Section)


def events_of_options(options: Mapping[str, Any]) -> EventLog:
    """Returns the EventLog that the options describe.

    Args:
        options: The options by name, as in `EventLog`. `label` is a column, and `threshold` is an option of its own.
            `columns` is a comma-separated text.

    Raises:
        InputError: the options contradict each other.
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    threshold = given.pop("threshold", None)
    if threshold is not None and "label" not in given:
        raise InputError("--threshold needs --label, the column to compare with it")
    if threshold is not None:
        given["label"] = {"column": given["label"], "threshold": threshold}
    if "columns" in given:
        given["columns"] = given["columns"].split(",")
    return _checked(EventLog, given)


def join_of_options(tables: Sequence[str], options: Mapping[str, Sequence[str]], of_log: Mapping[str, object]) -> Join:
    """Returns the Join that the options describe.

    Args:
        tables: The files or globs of the side tables.
        options: The options given once per table, in order, or once for all tables, by their names in `SideTable`. `on`
            is a comma-separated list of columns or LOG=TABLE pairs. `-` means no value.
        of_log: The options of the log, as in `Join`.

    Raises:
        InputError: the options contradict each other.
    """
    given: list[dict[str, Any]] = [{"paths": [table]} for table in tables]
    for name, values in options.items():
        if len(values) not in (0, 1, len(tables)):
            raise InputError(
                f"--{name}: {len(values)} of them for {len(tables)} tables; give one per table in their order, or one "
                "for all"
            )
        for table, value in zip(given, itertools.cycle(values) if len(values) == 1 else values, strict=False):
            if value != "-":
                table[name] = _key(value) if name == "on" else value
    return _checked(Join, {**{name: value for name, value in of_log.items() if value}, "tables": given})


def impressions_of_options(options: Mapping[str, object]) -> ImpressionLists:
    """Returns the ImpressionLists that the options describe.

    Raises:
        InputError: the options contradict each other.
    """
    return _checked(ImpressionLists, options)


def _key(text: str) -> dict[str, str]:
    pairs = (column.partition("=") for column in text.split(","))
    return {of_log: of_table or of_log for of_log, _, of_table in pairs}


def label_delay_of_options(labels: str, options: Mapping[str, object]) -> LabelDelay | None:
    """Returns the LabelDelay that the options describe, or None if no option is about times.

    Args:
        labels: The labels' file or glob.
        options: The options by name, as in `LabelDelay`. None for an option that was not given.

    Raises:
        InputError: the options contradict each other.
    """
    given = {name: value for name, value in options.items() if value is not None}
    of_times = [name for name in given if name not in ("key", "unmatched")]
    if not of_times:
        return None
    for name, other in (("time", "the column of the rows' times"), ("delay", "how long a label may take, as 3d")):
        if name not in given:
            raise InputError(f"--{of_times[0].replace('_', '-')} needs --{name}, {other}")
    if "key" not in given:
        raise InputError("--delay: labels that arrive late are joined by a key; give --key, a column of both")
    return _checked(LabelDelay, {**given, "labels": [labels]})


def _checked(section: type[_Section], given: Mapping[str, object]) -> _Section:
    try:
        return section.model_validate(given)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = "".join(f"--{str(name).replace('_', '-')}: " for name in first["loc"][:1])
        raise InputError(option + first["msg"].removeprefix("Value error, ")) from error
