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
    """The registered models with their sizes for a set of features.

    Args:
        where: A description of the features.
        shared_options: The options that every model has, with their defaults.
        models: For each model `name`, `paper`, `description`, `options`, `parameters` and
            `parameters_without_embeddings`. The last two are None if the model cannot use these features.
    """

    where: str
    shared_options: dict[str, Any]
    models: list[dict[str, Any]]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def read_reference() -> ModelTable:
    """Returns the stored table of the reference features, written by ctrpipe.pipeline.run.model_sizes.

    The table is stored because counting builds every model, which takes half a minute. A test compares it with a new
    count.
    """
    return ModelTable(**json.loads(REFERENCE.read_text(encoding="utf-8")))


def print_models(table: ModelTable) -> None:
    """Prints the table. Options that every model has with the same default are listed below it."""
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


def _value(value: object) -> str:
    return "null" if value is None else str(list(value)) if isinstance(value, list | tuple) else str(value).lower()
