"""The search space: keys of a configuration and the values that they may take."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config import RunConfig, SearchRange, as_settings, check_config
from ctrpipe.pipeline.run.run import check_options
from ctrpipe.pipeline.sweep.plan import VARIABLE, value_text
from ctrpipe.pipeline.tune.default_space import Values, default_space, own_value

FIXED = {
    "model.name": "tune one model at a time, each with the same budget",
    "training.monitor": "--objective says what is compared",
    "training.evaluations_per_epoch": "trials are compared evaluation by evaluation",
    "training.backend": "it changes no result",
    "training.refit": "trials are compared on the validation rows, which a refit learns from",
}


@dataclasses.dataclass(frozen=True)
class Space:
    """The search space of a study.

    Attributes:
        values: The list of values or the range of each key.
        distributions: The same as Optuna distributions. The values of a list are represented by labels.
        path: The configuration's file, for error messages.
        base: The configuration that the values modify.
    """

    values: dict[str, Values]
    distributions: dict[str, BaseDistribution]
    path: pathlib.Path
    base: RunConfig

    @property
    def points(self) -> float:
        """The number of points. Infinite if a key takes any number in a range."""
        return math.prod(map(_count, self.distributions.values()))

    def settings(self, parameters: Mapping[str, object]) -> dict[str, Any]:
        """Returns the values by key that Optuna's parameters represent."""
        return {key: self._value(key, parameter) for key, parameter in parameters.items()}

    def _value(self, key: str, parameter: object) -> Any:
        values = self.values[key]
        if isinstance(values, SearchRange):
            return 0.0 if parameter == self._instead_of_zero(key) else parameter
        return {_label(value): value for value in values}[parameter]

    def _instead_of_zero(self, key: str) -> float | None:
        """Returns the lowest number of a logarithmic range if it stands for the configuration's 0, otherwise None."""
        distribution = self.distributions[key]
        has_none = getattr(distribution, "log", False) and own_value(self.base, key) == 0
        return distribution.low if has_none else None  # type: ignore[attr-defined]

    def config(self, parameters: Mapping[str, object]) -> RunConfig:
        """Returns the configuration that Optuna's parameters represent.

        Raises:
            InputError: the values are not compatible.
        """
        return with_settings(self.base, self.settings(parameters), self.path)

    def own_parameters(self) -> dict[str, Any]:
        """Returns the configuration's own values as Optuna's parameters, without values outside the space.

        A logarithmic range cannot include 0. If the configuration has 0, the range's lowest number stands for it.
        """
        parameters = {}
        for key, distribution in self.distributions.items():
            value = own_value(self.base, key)
            parameter = value if isinstance(self.values[key], SearchRange) else _label(value)
            if not isinstance(distribution, CategoricalDistribution):
                low, high = distribution.low, distribution.high  # type: ignore[attr-defined]
                if value == 0 and self._instead_of_zero(key) is not None:
                    parameter = value = low
                inside = isinstance(value, int | float) and low <= value <= high
            else:
                inside = parameter in distribution.choices
            if inside:
                parameters[key] = parameter
        return parameters


def make_space(config: RunConfig, path: pathlib.Path) -> Space:
    """Returns the space of `search`, or the model's default space. Its base configuration has no `search`.

    Raises:
        InputError: the space is empty, names a key that does not exist or cannot be searched, or has a value that a key
            cannot take.
    """
    if config.search is not None and not config.search:
        raise InputError(f"{path}: search: the search space is empty; name keys, or leave it out for the model's own")
    check_options(config)
    values = default_space(config) if config.search is None else config.search
    base = config.model_copy(update={"search": None})
    distributions = {}
    for key, of_key in values.items():
        _check_key(key, base, path)
        tried = of_key.ends if isinstance(of_key, SearchRange) else of_key
        if not tried:
            raise InputError(f"{path}: search: {key}: the list of values is empty; give it a value")
        distributions[key] = _distribution(key, of_key, base, path)
        for value in tried:
            whole = isinstance(distributions[key], IntDistribution)
            try:
                check_options(with_settings(base, {key: round(value) if whole else value}, path))
            except InputError as error:
                raise InputError(f"{path}: search: {key}: {str(error).removeprefix(f'{path}: ')}") from error
    return Space(values, distributions, path, base)


def with_settings(config: RunConfig, settings: Mapping[str, object], path: pathlib.Path) -> RunConfig:
    """Returns the configuration with some values replaced, by key.

    Raises:
        InputError: a key is unknown or cannot take the value.
    """
    plain = config.model_dump(mode="json", exclude_unset=True, exclude={"search"})
    return check_config(plain, as_settings(dict(settings)), path)


def _check_key(key: str, base: RunConfig, path: pathlib.Path) -> None:
    if key in FIXED:
        raise InputError(f"{path}: search: {key} cannot be searched: {FIXED[key]}; remove it")
    section, _, option = key.partition(".")
    if section not in VARIABLE or not option:
        raise InputError(f"{path}: search: {key}: unknown key; only model.<key> and training.<key> can be searched")


def _distribution(key: str, values: Values, base: RunConfig, path: pathlib.Path) -> BaseDistribution:
    if not isinstance(values, SearchRange):
        labels = [_label(value) for value in values]
        if len(set(map(repr, labels))) < len(labels):
            raise InputError(f"{path}: search: {key}: a value appears twice; remove one of them")
        return CategoricalDistribution(labels)
    low, high = values.ends
    present = own_value(base, key)
    if isinstance(present, bool | str | list | tuple):
        raise InputError(f"{path}: search: {key} takes no numbers of a range; give a list of values")
    if isinstance(present, int):
        if low != round(low) or high != round(high):
            raise InputError(f"{path}: search: {key} takes whole numbers. Received: [{low:g}, {high:g}]")
        return IntDistribution(round(low), round(high), log=values.log is not None)
    return FloatDistribution(low, high, log=values.log is not None)


def _label(value: object) -> Any:
    """Returns a value as a choice for Optuna, which stores only plain types."""
    return value if isinstance(value, bool | int | float | str) else value_text(value)


def _count(distribution: BaseDistribution) -> float:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    if isinstance(distribution, IntDistribution):
        return distribution.high - distribution.low + 1
    return math.inf
