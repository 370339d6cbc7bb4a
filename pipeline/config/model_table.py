"""The table of `ctrpipe models`: every model with its paper, its size and its options."""

import dataclasses
import json
import pathlib
from typing import Any

import rich.markup
import rich.table

from ctrpipe.common.terminal import console

REFERENCE = pathlib.Path(__file__).with_suffix(".json")


@dataclasses.dataclass(frozen=True)
class ModelTable:
    """The registry's models with their sizes for a log's features.

    Args:
        where: The features that the sizes are for, in words.
        shared_options: The options that every model has, with their defaults.
        models: Per model `name`, `paper`, `description`, `options`, `parameters` and `parameters_without_embeddings`
            (both None where the features cannot be the model's).
    """

    where: str
    shared_options: dict[str, Any]
    models: list[dict[str, Any]]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def read_reference() -> ModelTable:
    """Returns the table of the reference features, as ctrpipe.pipeline.demo.model_sizes counted and kept it.

    Kept, because counting builds every model: half a minute. A test compares it with a fresh count.
    """
    return ModelTable(**json.loads(REFERENCE.read_text(encoding="utf-8")))


def print_models(table: ModelTable) -> None:
    """Prints the table; options that every model has with the same default stand below it."""
    shared = table.shared_options
    shown = rich.table.Table(title=f"Parameters: {table.where}", show_lines=True)
    shown.add_column("model\npaper")
    shown.add_column("parameters\nwithout embeddings", justify="right", no_wrap=True)
    shown.add_column("what it is\noptions and their defaults", overflow="fold")
    for model in table.models:
        own = {key: value for key, value in model["options"].items() if key not in shared or value != shared[key]}
        size = f"{_number(model['parameters'])}\n{_number(model['parameters_without_embeddings'])}"
        about = rich.markup.escape(f"{model['description']}\n{_options(own)}")
        shown.add_row(f"[bold]{model['name']}[/bold]\n{model['paper']}", size, about)
    terminal = console()
    terminal.print(shown)
    terminal.print(f"All but lr, unless it says otherwise: {_options(shared)}", markup=False)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"{key}={_value(value)}" for key, value in options.items())


def _value(value: Any) -> str:
    return "null" if value is None else str(list(value)) if isinstance(value, list | tuple) else str(value).lower()
