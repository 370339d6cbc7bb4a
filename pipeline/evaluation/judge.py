"""Runs TFMA on the predictions of an exported model, and decides whether it passes the gates."""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import tensorflow as tf
import tensorflow_model_analysis as tfma
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import userstate
from google.protobuf import json_format
from google.protobuf.message import Message
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as results_writer

from ctrpipe.common.beam_pipelines import as_in_a_program
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.config import Tail
from ctrpipe.pipeline.evaluation.predictions import predict, prediction_column
from ctrpipe.pipeline.evaluation.tail import TAIL, TAIL_VALUE, tail_rows
from ctrpipe.serving.calibration import UNCALIBRATED
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.transforms.log.payload import PART_ROWS, read_payload

MAX_SLICES = 1000  # per column; TFMA takes a millisecond per slice
PREDICTIONS = "predictions"  # the folder of the models' predictions, below the evaluation folder
UNCALIBRATED_MODEL = "uncalibrated"  # the candidate before its calibration, in prediction_column
TRAINED_BASELINE = "trained_baseline"  # evaluation.baseline, in prediction_column; TFMA's is last_blessed


def judge(
    model: pathlib.Path,
    last_blessed: pathlib.Path | None,
    files: Sequence[pathlib.Path],
    config: config_pb2.EvalConfig,
    folder: pathlib.Path,
    workers: Workers,
    progress: Callable[[str], None] = lambda text: None,
    tail: tuple[Tail, Sequence[pathlib.Path]] | None = None,
    baseline: pathlib.Path | None = None,
) -> bool:
    """Writes the models' predictions and TFMA's evaluation.

    Returns whether the model passes TFMA's thresholds.

    Args:
        model: The folder of the SavedModel.
        last_blessed: The model to compare with in bounds on changes; None for a first model, which passes these bounds.
        files: The payload files of the test rows.
        config: Metrics, slices and thresholds for one model. The metrics must be those of click_metrics.
        folder: The output folder for TFMA's files (see tfma.load_eval_result) and `predictions`.
        workers: The processes that predict.
        progress: Called with a line about the progress of the predictions.
        tail: The definition of the Tail slice, and the payload files of the training rows. The key of the slice is
            TAIL.
        baseline: The SavedModel folder of an additional model to predict with. No gate applies to it.

    Raises:
        InputError: the models cannot be compared on these rows.
    """
    config = tfma.utils.update_eval_config_with_defaults(config, has_baseline=bool(last_blessed), rubber_stamp=True)
    tfma.utils.verify_eval_config(config)
    models = {tfma.CANDIDATE_KEY: model} | ({tfma.BASELINE_KEY: last_blessed} if last_blessed else {})
    first = config.model_specs[0]
    targets = [first.label_key, *([first.example_weight_key] if first.example_weight_key else [])]
    slices = [name for spec in config.slicing_specs for name in spec.feature_keys if name != TAIL]
    predicting = models | ({TRAINED_BASELINE: baseline} if baseline else {})
    is_calibrated = asset_path(model, Asset.CALIBRATION).exists()
    predicting |= {UNCALIBRATED_MODEL: model} if is_calibrated else {}
    signatures = {UNCALIBRATED_MODEL: UNCALIBRATED}
    predicted = predict(predicting, files, [*targets, *slices], folder / PREDICTIONS, workers, progress, signatures)
    for spec in config.model_specs:
        if _prediction_column(spec) not in pa.parquet.read_schema(predicted[0]).names:
            raise InputError(
                f"{models[spec.name or tfma.CANDIDATE_KEY]}: this model has no task {spec.prediction_key}; "
                "choose another --output or serving.model_name, or name the task in data.labels as before"
            )
    if tail:
        rare, train = tail
        _add_tail(predicted, tail_rows(files, train, rare.columns, rare.max_count, workers))
    analyse(predicted, config, folder)
    return bool(tfma.load_validation_result(str(folder)).validation_ok)


def _add_tail(predicted: Sequence[pathlib.Path], is_tail: np.ndarray) -> None:
    """Adds the column of the Tail slice to the prediction files."""
    start = 0
    for path in predicted:
        rows = pa.parquet.read_table(path)
        values = [TAIL_VALUE if rare else None for rare in is_tail[start : start + rows.num_rows]]
        start += rows.num_rows
        pa.parquet.write_table(rows.append_column(TAIL, pa.array(values, pa.binary())), path, row_group_size=PART_ROWS)


def analyse(predicted: Sequence[pathlib.Path], config: config_pb2.EvalConfig, folder: pathlib.Path) -> None:
    """Runs TFMA on prediction files, in this process, because they take only a few bytes per row.

    Only the MAX_SLICES most frequent values of a column become slices.
    """
    columns = [column for spec in config.slicing_specs for column in spec.feature_keys]
    frequent = {column: _frequent(predicted, column) for column in columns}
    # Beam's type checks and choice of a runner take longer than TFMA's computation. The FnApiRunner, which the default
    # runner would choose, downloads no binary.
    options = PipelineOptions(["--direct_running_mode=in_memory", "--direct_num_workers=1", "--no_pipeline_type_check"])
    # TFMA's ExtractEvaluateAndWriteResults accepts a configuration with a baseline only together with models to load.
    evaluator = tfma.evaluators.MetricsPlotsAndValidationsEvaluator(config)
    blocks = tfma.extractors.Extractor(evaluator.run_after, beam.FlatMap(_blocks, config, frequent))
    with as_in_a_program(), _parameters_read_once(), beam.Pipeline("FnApiRunner", options) as pipeline:
        _ = (
            pipeline
            | beam.Create([str(path) for path in predicted])
            | beam.FlatMap(lambda path: read_payload([pathlib.Path(path)], batch_rows=PART_ROWS))
            | tfma.BatchedInputsToExtracts()
            | tfma.ExtractAndEvaluate(extractors=[blocks], evaluators=[evaluator])
            | _WriteResults(config, folder)
        )


class _WriteResults(beam.PTransform):
    """Writes the same files as TFMA's writers: configuration, metrics and verdict.

    These metrics have no plots.

    Beam's sinks, which TFMA's writers use, take longer for five files of a kilobyte than the metrics themselves.
    """

    def __init__(self, config: config_pb2.EvalConfig, folder: pathlib.Path):
        super().__init__()
        self._config, self._folder = config, folder

    def expand(self, evaluation: dict[str, beam.PCollection]) -> tuple[beam.PCollection, ...]:
        described = config_pb2.EvalRun(eval_config=self._config, version=tfma.VERSION_STRING)
        (self._folder / "eval_config.json").write_text(json_format.MessageToJson(described))
        verdict = results_writer.CombineValidations(self._config)
        messages_of = {
            "metrics": evaluation[tfma.METRICS_KEY] | beam.Map(results_writer.convert_slice_metrics_to_proto, []),
            "validations": evaluation[tfma.VALIDATIONS_KEY] | "Verdict" >> beam.CombineGlobally(verdict),
        }
        return tuple(
            messages
            | f"Gather {name}" >> beam.combiners.ToList()
            | f"Write {name}" >> beam.Map(_write_records, str(self._folder / f"{name}.tfrecord"))
            for name, messages in messages_of.items()
        )


def _write_records(messages: Iterable[Message], path: str) -> None:
    with tf.io.TFRecordWriter(path) as writer:
        for message in messages:
            writer.write(message.SerializeToString(deterministic=True))


@contextlib.contextmanager
def _parameters_read_once() -> Iterator[None]:
    """Makes Beam read the method signatures of a DoFn once inside the block, instead of eight times.

    TFMA takes 2.3 s of CPU time on 40,000 rows this way, and 3.6 s otherwise.
    """
    read = userstate.get_dofn_specs
    userstate.get_dofn_specs = functools.cache(read)
    try:
        yield
    finally:
        userstate.get_dofn_specs = read


def _prediction_column(spec: config_pb2.ModelSpec) -> str:
    return prediction_column(spec.name or tfma.CANDIDATE_KEY, spec.prediction_key)


def _frequent(predicted: Sequence[pathlib.Path], column: str) -> pa.Array:
    """Returns the most frequent values of a column in descending order of frequency; ties are in ascending order."""
    rows = pa.Table.from_batches(read_payload(predicted, [column])).filter(pc.is_valid(pc.field(column)))
    counts = rows.group_by(column).aggregate([([], "count_all")])
    most = counts.sort_by([("count_all", "descending"), (column, "ascending")]).slice(0, MAX_SLICES)
    return most[column].combine_chunks()


def _blocks(
    extracts: tfma.Extracts, config: config_pb2.EvalConfig, frequent: dict[str, pa.Array]
) -> Iterator[tfma.Extracts]:
    """Yields one extract per slice with all its rows. TFMA's own extractors yield one per row."""
    rows = extracts[tfma.ARROW_RECORD_BATCH_KEY]
    first = config.model_specs[0]
    if rows[first.label_key].null_count:  # the row has a label of another task
        rows = rows.filter(rows[first.label_key].is_valid())
    targets = {tfma.LABELS_KEY: rows[first.label_key].to_numpy()}
    if first.example_weight_key:
        targets[tfma.EXAMPLE_WEIGHTS_KEY] = rows[first.example_weight_key].to_numpy()
    predictions = {spec.name: rows[_prediction_column(spec)].to_numpy() for spec in config.model_specs}
    for spec in config.slicing_specs:
        for key, chosen in _slices(rows, list(spec.feature_keys), frequent):
            of_slice = {name: values[chosen] for name, values in predictions.items()}
            yield {
                **{name: values[chosen] for name, values in targets.items()},
                tfma.PREDICTIONS_KEY: of_slice if len(of_slice) > 1 else of_slice[""],
                tfma.SLICE_KEY_TYPES_KEY: slicer_lib.slice_keys_to_numpy_array([key]),
            }


def _slices(
    rows: pa.RecordBatch, columns: list[str], frequent: dict[str, pa.Array]
) -> Iterator[tuple[tuple[tuple[str, Any], ...], np.ndarray | slice]]:
    """Yields TFMA's key and the rows of each slice of a column.

    Without a column, yields one slice of all rows.

    Rows whose value is missing or not in `frequent` are in no slice.
    """
    if not columns:
        yield (), slice(None)
        return
    [column] = columns
    values = frequent[column]
    codes = pc.index_in(rows[column], values).fill_null(len(values)).to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(values) + 1))
    for code, value in enumerate(values.to_pylist()):
        if starts[code] < starts[code + 1]:
            plain = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            yield ((column, plain),), order[starts[code] : starts[code + 1]]
