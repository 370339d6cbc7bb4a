"""The pipeline: which component runs after which. The same graph for every orchestrator."""

import json
import pathlib

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2
from tfx.components import BulkInferrer, ExampleValidator, Trainer
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import bulk_inferrer_pb2, pusher_pb2, trainer_pb2
from tfx.utils import proto_utils

from common.errors import InputError
from pipeline.components.atomic_pusher import AtomicPusher
from pipeline.components.drift_check import DriftCheck, DriftGate
from pipeline.components.examples_for_inference import ExamplesForInference
from pipeline.components.gated_evaluator import GatedEvaluator
from pipeline.components.last_blessed_model import LastBlessedModel
from pipeline.components.log_example_gen import LogExampleGen
from pipeline.components.log_statistics_gen import LogStatisticsGen
from pipeline.components.log_transform import LogTransform
from pipeline.components.serving_check import ServingCheck
from pipeline.config import Bounds, Model, RunConfig
from pipeline.evaluation.tail import TAIL
from pipeline.fingerprints import fingerprint
from pipeline.run_inputs import RunInputs
from transforms.log.schema import raw_schema


def eval_config(config: RunConfig) -> tfma.EvalConfig:
    """TFMA's configuration of the gates."""
    gates = config.gates
    higher, lower = tfma.MetricDirection.HIGHER_IS_BETTER, tfma.MetricDirection.LOWER_IS_BETTER
    auc = gates.auc or Bounds(min=0.0)  # always holds; without any threshold TFMA would bless nothing
    metrics = [
        _metric("ExactAUC", auc, gates.max_drop.get("auc"), higher),
        _metric("ExactLogLoss", gates.log_loss, gates.max_drop.get("log_loss"), lower),
        _metric("ExactRIG", None, None, higher),
        _metric("ExactCalibration", gates.calibration, None, lower),
        _metric("RowCount", None, None, higher),
    ]
    task, label = next(iter(config.data.labels.items()))
    slices = [*config.evaluation.slices, *([TAIL] if config.evaluation.tail else [])]
    return tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_key=label, prediction_key=task)],
        slicing_specs=[tfma.SlicingSpec()] + [tfma.SlicingSpec(feature_keys=[column]) for column in slices],
        metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
    )


def _metric(name: str, bounds: Bounds | None, drop: float | None, direction: int) -> tfma.MetricConfig:
    threshold = tfma.MetricThreshold()
    if bounds:
        value = threshold.value_threshold
        if bounds.min is not None:
            value.lower_bound.value = bounds.min
        if bounds.max is not None:
            value.upper_bound.value = bounds.max
    if drop is not None:
        change = threshold.change_threshold
        change.direction = direction
        change.absolute.value = -drop if direction == tfma.MetricDirection.HIGHER_IS_BETTER else drop
    # A plain threshold would hold for every slice, also for one of a single row, whose AUC is 0.
    overall = config_pb2.PerSliceMetricThreshold(slicing_specs=[tfma.SlicingSpec()], threshold=threshold)
    return tfma.MetricConfig(
        class_name=name,
        module="pipeline.evaluation.click_metrics",
        per_slice_thresholds=[overall] if bounds or drop is not None else [],
    )


def _data_nodes(config: RunConfig, inputs: RunInputs) -> tuple:
    """From the raw log to transformed examples: what every graph begins with."""
    output = inputs.output
    workers = _workers(config, output)
    examples = LogExampleGen(
        spec=config.log_spec.model_dump_json(),
        files=json.dumps(inputs.files),
        data_fingerprint=fingerprint(inputs.data_fingerprint, inputs.code_version),
        seed=config.data.split.seed(config.seed),
        dead_letter=str(output / "dead_letter"),
        workers=workers,
    )
    statistics = LogStatisticsGen(
        examples=examples.outputs["examples"], max_rows=config.statistics.max_rows, seed=0, workers=workers
    )
    schema = ImportSchemaGen(schema_file=str(_write_schema(config, output)))
    validator = ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    transform = LogTransform(
        examples=examples.outputs["examples"],
        # The model carries them to where it scores, to see how far a log is from its training rows.
        statistics=statistics.outputs["statistics"],
        spec=config.log_spec.model_dump_json(),
        # Of the packed rows' order and of missing_rate; training shuffles by a seed of its own besides.
        seed=0,
        workers=workers,
        code_version=inputs.transform_version(config),
    )
    return examples, statistics, schema, validator, transform


def _workers(config: RunConfig, output: pathlib.Path) -> str:
    return config.workers_for(output / "tfx").to_json()


def create_data_pipeline(config: RunConfig, inputs: RunInputs) -> Pipeline:
    """The graph up to Transform, for trainings that are no part of a graph. Shares its cache with `create_pipeline`."""
    return _pipeline(config, inputs.output, list(_data_nodes(config, inputs)))


def create_pipeline(config: RunConfig, inputs: RunInputs) -> Pipeline:
    """The graph for one run. Ids of the nodes are stable: `Trainer` is the model, `Trainer.baseline` the one beside."""
    output = inputs.output
    push_folder = output / "models" / config.serving.model_name
    nodes = list(_data_nodes(config, inputs))
    examples, statistics, schema, _, transform = nodes
    drift = None
    if inputs.monitoring.previous or inputs.monitoring.serving:
        drift = DriftCheck(
            examples=examples.outputs["examples"],
            statistics=statistics.outputs["statistics"],
            spec=config.log_spec.model_dump_json(),
            monitoring=inputs.monitoring.model_dump_json(exclude={"block"}),
            logs_fingerprint=inputs.monitored_fingerprint,
            max_rows=config.statistics.max_rows,
            seed=0,
            workers=_workers(config, output),
        )
        nodes.append(drift)

    def add_trainer(model: Model) -> Trainer:
        training_fingerprint = inputs.training_fingerprint(config, model)
        return Trainer(
            run_fn="pipeline.components.trainer_module.run_fn",
            examples=transform.outputs["transformed_examples"],
            transform_graph=transform.outputs["transform_graph"],
            schema=schema.outputs["schema"],
            train_args=trainer_pb2.TrainArgs(splits=["train"]),
            eval_args=trainer_pb2.EvalArgs(splits=["validation"]),
            custom_config={
                # What training reads and nothing else: whatever stands here is part of the cache's key.
                "spec": config.log_spec.model_dump_json(),
                "model": model.model_dump_json(),
                "training": config.training.model_dump_json(),
                "seed": config.seed,
                "warmup_requests": config.serving.warmup_requests,
                "position": config.serving.position,
                "encoder_precision": config.serving.encoder_precision,
                "work": str(output / "tfx" / "training" / f"{model.name}-{training_fingerprint}"),
                "files": list(inputs.files),
                "code_version": inputs.code_version,
                "training_fingerprint": training_fingerprint,
            },
        )

    trainer = add_trainer(config.model)
    nodes.append(trainer)
    if config.evaluation.baseline:
        nodes.append(add_trainer(config.evaluation.baseline).with_id("Trainer.baseline"))
    check = ServingCheck(model=trainer.outputs["model"], code_version=inputs.code_version)
    last = LastBlessedModel(push_folder=str(push_folder), version=inputs.baseline_version)
    evaluator = GatedEvaluator(
        examples=examples.outputs["examples"],
        model=trainer.outputs["model"],
        baseline_model=last.outputs["model"],
        eval_config=proto_utils.proto_to_json(eval_config(config)),
        tail=config.evaluation.tail.model_dump_json() if config.evaluation.tail else "",
        example_split="test",
        workers=_workers(config, output),
    )
    infra_blessing = check.outputs["blessing"]
    if drift and inputs.monitoring.block:
        gate = DriftGate(drift=drift.outputs["drift"], infra_blessing=infra_blessing)
        nodes.append(gate)
        infra_blessing = gate.outputs["blessing"]
    pusher = AtomicPusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        infra_blessing=infra_blessing,
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=str(push_folder))
        ),
    )
    nodes += [check, last, evaluator, pusher]
    if config.serving.bulk_inferrer:
        if any(argument.endswith("DaskRunner") for argument in config.beam_args):
            raise InputError(
                "serving.bulk_inferrer: TFX's BulkInferrer does not run on Beam's DaskRunner; leave it out, and use "
                "ctrpipe score, or choose another runner"
            )
        rows = ExamplesForInference(payload=examples.outputs["examples"], split="test")
        nodes.append(rows)
        nodes.append(
            BulkInferrer(
                examples=rows.outputs["examples"],
                model=trainer.outputs["model"],
                model_blessing=evaluator.outputs["blessing"],
                data_spec=bulk_inferrer_pb2.DataSpec(example_splits=["test"]),
                model_spec=bulk_inferrer_pb2.ModelSpec(model_signature_name=["serving_default"]),
            )
        )
    return _pipeline(config, output, nodes)


def _pipeline(config: RunConfig, output: pathlib.Path, nodes: list) -> Pipeline:
    tfx_folder = output / "tfx"
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=str(tfx_folder / "artifacts"),
        components=nodes,
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(tfx_folder / "metadata.sqlite")),
        # Beam's default runner may download a binary of its own; in_memory never does.
        beam_pipeline_args=["--direct_running_mode=in_memory", "--direct_num_workers=1", *config.beam_args],
    )


def _write_schema(config: RunConfig, output: pathlib.Path) -> pathlib.Path:
    """ImportSchemaGen caches by path, so the path follows the contents."""
    from google.protobuf import text_format

    text = text_format.MessageToString(raw_schema(config.log_spec))
    path = output / "tfx" / "schema" / fingerprint(text) / "schema.pbtxt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
