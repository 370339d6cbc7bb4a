"""A run's configuration: one YAML file, validated."""

from pipeline.config.calibration import Calibration
from pipeline.config.evaluation import Bounds, CalibrationBounds, CatalogueBounds, Evaluation, Gates, Statistics, Tail
from pipeline.config.kubeflow import Kubeflow, Resources
from pipeline.config.load import as_settings, check_config, load_config, read_yaml, with_parent
from pipeline.config.model import Model
from pipeline.config.monitoring import MaxDistance, Monitoring
from pipeline.config.run_config import RunConfig
from pipeline.config.search import Range
from pipeline.config.serving import Serving
from pipeline.config.training import Distillation, FirstStage, Plateau, Training, WarmStart

__all__ = [
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
    "Plateau",
    "Range",
    "Resources",
    "RunConfig",
    "Serving",
    "Statistics",
    "Tail",
    "Training",
    "WarmStart",
    "as_settings",
    "check_config",
    "load_config",
    "read_yaml",
    "with_parent",
]
