"""Runs one side of `python -m benchmarks.score`; prints a JSON object as the last line."""

import itertools
import json
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click
import numpy as np

from benchmarks.harness.command import cores
from ctrpipe.common.libraries import load_tensorflow

PATH = click.Path(path_type=pathlib.Path)
BATCHES = (1024, 2048, 4096, 8192)
PACKED_ROWS = 1 << 17  # distinct rows, from the start of the log
LIKELY = 2  # number of the fastest ways to call the model that are measured on all rows


@click.group()
def main() -> None:
    """Run one side of benchmarks.score. Called by that benchmark."""


@main.command()
@click.argument("version", type=PATH)
@click.argument("log", type=PATH)
@click.argument("output", type=PATH)
def ours(version: pathlib.Path, log: pathlib.Path, output: pathlib.Path) -> None:
    """Score as `ctrpipe score` does."""
    load_tensorflow()
    # Here and below, a side imports only what it needs, because its start is measured.
    from ctrpipe.pipeline.monitoring.scored_drift import SAMPLE_ROWS, compare_with_training
    from ctrpipe.serving.scoring.score import score

    result = score(version, [str(log)], output, (), None, SAMPLE_ROWS, compare_with_training)
    _answer(rows=result.rows, start_seconds=result.start_seconds, mean=result.scores["ctr"]["mean"])


@main.command()
@click.argument("version", type=PATH)
@click.argument("examples", type=PATH)
@click.argument("output", type=PATH)
@click.option("--workers", type=int, required=True)
def bulk_inferrer(version: pathlib.Path, examples: pathlib.Path, output: pathlib.Path, workers: int) -> None:
    """Score with the executor of TFX's component, without ML Metadata and the rest of a pipeline."""
    load_tensorflow()
    # This side's imports, 5.7 s of CPU time: see ours.
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2
    from tfx.components.bulk_inferrer.executor import Executor
    from tfx.types.standard_artifacts import Examples, InferenceResult, Model

    mode = "in_memory" if workers == 1 else "multi_processing"
    args = [f"--direct_running_mode={mode}", f"--direct_num_workers={workers}"]
    output.mkdir(parents=True)
    (output / "model").mkdir()
    (output / "model" / "Format-Serving").symlink_to(version.resolve())
    data, model, result = Examples(), Model(), InferenceResult()
    data.uri, data.split_names = str(examples.resolve()), '["all"]'
    model.uri, result.uri = str(output / "model"), str(output / "result")
    context = Executor.Context(beam_pipeline_args=args, tmp_dir=str(output / "tmp"), unique_id="1")
    Executor(context).Do(
        {"examples": [data], "model": [model]},
        {"inference_result": [result]},
        {"data_spec": '{"example_splits": ["all"]}', "model_spec": '{"model_signature_name": ["serving_default"]}'},
    )
    rows, total = 0, 0.0
    for path in pathlib.Path(result.uri).rglob("*.gz"):
        for record in tf.compat.v1.io.tf_record_iterator(str(path), tf.io.TFRecordOptions("GZIP")):
            answer = prediction_log_pb2.PredictionLog.FromString(record).predict_log.response
            scores = tf.make_ndarray(answer.outputs["ctr"])
            rows, total = rows + scores.size, total + float(scores.sum(dtype=np.float64))
    _answer(rows=rows, mean=total / rows)


@main.command()
@click.argument("version", type=PATH)
@click.argument("log", type=PATH)
@click.argument("rows", type=int)
@click.option("--rounds", type=int, default=2)
def model(version: pathlib.Path, log: pathlib.Path, rows: int, rounds: int) -> None:
    """Call serving_packed on batches in memory, with the fastest batch size and with one caller or one per core."""
    load_tensorflow()
    from ctrpipe.serving.loader import Servable  # this side's imports: see ours

    batches = packed_rows(version, log)
    servable = Servable(version)
    ways = list(itertools.product(sorted({1, cores()}), BATCHES))
    tried = {way: _rate(servable, batches, PACKED_ROWS // 2, *way) for way in ways}
    likely = sorted(ways, key=lambda way: tried[way]["rows_per_s"])[-LIKELY:]
    rates: list[dict[str, Any]] = []
    for _ in range(rounds):
        rates += [_rate(servable, batches, rows, *way) for way in likely]
    best = max(rates, key=lambda rate: rate["rows_per_s"])
    _answer(rows=rows, best=best, tried=list(tried.values()))


def packed_rows(version: pathlib.Path, log: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the packed tensors [PACKED_ROWS or more, ...] of the log's first rows, from the servable's transform."""
    # Imports of the side `model`: see ours.
    from ctrpipe.serving.assets import read_log_spec
    from ctrpipe.serving.loader import Servable
    from ctrpipe.transforms.log.raw_arrays import raw_arrays
    from ctrpipe.transforms.log.readers import LogReader

    spec = read_log_spec(version)
    servable = Servable(version)
    parts, count = [], 0
    for batch in LogReader(spec, labels=False).read(str(log)):
        parts.append(servable.run("transform_raw", raw_arrays(batch.rows, spec)))
        count += batch.rows.num_rows
        if count >= PACKED_ROWS:
            break
    servable.close()
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _rate(servable: Any, packed: dict[str, np.ndarray], rows: int, callers: int, size: int) -> dict[str, Any]:
    different = len(next(iter(packed.values())))
    starts = [start % (different - size + 1) for start in range(0, rows, size)]

    def call(start: int) -> None:
        servable.run("serving_packed", {name: values[start : start + size] for name, values in packed.items()})

    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(call, starts[: 2 * callers]))  # the first call is slower
        wall, cpu = time.perf_counter(), time.process_time()
        list(pool.map(call, starts))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    count = len(starts) * size
    return {"callers": callers, "batch": size, "rows_per_s": count / wall, "cpu_us_per_row": cpu / count * 1e6}


def _answer(**values: Any) -> None:
    click.echo(json.dumps(values))


if __name__ == "__main__":
    main()
