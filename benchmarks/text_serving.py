"""Measures requests to a model with a text: many candidates for one text, and an encoder in fewer bits.

    python -m benchmarks.text_serving [--candidates 1,10,100] [--layers 6] [--width 384] [--length 64] [--repeats 10]
    python -m benchmarks.text_serving --reviews runs/benchmarks/reviews --encoder FOLDER   # and the cost in AUC

BERT4CTR with random weights is exported as in a run, once in every precision. TF Serving's loader calls the exports in
this process, alternating between the compared calls. `each` sends every candidate with the text (serving_raw), `shared`
sends the text once (serving_candidates); both give the same probabilities. With --reviews, the text_only model trained
by studies.reviews with seed 1 predicts the test rows in every precision.
"""

import functools
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
from rich.console import Group

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import positive_numbers
from benchmarks.harness.exported import analysed
from benchmarks.harness.result_table import Cell, if_any, result_table
from benchmarks.harness.reviews import config_of
from benchmarks.harness.turns import in_turn, milliseconds, ratio
from ctrpipe.common import metrics
from ctrpipe.common.arrays import read_arrays
from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.models import create
from ctrpipe.pipeline.run.artifacts import Artifacts
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.transforms.generate import generate
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.spec import LogSpec

COLUMNS = ("click", "age", "device", "category", "shop", "query", "title")
LOG_ROWS, SEED = 3000, 1


def log_spec(length: int) -> LogSpec:
    """Returns the description of the generated log: its features, and its two text columns as `length` tokens."""
    text = {"kind": "text", "columns": list(COLUMNS[5:]), "length": length, "tokens": "vocabulary", "separator": " "}
    return LogSpec.model_validate(
        {
            "data": {"columns": list(COLUMNS), "labels": {"ctr": "click"}},
            "features": [
                {"kind": "numeric", "columns": ["age"], "transform": "min_max"},
                {"kind": "categorical", "columns": list(COLUMNS[2:5])},
                text,
            ],
        }
    )


class Exports:
    """BERT4CTR with random weights, exported in any precision."""

    def __init__(self, folder: pathlib.Path, layers: int, width: int, length: int):
        # Imported here and below: TensorFlow takes 4 s of CPU time, which --help and option errors should not pay.
        import keras

        from ctrpipe.models.base.ctr_model import empty_row

        self.folder, self.spec = folder, log_spec(length)
        log = folder / "log.tsv"
        generate("text", LOG_ROWS, SEED, log)
        self.transform, self.fields, self.rows = analysed(self.spec, log, SEED, folder)
        keras.utils.set_random_seed(SEED)
        shape = {"encoder_layers": layers, "encoder_width": width, "encoder_ffn": 4 * width}
        self.model = create("bert4ctr", self.fields, **shape, encoder_heads=max(width // 32, 1))
        self.model(empty_row(self.fields))

    def save(self, precision: str) -> pathlib.Path:
        """Writes the version and returns its folder."""
        from ctrpipe.serving.export.export import export  # TensorFlow: see __init__

        version = self.folder / precision / "1"
        rows = self.rows.slice(0, 3)
        export(self.model, self.transform, self.spec, self.fields, rows, version, {}, encoder_precision=precision)
        return version

    def request(self, candidates: int) -> dict[str, dict[str, np.ndarray]]:
        """Returns, by signature, the inputs that score `candidates` rows for one text without padding."""
        from ctrpipe.serving.export.export import candidates_of  # TensorFlow: see __init__

        raw = raw_arrays(self.rows.slice(0, candidates), self.spec)
        text = b" ".join(raw_arrays(self.rows.slice(0, self.fields.text.length), self.spec)["query"])
        raw |= {name: np.array([text] * candidates, object) for name in COLUMNS[5:]}
        return {
            "serving_raw": raw,
            "serving_candidates": candidates_of(raw, {}, self.spec)["serving_candidates"],
        }


def sharing(exports: Exports, servable: Any, candidates: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Returns the times of requests with and without a shared text, by the number of candidates.

    Raises:
        InputError: The predictions differ.
    """
    measured = []
    for count in candidates:
        requests = exports.request(count)
        answers = [servable.run(signature, inputs)["ctr"] for signature, inputs in requests.items()]
        difference = float(np.abs(answers[0] - answers[1]).max())
        if not difference <= 1e-6:
            raise InputError(f"{count} candidates: the answers differ by {difference:.1e}; this is a defect")
        calls = {
            signature: lambda signature=signature, inputs=inputs: servable.run(signature, inputs)
            for signature, inputs in requests.items()
        }
        times_of = in_turn(calls, repeats)
        each, shared = times_of["serving_raw"], times_of["serving_candidates"]
        gain = {"gain": ratio(each, shared, "seconds"), "cpu_gain": ratio(each, shared)}
        measured.append(
            {"candidates": count, "each": milliseconds(each), "shared": milliseconds(shared), **gain}
            | {"difference": difference}
        )
        announce(f"{count} candidates: {gain['cpu_gain']:.1f} times")
    return measured


def fewer_bits(exports: Exports, threads: int, rows: int, repeats: int) -> list[dict[str, Any]]:
    """Returns the size and time of the export in every precision, with ratios to float32 in the same repeats."""
    # TensorFlow: see Exports.
    from ctrpipe.models.text.precision import PRECISIONS, in_precision
    from ctrpipe.serving.loader import Servable

    versions = {precision: exports.save(precision) for precision in PRECISIONS}
    servables = {precision: Servable(version, threads) for precision, version in versions.items()}
    raw = exports.request(rows)["serving_raw"]
    exact = servables["float32"].run("serving_raw", raw)["ctr"]
    calls = {
        precision: lambda servable=servable: servable.run("serving_raw", raw)
        for precision, servable in servables.items()
    }
    differences = {name: float(np.abs(call()["ctr"] - exact).max()) for name, call in calls.items()}
    times_of = in_turn(calls, repeats)
    for servable in servables.values():
        servable.close()
    return [
        {
            "precision": name,
            "bytes": sum(path.stat().st_size for path in (versions[name] / "variables").iterdir()),
            "encoder_bytes": encoder_bytes(in_precision(exports.model, name)),
            "rows": rows,
            **milliseconds(times_of[name]),
            "over_float32": ratio(times_of[name], times_of["float32"]),
            "difference": differences[name],
        }
        for name in PRECISIONS
    ]


def encoder_bytes(model: Any) -> int:
    """Returns the bytes of the encoder's weights."""
    return sum(int(np.prod(weight.shape)) * weight.value.dtype.size for weight in model.encoder.weights)


def quality(reviews: pathlib.Path, encoder: pathlib.Path, most: int | None) -> list[dict[str, Any]]:
    """Returns AUC and log loss of the trained text_only on the reviews' test rows, in every precision.

    Raises:
        InputError: The folder has no training run of studies.reviews.
    """
    # TensorFlow: see Exports.
    import tensorflow as tf
    import tensorflow_transform as tft

    from ctrpipe.models.text.precision import PRECISIONS, in_precision
    from ctrpipe.pipeline.training.data import packed_batches, prediction_rows
    from ctrpipe.pipeline.training.tensorflow_learner import make_learner
    from ctrpipe.transforms.features.preprocessing import feature_map

    weights, database = (
        reviews / "work" / "text_only-1" / "checkpoint" / "best.npz",
        reviews / "tfx" / "metadata.sqlite",
    )
    for path in (weights, database):
        if not path.exists():
            raise InputError(f"--reviews {reviews}: {path.name} is absent; run studies.reviews with this --output")
    config = config_of("text_only", 1, reviews, encoder)
    artifacts = Artifacts(database, config.name)
    graph = tft.TFTransformOutput(str(artifacts.folder("LogTransform", "transform_graph")))
    fields = feature_map(config.log_spec, graph)
    learner = make_learner(with_encoder(config.model, config.text), config.training, fields, config.seed)
    learner.load_weights(read_arrays(weights))
    test = [str(artifacts.folder("LogTransform", "transformed_examples") / "Split-test" / "*")]
    size = prediction_rows(fields)
    take = None if most is None else -(-most // size)
    batches = packed_batches(test, fields, size, shuffle_seed=SEED, take=take, by_length=True)
    measured = []
    for precision in PRECISIONS:
        model = in_precision(learner.network, precision)
        logits = tf.function(functools.partial(model, training=False), reduce_retracing=True)
        answers = [(label, tf.sigmoid(logits(inputs))) for inputs, label in batches]
        labels, probabilities = (np.concatenate(values)[:, 0] for values in zip(*answers, strict=True))
        summary = metrics.summarise(labels, probabilities)
        measured.append({"precision": precision, "encoder_bytes": encoder_bytes(model), **summary})
        announce(
            f"{precision}: AUC {summary['auc']:.5f}, log loss {summary['log_loss']:.5f}, {summary['examples']:,} rows"
        )
    return measured


def tables(report: Mapping[str, Any]) -> Group:
    sharing = {
        "candidates": "{candidates}",
        "text with each": "{each[ms]:.1f} ({each[cpu_ms]:.1f})",
        "text shared": "{shared[ms]:.1f} ({shared[cpu_ms]:.1f})",
        "times faster (CPU)": "{gain:.2f} ({cpu_gain:.2f})",
        "difference": "{difference:.0e}",
    }
    precisions: dict[str, Cell] = {
        "precision": "{precision}",
        "export MB": lambda one: f"{one['bytes'] / 1e6:.1f}",
        "encoder MB": lambda one: f"{one['encoder_bytes'] / 1e6:.1f}",
        "ms": "{ms:.1f}",
        "CPU ms": "{cpu_ms:.1f}",
        "CPU / float32": "{over_float32:.2f}",
        "difference": "{difference:.0e}",
        "AUC": if_any("auc", "{auc:.5f}"),
        "log loss": if_any("log_loss", "{log_loss:.5f}"),
    }
    judged = {one["precision"]: {key: one[key] for key in ("auc", "log_loss")} for one in report["quality"]}
    rows = [{**one, **judged.get(one["precision"], {})} for one in report["precisions"]]
    return Group(
        result_table("Candidates for one text: ms of a request (CPU ms)", sharing, report["sharing"]),
        result_table("The encoder in fewer bits", precisions, rows),
    )


@Benchmark("benchmarks.text_serving", tables)
@click.option("--candidates", default="1,10,100", help="Numbers of candidates, separated by commas.")
@click.option("--layers", type=click.IntRange(1), default=6, help="Layers of the encoder.")
@click.option("--width", type=click.IntRange(32), default=384, help="Width of the encoder, a multiple of 32.")
@click.option("--length", type=click.IntRange(8), default=64, help="Tokens of the text.")
@click.option("--rows", type=click.IntRange(1), default=10, help="Rows of a request in the precision measurement.")
@click.option("--threads", type=click.IntRange(0), default=1, help="Threads of TensorFlow; 0: one per core.")
@click.option("--repeats", type=click.IntRange(1), default=10)
@click.option("--reviews", type=click.Path(path_type=pathlib.Path), help="The --output of studies.reviews.")
@click.option("--encoder", type=click.Path(path_type=pathlib.Path), help="The --encoder of studies.reviews.")
@click.option("--test-rows", type=click.IntRange(1), help="Approximate number of the reviews' test rows. Default: all.")
def main(
    report: Report,
    candidates: str,
    layers: int,
    width: int,
    length: int,
    rows: int,
    threads: int,
    repeats: int,
    reviews: pathlib.Path | None,
    encoder: pathlib.Path | None,
    test_rows: int | None,
) -> None:
    """Measure requests with many candidates for one text, and the size, time and AUC of an encoder in fewer bits.

    Prints two tables, and writes the report as JSON.
    """
    counts = positive_numbers("--candidates", candidates)
    if (reviews is None) != (encoder is None):
        raise InputError("--reviews and --encoder: give both or none")
    load_tensorflow()
    # TensorFlow: see Exports.
    import tensorflow as tf

    from ctrpipe.serving.loader import Servable

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    report.add_load()
    report |= {"layers": layers, "width": width, "length": length, "threads": threads, "repeats": repeats}
    with tempfile.TemporaryDirectory() as folder:
        exports = Exports(pathlib.Path(folder), layers, width, length)
        report["precisions"] = fewer_bits(exports, threads, rows, repeats)
        servable = Servable(pathlib.Path(folder) / "float32" / "1", threads)
        report["sharing"] = sharing(exports, servable, counts, repeats)
        servable.close()
    report["quality"] = quality(reviews, encoder, test_rows) if reviews and encoder else []


if __name__ == "__main__":
    main()
