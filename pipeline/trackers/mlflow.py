"""Logs a run to MLflow: parameters, metrics by step, the report, and the model with its signature in the registry.

MLflow's own environment variables choose the server and the experiment: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME and
the others that its client reads.
"""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from ctrpipe.common.extras import require
from ctrpipe.pipeline.run.finished import FinishedRun

_MOST_CHARACTERS = 6000  # of a parameter
_PARAMETERS_AT_ONCE = 100


def track(run: FinishedRun) -> str:
    """Logs the run, and returns its id and its experiment as text.

    Raises:
        InputError: the extra mlflow is not installed.
    """
    require("mlflow", "the tracker mlflow")
    import mlflow  # lazy: of the extra mlflow
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient()
    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", run.name)
    known = client.get_experiment_by_name(experiment)
    place = known.experiment_id if known else client.create_experiment(experiment)
    made = client.create_run(place, run_name=run.name, tags={"ctrpipe.folder": str(run.folder)})
    key = made.info.run_id
    parameters = [Param(name, str(value)[:_MOST_CHARACTERS]) for name, value in flat(run.config)]
    for first in range(0, len(parameters), _PARAMETERS_AT_ONCE):
        client.log_batch(key, params=parameters[first : first + _PARAMETERS_AT_ONCE])
    steps = [(each["step"], name, value) for each in run.history for name, value in numbers(each)]
    measured = [(0, f"test_{name}", value) for name, value in numbers(run.metrics)]
    client.log_batch(
        key, metrics=[Metric(name, value, made.info.start_time, step) for step, name, value in steps + measured]
    )
    client.log_artifact(key, str(run.folder / "report.html"))
    if run.version:
        with tempfile.TemporaryDirectory() as unnamed:
            folder = pathlib.Path(unnamed) / "model"
            shutil.copytree(run.version, folder / "saved_model")
            _described(run, key).save(str(folder / "MLmodel"))
            client.log_artifacts(key, str(folder), "model")
        if not client.search_registered_models(f"name = '{run.name}'"):
            client.create_registered_model(run.name)
        client.create_model_version(run.name, f"{made.info.artifact_uri}/model", key)
    client.set_terminated(key)
    return f"run {key} of the experiment {experiment}"


def _described(run: FinishedRun, key: str) -> Any:
    """Returns the description of the model: the columns of a request, and the probability of each task."""
    from mlflow.models import Model, ModelSignature  # lazy: takes 2 s, and belongs to an extra
    from mlflow.types import ColSpec, Schema

    inputs: list[Any] = [
        ColSpec("float" if kind == "numeric" else "string", name) for name, kind in run.columns.items()
    ]
    outputs: list[Any] = [ColSpec("float", task) for task in run.config["data"]["labels"]]
    return Model(
        artifact_path="model",
        run_id=key,
        flavors={"tensorflow": {"saved_model_dir": "saved_model", "signature_def_key": "serving_default"}},
        signature=ModelSignature(Schema(inputs), Schema(outputs)),
    )


def flat(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of nested mappings with the names of their keys, as `training.epochs`."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def numbers(values: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    """Yields the names and values of numeric entries, without booleans and `step`."""
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            yield name, float(value)
