"""Prints the reference of all keys: `python -m ctrpipe.pipeline.config.reference > docs/configuration.md`."""

import html
import inspect
import re
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import annotated_types
import pydantic
import yaml
from pydantic.fields import FieldInfo

from ctrpipe.pipeline.config import model_reference
from ctrpipe.pipeline.config.run_config import RunConfig

INTRODUCTION = """\
# Configuration

<!-- Printed by `python -m ctrpipe.pipeline.config.reference` from pipeline/config/, transforms/log/spec.py and
models/: edit those. -->

One YAML file says everything about a run. An unknown key, a value of a wrong type or a missing required key is one line
on the terminal that names the file, the key and what was expected, and exit code 2.

Any key can be given on the command line as well, its value as YAML: `--set training.epochs=2`,
`--set 'gates={auc: {min: 0.7}}'`. The files in `configs/` are complete examples.

`extends: PATH` begins with what another file says; the path is relative to the file that names it. Mappings are merged
key by key, and what the file itself says wins; lists and all other values are replaced as a whole. The other file may
extend a third one; a circle is an error. What a run records and hashes is the whole configuration, so it makes no
difference in which file a key stands.

```yaml
extends: configs/criteo/deepfm.yaml
name: mine
data: {split: {by: hash}}          # format, columns and labels stay
model: {hidden_units: [300, 100]}  # the list is replaced
```
"""
_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null", Any: "anything"}


class Section(NamedTuple):
    """A class of the configuration, and the keys whose value it is."""

    model: type[pydantic.BaseModel]
    places: list[str]

    @property
    def heading(self) -> str:
        return ", ".join(self.places) or "The file's top level"

    @property
    def link(self) -> str:
        """The heading's anchor, as GitHub and Python-Markdown generate it."""
        return re.sub(r"[^\w\- ]", "", self.heading).strip().lower().replace(" ", "-")

    @property
    def meaning(self) -> str:
        return self._documentation[0].strip()

    @property
    def example(self) -> str:
        """YAML that is valid in a configuration."""
        return textwrap.dedent(self._documentation[1].strip("\n"))

    @property
    def _documentation(self) -> tuple[str, str]:
        before, _, after = (inspect.getdoc(self.model) or "").partition("Example:\n")
        return before, after


def sections() -> list[Section]:
    """Returns all sections of a configuration, each after the one that contains it."""
    places: dict[type[pydantic.BaseModel], list[str]] = {RunConfig: []}
    for section, place in _below(RunConfig, ""):
        places.setdefault(section, []).append(place)
    return [Section(section, places[section]) for section in places]


def _below(section: type[pydantic.BaseModel], place: str) -> Iterator[tuple[type[pydantic.BaseModel], str]]:
    for name, field in section.model_fields.items():
        key = f"{place}.{name}" if place else name
        for inner, suffix in _sections(field.annotation):
            yield inner, f"`{key}{suffix}`" if not _kind(inner) else f"`{key}` of kind `{_kind(inner)}`"
            yield from _below(inner, f"{key}{suffix}")


def _sections(annotation: Any, suffix: str = "") -> Iterator[tuple[type[pydantic.BaseModel], str]]:
    """Yields the sections that a type contains, and the part of the path between the key and their keys."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation, suffix
    for inner in get_args(annotation):
        yield from _sections(inner, suffix + ".NAME" if get_origin(annotation) is dict else suffix)


def _kind(section: type[pydantic.BaseModel]) -> str:
    """Returns the value of `kind` that selects the section; empty where it has no `kind`."""
    field = section.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field else ""


def reference() -> str:
    """Returns the reference as Markdown: for each section a table of its keys and an example, then hyperparameters."""
    known = sections()
    models = model_reference.chapter(lambda type_: _words(type_, []), lambda value: _code(_yaml(value)), _cell)
    return "\n".join([INTRODUCTION, *(_chapter(section, known) for section in known), models])


def _chapter(section: Section, known: list[Section]) -> str:
    rows = [_row(name, field, known) for name, field in section.model.model_fields.items()]
    header = "| key | type | default | meaning | example |\n|---|---|---|---|---|"
    table = "\n".join([header, *rows])
    return f"## {section.heading}\n\n{section.meaning}\n\n{table}\n\n```yaml\n{section.example}\n```\n"


def _row(name: str, field: FieldInfo, known: list[Section]) -> str:
    meaning = " ".join((field.description or "").split())
    example = ", ".join(_code(_yaml(value)) for value in field.examples or [])
    return f"| `{name}` | {_type(field, known)} | {_default(field)} | {_cell(meaning)} | {example} |"


def _type(field: FieldInfo, known: list[Section]) -> str:
    return ", ".join([_words(field.annotation, known), *_limits(field.metadata)])


def _words(annotation: Any, known: list[Section]) -> str:
    """Returns a type in plain words, with links to the sections that it names."""
    for section in known:
        if annotation is section.model:
            return f"[{_kind(section.model) or 'section'}](#{section.link})"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _either([f"`{value}`" for value in arguments])
    if origin is Annotated:
        rules = [rule for field in annotation.__metadata__ for rule in getattr(field, "metadata", [])]
        return ", ".join([_words(arguments[0], known), *_limits(rules)])
    if origin in (list, Sequence):
        item = _words(arguments[0], known)
        return f"list of {item}s" if item.endswith("number") else f"list of {item}"
    if origin in (dict, Mapping):
        return f"mapping of {_words(arguments[0], known)} to {_words(arguments[1], known)}"
    if origin in (Union, types.UnionType):
        return _either([_words(argument, known) for argument in arguments])
    return _WORDS[annotation]


def _either(texts: list[str]) -> str:
    return " or ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _limits(rules: list[Any]) -> list[str]:
    """Returns the limits that a field's rules set; descriptions explain patterns and validators."""
    limits = []
    for rule in rules:
        match rule:
            case annotated_types.Ge(bound):
                limits.append(f"at least {bound}")
            case annotated_types.Gt(bound):
                limits.append(f"above {bound}")
            case annotated_types.Le(bound):
                limits.append(f"at most {bound}")
            case annotated_types.Lt(bound):
                limits.append(f"below {bound}")
            case annotated_types.MinLen():
                limits.append("not empty")
    return limits


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, pydantic.BaseModel):
        return "the section's defaults"
    return _code(_yaml(field.default))


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def _code(text: str) -> str:
    """Returns text in a code span; a table's cell ends at a bar, also inside one."""
    return f"<code>{_cell(html.escape(text, quote=False))}</code>" if "|" in text else f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


if __name__ == "__main__":
    print(reference(), end="")
