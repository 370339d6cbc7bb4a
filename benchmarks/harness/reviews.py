"""The reviews of clothes as a log: its columns, and the settings of each model."""

import pathlib
from typing import Any

from ctrpipe.pipeline.config import RunConfig

LABEL, TEXTS = "Recommended IND", ("Title", "Review Text")
IDS, NUMBERS = ("Clothing ID", "Division Name", "Department Name", "Class Name"), ("Age", "Positive Feedback Count")
SPLIT = {"by": "order", "validation": 0.1, "test": 0.2}
TEXT_LENGTH = 160

# Features train in seconds; the text takes nearly all the time and decides the result.
FEATURES = {"batch_size": 128, "epochs": 20, "learning_rate": 1e-3, "evaluations_per_epoch": 1, "patience": 3}
FEATURES |= {"warmup_steps": 0}
TEXT = {"batch_size": 32, "epochs": 2, "learning_rate": 1e-4, "evaluations_per_epoch": 2, "patience": 2}
TEXT |= {"warmup_steps": 80}
# Randomly initialised layers need a larger rate than the encoder, which comes from a checkpoint.
JOINT = {"batch_size": 32, "epochs": 1, "learning_rate": 1e-3, "evaluations_per_epoch": 2, "patience": 2}
JOINT |= {"warmup_steps": 40, "encoder_rate": 0.05}
COMMON = {"monitor": "auc", "gradient_clip_norm": 1.0, "bucket_by_length": True, "distribution": "one_device"}
COMMON |= {"plateau": {"factor": 0.3, "patience": 1}}
STAGES: dict[str, dict[str, Any]] = {"text_only": TEXT | {"epochs": 1, "encoder_rate": 1.0}}
STAGES["features_only"] = FEATURES | {"encoder_rate": 1.0}
TRAININGS: dict[str, dict[str, Any]] = {
    "features_only": {**COMMON, **FEATURES},
    "text_only": {**COMMON, **TEXT},
    "shallow_interaction_1": {**COMMON, **JOINT, "stages": STAGES},
    "bert4ctr": {**COMMON, **JOINT, "stages": STAGES},
}


def config_of(model: str, seed: int, data: pathlib.Path, encoder: pathlib.Path) -> RunConfig:
    """Returns the run's configuration, as in a YAML file."""
    return RunConfig.model_validate(
        {
            "name": "reviews",
            "seed": seed,
            "data": {"paths": [str(data)], "format": "parquet", "labels": {"recommended": LABEL}, "split": SPLIT},
            "features": [
                {"kind": "categorical", "columns": list(IDS), "min_count": 2},
                {"kind": "numeric", "columns": list(NUMBERS), "transform": "min_max"},
                {"kind": "text", "columns": list(TEXTS), "encoder": str(encoder), "length": TEXT_LENGTH},
            ],
            "model": {"name": model},
            "training": TRAININGS[model],
        }
    )
