"""The pipeline's graph: the components and their order. Every orchestrator runs the same graph."""

import dataclasses
import pathlib
from collections.abc import Callable

from google.protobuf import text_format
from tfx.components import BulkInferrer
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import bulk_inferrer_pb2, pusher_pb2

from ctrpipe.common import hooks
from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.output_folder import ARTIFACTS, METADATA
from ctrpipe.pipeline.components.atomic_pusher import PUSH_AGAIN, AtomicPusher
from ctrpipe.pipeline.components.drift_check import DriftCheck, DriftGate, DriftSettings
from ctrpipe.pipeline.components.examples_for_inference import ExamplesForInference
from ctrpipe.pipeline.components.gated_evaluator import EvaluatorSettings, GatedEvaluator
from ctrpipe.pipeline.components.last_blessed_model import LastBlessedModel
from ctrpipe.pipeline.components.log_example_gen import ExampleGenSettings, LogExampleGen
from ctrpipe.pipeline.components.log_statistics_gen import LogStatisticsGen
from ctrpipe.pipeline.components.log_trainer import LogTrainer
from ctrpipe.pipeline.components.log_transform import FormerSettings, LogTransform, TransformSettings
from ctrpipe.pipeline.components.log_validator import LogValidator
from ctrpipe.pipeline.components.seed_trainings import SeedSettings, SeedTrainings, SideSettings
from ctrpipe.pipeline.components.serving_check import ServingCheck
from ctrpipe.pipeline.components.settings import short_json
from ctrpipe.pipeline.components.trainer_settings import TrainerSettings
from ctrpipe.pipeline.config import SEEDS, Model, RunConfig
from ctrpipe.pipeline.run.inputs import RunInputs
from ctrpipe.transforms.log.described_files import write_states
from ctrpipe.transforms.log.schema import raw_schema

MODEL, BASELINE = "Trainer", "Trainer.baseline"  # the ids of the nodes that train


def create_data_pipeline(config: RunConfig, inputs: RunInputs) -> Pipeline:
    """Returns the graph up to Transform, for training outside a graph. It shares its cache with `create_pipeline`."""
    return _pipeline(config, inputs.output, _data_nodes(config, inputs).all())


def create_pipeline(config: RunConfig, inputs: RunInputs) -> Pipeline:
    """Returns the graph of a run.

    Node ids never change: MODEL is the model, BASELINE the baseline.

    Raises:
        InputError: TFX's BulkInferrer does not run on the configured Beam runner.
    """
    # 1. From the raw log to transformed examples, and how far the log is from others.
    data = _data_nodes(config, inputs)
    compares = bool(inputs.monitoring.previous or inputs.monitoring.serving)
    drift = _drift_check(config, inputs, data) if compares else None

    # 2. The model, and the baseline to compare it with.
    trainer = _trainer(config, inputs, data, config.model, is_baseline=False).with_id(MODEL)
    baseline = None
    if named := config.evaluation.baseline:
        baseline = _trainer(config, inputs, data, named, is_baseline=True).with_id(BASELINE)
    several = config.evaluation.seeds > 1
    seeds = _seed_trainings(config, inputs, data, [trainer, baseline] if baseline else [trainer]) if several else None

    # 3. The checks that the model must pass: of its export, by the gates, and of the drift if it blocks.
    check = ServingCheck(model=trainer.outputs["model"], code_version=_code_of(ServingCheck))
    # Without a version, nothing depends on the folder, and runs in several folders share Kubeflow's cache.
    beaten = str(_push_folder(config, inputs)) if inputs.baseline_version else ""
    last = LastBlessedModel(push_folder=beaten, version=inputs.baseline_version)
    evaluator = _evaluator(config, inputs, data, trainer, last, baseline, seeds)
    gate = None
    if drift and inputs.monitoring.block:
        gate = DriftGate(drift=drift.outputs["drift"], infra_blessing=check.outputs["blessing"])

    # 4. The push, and the predictions of the pushed model.
    pusher = _pusher(config, inputs, trainer, evaluator, infra=gate or check)
    predictions = _predictions(config, data, trainer, evaluator) if config.serving.bulk_inferrer else []

    nodes = [*data.all(), drift, trainer, baseline, seeds, gate, check, last, evaluator, pusher, *predictions]
    return _pipeline(config, inputs.output, [node for node in nodes if node])


@dataclasses.dataclass(frozen=True)
class _DataNodes:
    """The nodes from the raw log to transformed examples, the start of every graph."""

    examples: BaseComponent
    statistics: BaseComponent
    schema: BaseComponent
    validator: BaseComponent
    transform: BaseComponent

    def all(self) -> list[BaseComponent]:
        return [self.examples, self.statistics, self.schema, self.validator, self.transform]


def _data_nodes(config: RunConfig, inputs: RunInputs) -> _DataNodes:
    write_states(_states_of(inputs, inputs.data_fingerprint), inputs.states)
    workers = _workers(config, inputs)
    read = ExampleGenSettings(
        spec=config.log_spec,
        files=list(inputs.files),
        data_fingerprint=inputs.data_fingerprint,
        states=_states_of(inputs, inputs.data_fingerprint),
        seed=config.data.split.seed,
        dead_letter=inputs.place / "dead_letter",
    )
    examples = LogExampleGen(settings=read.to_text(), workers=workers, code_version=_code_of(LogExampleGen))
    statistics = LogStatisticsGen(
        examples=examples.outputs["examples"],
        max_rows=config.statistics.max_rows,
        seed=0,
        workers=workers,
        code_version=_code_of(LogStatisticsGen),
        spec=short_json(config.log_spec),
    )
    schema = ImportSchemaGen(schema_file=str(_write_schema(config, inputs.place)))
    validator = LogValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    # The seed is for the order of the packed rows and for missing_rate. Training shuffles again with its own seed.
    transformed = TransformSettings(spec=config.log_spec, seed=0, former=_former(config, inputs))
    transform = LogTransform(
        examples=examples.outputs["examples"],
        settings=transformed.to_text(),
        workers=workers,
        code_version=inputs.transform_version(config),
    )
    return _DataNodes(examples, statistics, schema, validator.with_id("ExampleValidator"), transform)


def _former(config: RunConfig, inputs: RunInputs) -> FormerSettings | None:
    """Returns the part of the parent's state that the transform keeps, or None."""
    start, parent = config.training.warm_start, inputs.parent
    if start is None or (start.window == 1 and (parent is None or (start.boundaries == "learn" and not start.max_age))):
        return None
    return FormerSettings(
        version=parent.version if parent else "",
        kept=parent.kept if parent else "",
        boundaries=start.boundaries,
        window=start.window,
        max_age=start.max_age,
        max_values=start.max_values,
    )


def _drift_check(config: RunConfig, inputs: RunInputs, data: _DataNodes) -> BaseComponent:
    states = _states_of(inputs, inputs.monitored_fingerprint)
    write_states(states, inputs.states | inputs.monitored_states)
    settings = DriftSettings(
        spec=config.log_spec,
        monitoring=inputs.monitoring.model_copy(update={"block": False}),  # DriftGate alone depends on it
        logs_fingerprint=inputs.monitored_fingerprint,
        states=states,
        max_rows=config.statistics.max_rows,
        seed=0,
    )
    return DriftCheck(
        examples=data.examples.outputs["examples"],
        statistics=data.statistics.outputs["statistics"],
        settings=settings.to_text(),
        workers=_workers(config, inputs),
        code_version=_code_of(DriftCheck),
    )


def _trainer(config: RunConfig, inputs: RunInputs, data: _DataNodes, model: Model, is_baseline: bool) -> BaseComponent:
    settings = _trainer_settings(config, inputs, model, is_baseline)
    return LogTrainer(
        payload=data.examples.outputs["examples"],
        examples=data.transform.outputs["transformed_examples"],
        transform_graph=data.transform.outputs["transform_graph"],
        statistics=data.statistics.outputs["statistics"],
        settings=settings.to_text(),
        code_version=_code_of(LogTrainer),
    )


def _trainer_settings(config: RunConfig, inputs: RunInputs, model: Model, is_baseline: bool) -> TrainerSettings:
    training = (
        config.training.of_baseline(model.name, bool(config.data.number_tasks)) if is_baseline else config.training
    )
    trained_from = inputs.training_fingerprint(config, model, training)
    return TrainerSettings(
        spec=config.log_spec,
        model=model,
        training=training,
        seed=config.seed,
        warmup_requests=config.serving.warmup_requests,
        position=config.serving.position,
        encoder_precision=config.serving.encoder_precision,
        calibration=config.calibration,
        explains=config.serving.explain and not is_baseline,
        work=inputs.place / "tfx" / "training" / f"{model.name}-{trained_from}",
        parent=None if is_baseline else inputs.parent,
        training_fingerprint=inputs.version_fingerprint(config, model, training),
        group_weight=config.evaluation.group_weight,
    )


def _seed_trainings(
    config: RunConfig, inputs: RunInputs, data: _DataNodes, trainers: list[BaseComponent]
) -> BaseComponent:
    """Returns the node that trains the model and the baseline with the other seeds of `evaluation.seeds`.

    It runs after the `trainers` of the first seed. A mistake thus fails one training run and not many.
    """
    baseline = config.evaluation.baseline
    settings = SeedSettings(
        seeds=config.evaluation.seeds,
        task=next(iter(config.data.labels)),
        model=_side(config, inputs, config.model, is_baseline=False),
        baseline=_side(config, inputs, baseline, is_baseline=True) if baseline else None,
        rows=inputs.test_rows(config),
    )
    node = SeedTrainings(
        payload=data.examples.outputs["examples"],
        examples=data.transform.outputs["transformed_examples"],
        transform_graph=data.transform.outputs["transform_graph"],
        statistics=data.statistics.outputs["statistics"],
        settings=settings.to_text(),
        workers=_workers(config, inputs),
        code_version=_code_of(SeedTrainings),
    )
    node.add_upstream_nodes(trainers)
    return node


def _side(config: RunConfig, inputs: RunInputs, model: Model, is_baseline: bool) -> SideSettings:
    training = (
        config.training.of_baseline(model.name, bool(config.data.number_tasks)) if is_baseline else config.training
    )
    seeds = range(config.seed + 1, config.seed + config.evaluation.seeds) if training.depends_on_seed else ()
    configs = [config.model_copy(update={"seed": seed % SEEDS}) for seed in seeds]
    trainers = [_trainer_settings(each, inputs, model, is_baseline) for each in configs]
    return SideSettings(name=model.name, trainers=trainers)


def evaluator_settings(config: RunConfig, inputs: RunInputs) -> EvaluatorSettings:
    """Returns the settings of the evaluation. They are part of its cache key."""
    return EvaluatorSettings(
        spec=config.log_spec,
        gates=config.gates,
        evaluation=config.evaluation,
        rows=inputs.test_rows(config),
        retrained=[_push_folder(config, inputs) / version for version in inputs.retrained_versions],
        hook_metrics={name: hooks.version("metrics", name) for name in config.hooks.metrics},
        hook_gates={name: hooks.version("gates", name) for name in config.hooks.gates},
    )


def _evaluator(
    config: RunConfig,
    inputs: RunInputs,
    data: _DataNodes,
    trainer: BaseComponent,
    last: BaseComponent,
    baseline: BaseComponent | None,
    seeds: BaseComponent | None,
) -> BaseComponent:
    settings = evaluator_settings(config, inputs)
    beside = {"baseline": baseline.outputs["model"]} if baseline else {}
    beside |= {"seeds": seeds.outputs["seeds"]} if seeds else {}
    return GatedEvaluator(
        examples=data.examples.outputs["examples"],
        model=trainer.outputs["model"],
        last_blessed=last.outputs["model"],
        settings=settings.to_text(),
        workers=_workers(config, inputs),
        code_version=_code_of(GatedEvaluator),
        **beside,
    )


def _pusher(
    config: RunConfig, inputs: RunInputs, trainer: BaseComponent, evaluator: BaseComponent, infra: BaseComponent
) -> BaseComponent:
    """Returns the node that pushes the model if `evaluator` and `infra` bless it."""
    folder = pusher_pb2.PushDestination.Filesystem(base_directory=str(_push_folder(config, inputs)))
    return AtomicPusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        infra_blessing=infra.outputs["blessing"],
        custom_config={PUSH_AGAIN: config.serving.push_again},
        push_destination=pusher_pb2.PushDestination(filesystem=folder),
    )


def _predictions(
    config: RunConfig, data: _DataNodes, trainer: BaseComponent, evaluator: BaseComponent
) -> list[BaseComponent]:
    """Returns the nodes that score the test rows with a blessed model.

    Raises:
        InputError: TFX's BulkInferrer does not run on the configured Beam runner.
    """
    if any(argument.endswith("DaskRunner") for argument in config.beam_args):
        raise InputError(
            "serving.bulk_inferrer: TFX's BulkInferrer does not run on Beam's DaskRunner; leave it out, and use "
            "ctrpipe score, or choose another runner"
        )
    rows = ExamplesForInference(
        payload=data.examples.outputs["examples"], split="test", code_version=_code_of(ExamplesForInference)
    )
    inferrer = BulkInferrer(
        examples=rows.outputs["examples"],
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        data_spec=bulk_inferrer_pb2.DataSpec(example_splits=["test"]),
        model_spec=bulk_inferrer_pb2.ModelSpec(model_signature_name=["serving_default"]),
    )
    return [rows, inferrer]


def _code_of(component: Callable[..., BaseComponent]) -> str:
    """Returns the hash of the code that one of this project's components runs."""
    return stage_version(component.__module__)


def _workers(config: RunConfig, inputs: RunInputs) -> str:
    return config.workers_for(inputs.place / "tfx").to_json()


def _states_of(inputs: RunInputs, data_fingerprint: str) -> pathlib.Path:
    """Returns the path of the file with the states of the log's files at the time of hashing.

    The name has the fingerprint of the log, because runs on other logs may use the same folder.
    """
    return inputs.place / "tfx" / "states" / f"{data_fingerprint}.json"


def _push_folder(config: RunConfig, inputs: RunInputs) -> pathlib.Path:
    return inputs.output / "models" / config.serving.model_name


def _pipeline(config: RunConfig, output: pathlib.Path, nodes: list[BaseComponent]) -> Pipeline:
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=str(output / ARTIFACTS),
        components=nodes,
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(output / METADATA)),
        # Beam's default runner may download its own binary. in_memory never does.
        beam_pipeline_args=["--direct_running_mode=in_memory", "--direct_num_workers=1", *config.beam_args],
    )


def _write_schema(config: RunConfig, place: pathlib.Path) -> pathlib.Path:
    """Writes the schema to a path that contains its hash, because ImportSchemaGen caches by path."""
    text = text_format.MessageToString(raw_schema(config.log_spec))
    path = place / "tfx" / "schema" / fingerprint(text) / "schema.pbtxt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
