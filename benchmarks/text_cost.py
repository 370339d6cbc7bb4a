"""Measures what features add to the inference time of models with a text: ms per sample of BERT4CTR and four others.

    python -m benchmarks.text_cost [--features 57,90] [--layers 12] [--width 768] [--batch 10] [--repeats 20]

The models have random weights and predict random rows of a fixed length in one process, alternating batch by batch. The
table shows average, median, p90 and p95 of the repeats. Ratios are medians over the repeats of the ratio within one
repeat.
"""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import device_option, positive_numbers
from benchmarks.harness.devices import load_tensorflow_on
from benchmarks.harness.result_table import if_any, result_table
from benchmarks.harness.settings import NUMBERT_TARGETS, SHALLOW_TARGET
from benchmarks.harness.text_batches import LENGTH, batches, feature_map
from benchmarks.harness.turns import ratios
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

    return {
        "features": features,
        "models": {name: _milliseconds(values, rows) for name, values in seconds.items()},
        "bert4ctr over shallow_interaction_n": ratios(seconds["bert4ctr"], seconds["shallow_interaction_n"])["median"],
        "numbert over bert4ctr": ratios(seconds["numbert"], seconds["bert4ctr"])["median"],
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


def table(report: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any] | None] = []
    for case in report["measured"]:
        features, wanted = case["features"], NUMBERT_TARGETS.get(case["features"])
        rows += [{"features": features, "model": name, **numbers} for name, numbers in case["models"].items()]
        shallow = f"bert4ctr / shallow_interaction_n (<= {SHALLOW_TARGET:g})"
        numbert = "numbert / bert4ctr" + (f" (>= {wanted:g})" if wanted else "")
        rows += [None, {"model": shallow, "median": case["bert4ctr over shallow_interaction_n"]}]
        rows += [{"model": numbert, "median": case["numbert over bert4ctr"]}, None]
    times = {name: if_any(name, f"{{{name}:.2f}}") for name in ("average", "median", "p90", "p95")}
    return result_table(
        "ms per sample", {"features": if_any("features", "{features}"), "model": "{model}", **times}, rows
    )


@Benchmark("benchmarks.text_cost", table)
@click.option("--features", default="57,90", help="Numbers of features, separated by commas.")
@click.option("--layers", type=click.IntRange(1), default=12, help="Layers of the encoder.")
@click.option("--width", type=click.IntRange(64), default=768, help="Width of the encoder, a multiple of 64.")
@click.option("--batch", type=click.IntRange(1), default=10, help="Rows in a batch.")
@click.option("--repeats", type=click.IntRange(2), default=20)
@device_option
def main(report: Report, features: str, layers: int, width: int, batch: int, repeats: int, device: str) -> None:
    """Measure what features add to the inference time of models with a text.

    Prints a table of milliseconds and ratios, and writes the report as JSON.
    """
    counts = positive_numbers("--features", features)
    load_tensorflow_on(device)
    report.add_load()
    settings = {"layers": layers, "width": width, "batch": batch, "repeats": repeats, "length": LENGTH}
    report |= {**settings, "measured": []}
    for count in counts:
        announce(f"{count} features: {', '.join(MODELS)}")
        report["measured"].append(measure(count, layers, width, batch, repeats))
        report.write()


if __name__ == "__main__":
    main()
