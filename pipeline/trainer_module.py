"""TFX Trainer's entry point."""

import json
import pathlib

import pyarrow as pa
import tensorflow_transform as tft
from tfx.components.trainer.fn_args_utils import FnArgs

from pipeline.config import Model, RunConfig
from pipeline.progress import announce
from serving.export import export
from transforms.preprocessing import feature_map
from transforms.readers import LogReader

HISTORY = "history.json"


def run_fn(fn_args: FnArgs) -> None:
    """Trains and exports. custom_config: `config` (RunConfig as JSON), `model` (Model as JSON), `work` (folder of the
    checkpoints, the same for every try at the same training), `files` (the raw log)."""
    from pipeline.training.tensorflow_trainer import train

    custom = fn_args.custom_config
    config = RunConfig.model_validate_json(custom["config"])
    model = Model.model_validate_json(custom["model"])
    transform = tft.TFTransformOutput(fn_args.transform_output)
    fields = feature_map(config.log_spec, transform)

    def report(numbers: dict) -> None:
        announce(
            f"{model.name}: {numbers['examples']:,} examples, loss {numbers['train_loss']:.4f}, validation "
            f"AUC {numbers['validation_auc']:.4f}, log loss {numbers['validation_log_loss']:.4f}"
        )

    work = pathlib.Path(custom["work"])
    result = train(
        model, config.training, fields, fn_args.train_files, fn_args.eval_files, config.seed, work, report
    )
    history = json.dumps(result.history, indent=1)
    rows = _sample_rows(custom["files"], config)
    extra = {
        "config.json": config.model_dump_json(indent=1),
        HISTORY: history,
        "code_version": custom["code_version"],
        "run_fingerprint": custom["run_fingerprint"],
    }
    path = pathlib.Path(fn_args.serving_model_dir)
    export(result.model, transform, config.log_spec, fields, rows, path, extra)


def _sample_rows(files: list[str], config: RunConfig) -> pa.RecordBatch:
    """The log's first rows: training rows, whatever the split."""
    batch = next(LogReader(config.log_spec).read(files[0]))
    return batch.rows.slice(0, config.serving.warmup_requests)
