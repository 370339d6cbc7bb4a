"""In place of TFX's Evaluator, which reads no Parquet: the same artifacts, by pipeline.evaluation.evaluate."""

import pathlib

import tensorflow_model_analysis as tfma
from tfx.components.evaluator import constants
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, Model, ModelBlessing, ModelEvaluation
from tfx.utils import proto_utils

from common.processes import Workers
from common.progress import now_and_then
from pipeline.config import Tail
from pipeline.evaluation.evaluate import judge
from transforms.log.payload import payload_files


@component
def GatedEvaluator(
    examples: InputArtifact[Examples],
    model: InputArtifact[Model],
    baseline_model: InputArtifact[Model],
    evaluation: OutputArtifact[ModelEvaluation],
    blessing: OutputArtifact[ModelBlessing],
    eval_config: Parameter[str],
    tail: Parameter[str],
    example_split: Parameter[str],
    workers: Parameter[str],
):
    """`eval_config`: tfma.EvalConfig as JSON; `tail`: config.Tail as JSON, or nothing; `example_split`: on whose rows;
    `workers`: see Workers.from_json.

    A baseline artifact without a model means that there is no baseline.
    """
    config = tfma.EvalConfig()
    proto_utils.json_to_proto(eval_config, config)
    last_blessed = pathlib.Path(baseline_model.uri) / "Format-Serving"
    has_baseline = last_blessed.exists()
    rare = None
    if tail:
        rare = (Tail.model_validate_json(tail), payload_files(pathlib.Path(examples.uri) / "Split-train"))
    passed = judge(
        pathlib.Path(model.uri) / "Format-Serving",
        last_blessed if has_baseline else None,
        payload_files(pathlib.Path(examples.uri) / f"Split-{example_split}"),
        config,
        pathlib.Path(evaluation.uri),
        Workers.from_json(workers),
        now_and_then(),
        rare,
    )
    # As TFX's Evaluator does it: this is what Pusher and the lookup of the last blessed model read.
    blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY, model.uri)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id)
    if has_baseline:
        blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY, baseline_model.uri)
        blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY, baseline_model.id)
    value = constants.BLESSED_VALUE if passed else constants.NOT_BLESSED_VALUE
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)
    folder = pathlib.Path(blessing.uri)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (constants.BLESSED_FILE_NAME if passed else constants.NOT_BLESSED_FILE_NAME)).touch()
