"""TFX Trainer's entry point."""

import json
import pathlib

import pyarrow as pa
import tensorflow_transform as tft
from tfx.components.trainer.fn_args_utils import FnArgs

from common.progress import announce
from pipeline.config import Model, Training
from pipeline.monitoring.scored_drift import kept_statistics
from serving.export import export
from serving.layout import Asset
from transforms.features.preprocessing import feature_map
from transforms.log.readers import LogReader
from transforms.log.spec import LogSpec


def run_fn(fn_args: FnArgs) -> None:
    """Trains and exports. custom_config: `spec` (LogSpec), `model` (Model) and `training` (Training) as JSON, `seed`,
    `warmup_requests` (how many), `position` (column -> its value at serving), `encoder_precision`, `work` (folder of
    the checkpoints, the same for every try at the same training), `files` (the raw log), `code_version`,
    `training_fingerprint`."""
    from pipeline.training.text_encoder import with_encoder
    from pipeline.training.train import train

    custom = fn_args.custom_config
    spec = LogSpec.model_validate_json(custom["spec"])
    model = with_encoder(Model.model_validate_json(custom["model"]), spec.text)
    training = Training.model_validate_json(custom["training"])
    transform = tft.TFTransformOutput(fn_args.transform_output)
    fields = feature_map(spec, transform)

    def report(numbers: dict) -> None:
        said = f"{numbers['model']}: {numbers['examples']:,} examples, loss {numbers['train_loss']:.4f}"
        if "validation_auc" in numbers:  # a stage that learns a language has none
            auc = "-" if numbers["validation_auc"] is None else f"{numbers['validation_auc']:.4f}"
            said += f", validation AUC {auc}, log loss {numbers['validation_log_loss']:.4f}"
        announce(said)

    work = pathlib.Path(custom["work"])
    result = train(model, training, fields, fn_args.train_files, fn_args.eval_files, custom["seed"], work, report)
    announce("Writing the servable")
    extra = {
        Asset.TRAINING: json.dumps({key: json.loads(custom[key]) for key in ("model", "training")}, indent=1),
        Asset.HISTORY: json.dumps(result.history, indent=1),
        Asset.CODE_VERSION: custom["code_version"],
        Asset.TRAINING_FINGERPRINT: custom["training_fingerprint"],
        **kept_statistics(transform),
    }
    rows = _first_rows(custom["files"][0], spec, custom["warmup_requests"])
    folder = pathlib.Path(fn_args.serving_model_dir)
    precision = custom["encoder_precision"]
    export(result.model, transform, spec, fields, rows, folder, extra, custom["position"], precision)


def _first_rows(file: str, spec: LogSpec, count: int) -> pa.RecordBatch:
    """The log's first rows: training rows, whatever the split."""
    return next(LogReader(spec).read(file)).rows.slice(0, count)
