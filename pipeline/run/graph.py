"""The pipeline's graph: the components and their order. Every orchestrator runs the same graph."""

import json
import pathlib
from collections.abc import Callable

from google.protobuf import text_format
from tfx.components import BulkInferrer
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import bulk_inferrer_pb2, pusher_pb2

from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.pipeline.components.atomic_pusher import PUSH_AGAIN, AtomicPusher
from ctrpipe.pipeline.components.drift_check import DriftCheck, DriftGate
from ctrpipe.pipeline.components.examples_for_inference import ExamplesForInference
from ctrpipe.pipeline.components.gated_evaluator import GatedEvaluator
from ctrpipe.pipeline.components.last_blessed_model import LastBlessedModel
from ctrpipe.pipeline.components.log_example_gen import LogExampleGen
from ctrpipe.pipeline.components.log_statistics_gen import LogStatisticsGen
from ctrpipe.pipeline.components.log_trainer import LogTrainer
from ctrpipe.pipeline.components.log_transform import LogTransform
from ctrpipe.pipeline.components.log_validator import LogValidator
from ctrpipe.pipeline.components.serving_check import ServingCheck
from ctrpipe.pipeline.config import Model, RunConfig
from ctrpipe.pipeline.run.inputs import RunInputs
from ctrpipe.transforms.log.byte_sum import sums_to_json
from ctrpipe.transforms.log.schema import raw_schema


def _data_nodes(config: RunConfig, inputs: RunInputs) -> tuple[BaseComponent, ...]:
    """Returns the nodes from the raw log to transformed examples, the start of every graph."""
    output = inputs.output
    workers = _workers(config, output)
    examples = LogExampleGen(
        spec=config.log_spec.model_dump_json(),
        files=json.dumps(inputs.files),
        data_fingerprint=inputs.data_fingerprint,
        sums=sums_to_json(inputs.sums),
        seed=config.data.split.seed(config.seed),
        dead_letter=str(output / "dead_letter"),
        workers=workers,
        code_version=_code_of(LogExampleGen),
    )
    statistics = LogStatisticsGen(
        examples=examples.outputs["examples"],
        max_rows=config.statistics.max_rows,
        seed=0,
        workers=workers,
        code_version=_code_of(LogStatisticsGen),
    )
    schema = ImportSchemaGen(schema_file=str(_write_schema(config, output)))
    validator = LogValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    transform = LogTransform(
        examples=examples.outputs["examples"],
        spec=config.log_spec.model_dump_json(),
        # Seeds the order of the packed rows and missing_rate. Training shuffles again with its own seed.
        seed=0,
        workers=workers,
        former=_former(config, inputs),
        code_version=inputs.transform_version(config),
    )
    return examples, statistics, schema, validator.with_id("ExampleValidator"), transform


def _former(config: RunConfig, inputs: RunInputs) -> str:
    """Returns what the transform keeps of the parent's state, as the `former` argument of LogTransform."""
    start, parent = config.training.warm_start, inputs.parent
    if start is None or (start.window == 1 and (parent is None or (start.boundaries == "learn" and not start.max_age))):
        return ""
    kept = parent and {"version": parent.version, "kept": parent.kept}
    return json.dumps({"parent": kept, **start.model_dump(include={"boundaries", "window", "max_age", "max_values"})})


def _code_of(component: Callable[..., BaseComponent]) -> str:
    """Returns the hash of the code that one of this project's components runs."""
    return stage_version(component.__module__)


def _workers(config: RunConfig, output: pathlib.Path) -> str:
    return config.workers_for(output / "tfx").to_json()


def create_data_pipeline(config: RunConfig, inputs: RunInputs) -> Pipeline:
    """Returns the graph up to Transform, for training outside a graph. It shares its cache with `create_pipeline`."""
    return _pipeline(config, inputs.output, list(_data_nodes(config, inputs)))


def create_pipeline(config: RunConfig, inputs: RunInputs) -> Pipeline:
    """Returns the graph of a run.

    Node ids never change: `Trainer` is the model, `Trainer.baseline` the baseline.
    """
    output = inputs.output
    push_folder = output / "models" / config.serving.model_name
    nodes = list(_data_nodes(config, inputs))
    examples, statistics, *_, transform = nodes
    drift = None
    if inputs.monitoring.previous or inputs.monitoring.serving:
        drift = DriftCheck(
            examples=examples.outputs["examples"],
            statistics=statistics.outputs["statistics"],
            spec=config.log_spec.model_dump_json(),
            monitoring=inputs.monitoring.model_dump_json(exclude={"block"}),
            logs_fingerprint=inputs.monitored_fingerprint,
            logs_sums=json.dumps({kind: sums_to_json(sums) for kind, sums in inputs.monitored_sums.items()}),
            max_rows=config.statistics.max_rows,
            seed=0,
            workers=_workers(config, output),
            code_version=_code_of(DriftCheck),
        )
        nodes.append(drift)

    def make_trainer(model: Model) -> BaseComponent:
        trained_from = inputs.training_fingerprint(config, model)
        return LogTrainer(
            payload=examples.outputs["examples"],
            examples=transform.outputs["transformed_examples"],
            transform_graph=transform.outputs["transform_graph"],
            statistics=statistics.outputs["statistics"],
            # Only what training and export read: every value here is part of the cache key.
            spec=config.log_spec.model_dump_json(),
            settings=model.model_dump_json(),
            training=config.training.model_dump_json(),
            seed=config.seed,
            warmup_requests=config.serving.warmup_requests,
            position=json.dumps(config.serving.position),
            encoder_precision=config.serving.encoder_precision,
            calibration=config.calibration.model_dump_json() if config.calibration else "null",
            explains=int(config.serving.explain and model is config.model),
            work=str(output / "tfx" / "training" / f"{model.name}-{trained_from}"),
            parent=inputs.parent.to_json() if inputs.parent and model is config.model else "",
            training_fingerprint=inputs.version_fingerprint(config, model),
            code_version=_code_of(LogTrainer),
        )

    trainer = make_trainer(config.model).with_id("Trainer")
    nodes.append(trainer)
    baseline = {}
    if config.evaluation.baseline:
        beside = make_trainer(config.evaluation.baseline).with_id("Trainer.baseline")
        nodes.append(beside)
        baseline = {"baseline": beside.outputs["model"]}
    check = ServingCheck(model=trainer.outputs["model"], code_version=_code_of(ServingCheck))
    last = LastBlessedModel(push_folder=str(push_folder), version=inputs.baseline_version)
    evaluator = GatedEvaluator(
        examples=examples.outputs["examples"],
        model=trainer.outputs["model"],
        last_blessed=last.outputs["model"],
        spec=config.log_spec.model_dump_json(),
        gates=config.gates.model_dump_json(),
        settings=config.evaluation.model_dump_json(),
        rows=inputs.test_rows(config),
        workers=_workers(config, output),
        code_version=_code_of(GatedEvaluator),
        **baseline,
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
        custom_config={PUSH_AGAIN: config.serving.push_again},
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
        rows = ExamplesForInference(
            payload=examples.outputs["examples"], split="test", code_version=_code_of(ExamplesForInference)
        )
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


def _pipeline(config: RunConfig, output: pathlib.Path, nodes: list[BaseComponent]) -> Pipeline:
    tfx_folder = output / "tfx"
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=str(tfx_folder / "artifacts"),
        components=nodes,
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(tfx_folder / "metadata.sqlite")),
        # Beam's default runner may download its own binary. in_memory never does.
        beam_pipeline_args=["--direct_running_mode=in_memory", "--direct_num_workers=1", *config.beam_args],
    )


def _write_schema(config: RunConfig, output: pathlib.Path) -> pathlib.Path:
    """Writes the schema to a path that contains its hash, because ImportSchemaGen caches by path."""
    text = text_format.MessageToString(raw_schema(config.log_spec))
    path = output / "tfx" / "schema" / fingerprint(text) / "schema.pbtxt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
