"""Generates the reference chapter on hyperparameters from the models' constructors and docstrings."""

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from ctrpipe.models.base.ctr_model import NO_OPTIONS, CTRModel
from ctrpipe.models.base.registry import ModelInfo, available, model_class
from ctrpipe.models.text.text_model import TextModel
from ctrpipe.models.token_transformer import TokenTransformer

INTRODUCTION = """\
## Hyperparameters of the models

These keys belong next to `name` in `model` and in `evaluation.baseline`, such as `model: {name: deepfm, dropout: 0.1}`.
A model takes the keys of its own table and those of the tables that it names. In the formulas E are the embeddings of
the fields, and x is E side by side, with the dense features; [Models](models.md) says which equation is where.
"""
# Base classes whose hyperparameters are shared by several models, with the headings of their tables.
SHARED: dict[type[CTRModel], str] = {
    CTRModel: "Every model",
    TextModel: "Models that read a text",
    TokenTransformer: "Transformers over the fields",
}


_IN_YAML = {"None": "null", "True": "true", "False": "false", "()": "[]"}


class Option(NamedTuple):
    """A hyperparameter of a class: type and default from the constructor, meaning from the docstring."""

    name: str
    type: Any
    default: Any
    meaning: str


def chapter(words: Callable[[Any], str], value: Callable[[Any], str], cell: Callable[[str], str]) -> str:
    """Returns the chapter as Markdown.

    Args:
        words: Returns a type in plain words.
        value: Returns a value as YAML in backticks.
        cell: Escapes a text for a table cell.
    """

    def table(options: list[Option]) -> str:
        header = "| key | type | default | meaning |\n|---|---|---|---|"
        rows = (f"| `{o.name}` | {words(o.type)} | {value(o.default)} | {cell(_in_yaml(o.meaning))} |" for o in options)
        return "\n".join([header, *rows]) + "\n"

    parts = [INTRODUCTION]
    for base, heading in SHARED.items():
        parts.append(f"### {heading}\n\n{table(list(documented(base).values()))}")
    for model in available():
        own, inherited, changed = options_of(model)
        text = [f"### {model.name}", description(model_class(model.name))]
        if model.paper != "-":
            text.append(f"Source: {model.paper}.")
        if own:
            text.append(table(own).rstrip())
        if inherited:
            text.append(f"Also the keys of {', '.join(inherited)}.")
        if changed:
            defaults = ", ".join(f"`{name}` {value(default)}" for name, default in changed.items())
            text.append(f"Defaults that differ: {defaults}.")
        parts.append("\n\n".join(text) + "\n")
    return "\n".join(parts)


def _in_yaml(meaning: str) -> str:
    """Replaces the values of Python in a description by those of a configuration."""
    return re.sub(r"\b(None|True|False)\b|(?<!\w)\(\)", lambda found: f"`{_IN_YAML[found[0]]}`", meaning)


def options_of(model: ModelInfo) -> tuple[list[Option], list[str], dict[str, Any]]:
    """Returns a model's own options, links to its shared tables, and its defaults that differ from the shared ones."""
    owners = {name: _owner(model_class(model.name), name) for name in model.options}
    own = [
        option._replace(default=model.options[name]) for name, (owner, option) in owners.items() if owner not in SHARED
    ]
    bases = [base for base in SHARED if base in {owner for owner, _ in owners.values()}]
    links = [f"[{SHARED[base].lower()}](#{SHARED[base].lower().replace(' ', '-')})" for base in bases]
    # Several shared tables may list the same key with different defaults.
    changed = {
        option.name: model.options[option.name]
        for base in bases
        for option in documented(base).values()
        if owners[option.name][0] in SHARED and option.default != model.options[option.name]
    }
    return own, links, changed


def description(model: type[CTRModel]) -> str:
    """Returns the part of a model's docstring before `Args:`: the description and the formula."""
    text, _, _ = (inspect.getdoc(model) or "").partition("\nArgs:")
    return text.strip()


def documented(owner: type[CTRModel]) -> dict[str, Option]:
    """Returns the hyperparameters that both the constructor and the docstring of a class name."""
    constructor = vars(owner).get("__init__")
    if constructor is None:
        return {}
    hints = typing.get_type_hints(constructor)
    parameters = inspect.signature(constructor).parameters
    return {
        name: Option(name, hints[name], parameters[name].default, meaning)
        for name, meaning in _meanings(owner).items()
        if name in parameters and parameters[name].default is not inspect.Parameter.empty and name not in NO_OPTIONS
    }


def _owner(model: type[CTRModel], name: str) -> tuple[type[CTRModel], Option]:
    """Returns the class that documents a hyperparameter, and its option.

    Searches the model and its base classes, then those of its downstream model, then those of TextModel.

    Raises:
        LookupError: no docstring documents it.
    """
    inside = getattr(model, "downstream_class", CTRModel)
    for owner in (*model.__mro__, *inside.__mro__, *TextModel.__mro__):
        option = documented(owner).get(name) if issubclass(owner, CTRModel) else None
        if option:
            return owner, option
    raise LookupError(f"{model.__name__}: no docstring says what {name} is")


def _meanings(owner: type[CTRModel]) -> dict[str, str]:
    """Returns the description of each argument in a class docstring, without type and default."""
    block = re.search(r"^Args:\n((?: {4}.*\n?|\n)*)", inspect.getdoc(owner) or "", re.MULTILINE)
    meanings: dict[str, str] = {}
    for entry in re.finditer(r"^ {4}(\w[^:\n]*): (.*(?:\n {8}.*)*)", block[1] if block else "", re.MULTILINE):
        text = re.sub(r" ?\bDefaults? to .*$", "", " ".join(entry[2].split()))
        meanings |= dict.fromkeys(entry[1].split(", "), re.sub(r"^(?:[\w ]+)\. ", "", text, count=1))
    return meanings
