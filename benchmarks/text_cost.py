"""Measures what features add to the inference time of models with a text: ms per sample of BERT4CTR and four others.

    python -m benchmarks.text_cost [--features 57,90] [--layers 12] [--width 768] [--batch 10] [--repeats 20]

The models have random weights and predict random rows of a fixed length in one process, alternating batch by batch. The
table shows average, median, p90 and p95 of the repeats. Ratios are medians over the repeats of the ratio within one
repeat.
"""

import pathlib
import statistics
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.command import busy, busy_caption, command, device_option, finish, machine, output_option
from benchmarks.harness.devices import load_tensorflow_on
from benchmarks.harness.settings import NUMBERT_TARGETS, SHALLOW_TARGET
from benchmarks.harness.text_batches import LENGTH, batches, feature_map
from ctrpipe.common.progress import announce
from ctrpipe.models import FeatureMap, create
from ctrpipe.serving.latency.papers import batch_seconds

MODELS = ("text_only", "shallow_interaction_1", "shallow_interaction_n", "bert4ctr", "numbert")


def predictor(name: str, data: FeatureMap, layers: int, width: int) -> Callable[[dict[str, Any]], Any]:
    """Returns the prediction function of a model with random weights as it is served: folded, in one graph."""
    # Imported here: TensorFlow takes 3.8 s of CPU time, which --help and option errors should not pay.
    import tensorflow as tf

    from ctrpipe.models.base.ctr_model import empty_row

    model = create(
        name, data, encoder_layers=layers, encoder_width=width, encoder_heads=width // 64, encoder_ffn=4 * width
    )
    model(empty_row(data))
    model.fold()
    graph = tf.function(lambda inputs: model(inputs, training=False))
    return lambda inputs: graph(inputs).numpy()


def measure(features: int, layers: int, width: int, rows: int, repeats: int) -> dict[str, Any]:
    """Returns the milliseconds per sample of each model, and the ratios."""
    data = feature_map(features)
    rows_of = batches(data, rows, repeats + 2)
    calls = {name: (predictor(name, data, layers, width), rows_of) for name in MODELS}
    seconds = batch_seconds(calls)

    def ratio(name: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[name], seconds[other], strict=True))

    return {
        "features": features,
        "models": {name: _milliseconds(values, rows) for name, values in seconds.items()},
        "bert4ctr over shallow_interaction_n": ratio("bert4ctr", "shallow_interaction_n"),
        "numbert over bert4ctr": ratio("numbert", "bert4ctr"),
    }


def _milliseconds(seconds: list[float], rows: int) -> dict[str, float]:
    each = [1000 * value / rows for value in seconds]
    p90, p95 = np.percentile(each, [90, 95])
    return {
        "average": statistics.mean(each),
        "median": statistics.median(each),
        "p90": float(p90),
        "p95": float(p95),
    }


def _table(measured: list[dict[str, Any]], caption: str) -> Table:
    table = Table(title="ms per sample", caption=caption)
    for name in ("features", "model", "average", "median", "p90", "p95"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for case in measured:
        for name, numbers in case["models"].items():
            table.add_row(str(case["features"]), name, *(f"{value:.2f}" for value in numbers.values()))
        shallow, numbert = case["bert4ctr over shallow_interaction_n"], case["numbert over bert4ctr"]
        wanted = NUMBERT_TARGETS.get(case["features"])
        least = f" (>= {wanted:g})" if wanted else ""
        table.add_section()
        table.add_row("", f"bert4ctr / shallow_interaction_n (<= {SHALLOW_TARGET:g})", "", f"{shallow:.3f}")
        table.add_row("", f"numbert / bert4ctr{least}", "", f"{numbert:.2f}")
        table.add_section()
    return table


@command("benchmarks.text_cost")
@click.option("--features", default="57,90", help="Numbers of features, separated by commas.")
@click.option("--layers", type=click.IntRange(1), default=12, help="Layers of the encoder.")
@click.option("--width", type=click.IntRange(64), default=768, help="Width of the encoder, a multiple of 64.")
@click.option("--batch", type=click.IntRange(1), default=10, help="Rows in a batch.")
@click.option("--repeats", type=click.IntRange(2), default=20)
@device_option
@output_option("text_cost")
def main(features: str, layers: int, width: int, batch: int, repeats: int, device: str, output: pathlib.Path) -> None:
    """Measure what features add to the inference time of models with a text.

    Prints a table of milliseconds and ratios, and writes the report as JSON.
    """
    load_tensorflow_on(device)
    load = busy()
    measured = []
    for count in (int(text) for text in features.split(",")):
        announce(f"{count} features: {', '.join(MODELS)}")
        measured.append(measure(count, layers, width, batch, repeats))
    settings = {"layers": layers, "width": width, "batch": batch, "repeats": repeats, "length": LENGTH}
    report = {"benchmark": "text_cost", "machine": machine(), "busy": load, **settings, "measured": measured}
    finish(report, output, _table(measured, busy_caption(load)))


if __name__ == "__main__":
    main()
