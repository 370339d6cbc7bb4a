"""The configuration of a run: one validated YAML file."""

from ctrpipe.pipeline.config.calibration import Calibration
from ctrpipe.pipeline.config.evaluation import (
    Bounds,
    CalibrationBounds,
    CatalogueBounds,
    Evaluation,
    Gates,
    NumberBounds,
    Statistics,
    Tail,
)
from ctrpipe.pipeline.config.keys import UnknownKeyError, nearest_key
from ctrpipe.pipeline.config.kubeflow import Kubeflow, Resources
from ctrpipe.pipeline.config.load import (
    Source,
    as_settings,
    check_config,
    load_config,
    path_of,
    read_yaml,
    unread_config,
    with_parent,
)
from ctrpipe.pipeline.config.model import Model
from ctrpipe.pipeline.config.monitoring import MaxDistance, Monitoring
from ctrpipe.pipeline.config.run_config import SEEDS, RunConfig
from ctrpipe.pipeline.config.search import SearchRange
from ctrpipe.pipeline.config.serving import Serving
from ctrpipe.pipeline.config.training import Distillation, FirstStage, Plateau, Training, WarmStart

__all__ = [
    "SEEDS",
    "Bounds",
    "Calibration",
    "CalibrationBounds",
    "CatalogueBounds",
    "Distillation",
    "Evaluation",
    "FirstStage",
    "Gates",
    "Kubeflow",
    "MaxDistance",
    "Model",
    "Monitoring",
    "NumberBounds",
    "Plateau",
    "SearchRange",
    "Resources",
    "RunConfig",
    "Serving",
    "Source",
    "Statistics",
    "Tail",
    "Training",
    "UnknownKeyError",
    "WarmStart",
    "as_settings",
    "check_config",
    "load_config",
    "nearest_key",
    "path_of",
    "read_yaml",
    "unread_config",
    "with_parent",
]
