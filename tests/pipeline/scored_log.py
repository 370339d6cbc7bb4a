"""A log whose columns are the predictions of the models that are evaluated on it."""

import pathlib

import pyarrow as pa
import tensorflow as tf

from ctrpipe.pipeline.config import RunConfig, Tail
from ctrpipe.pipeline.evaluation.gates import eval_config
from ctrpipe.transforms.log.payload import PayloadWriter, payload_schema


def config(
    columns: dict[str, list],
    tasks: dict[str, str],
    slices: tuple[str, ...] = (),
    gates: dict | None = None,
    tail: Tail | None = None,
    weight: str | None = None,
):
    """Returns a run's configuration for a log of these columns: bytes are categorical, the others numeric."""
    features = [name for name in columns if name not in (*tasks.values(), weight)]
    text = [name for name in features if any(isinstance(value, bytes) for value in columns[name])]
    kinds = {"categorical": text, "numeric": [name for name in features if name not in text]}
    values = {
        "name": "scored",
        "data": {"columns": list(columns), "labels": tasks, "weight": weight},
        "features": [{"kind": kind, "columns": names} for kind, names in kinds.items() if names],
        "model": {"name": "lr"},
        "evaluation": {"slices": list(slices), "tail": tail.model_dump() if tail else None},
        "gates": {"rig": None, **(gates or {})},
    }
    return RunConfig.model_validate(values)


def gates_of(run: RunConfig):
    """Returns TFMA's configuration of a run's gates and slices."""
    return eval_config(run.gates, run.evaluation, run.data.columns_by_task, run.data.weight)


def write(folder: pathlib.Path, run: RunConfig, columns: dict[str, list], parts: int = 1) -> list[pathlib.Path]:
    """The payload's parts; None is a missing value."""
    schema = payload_schema(run.log_spec)
    folder.mkdir(parents=True)
    rows = pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema)
    files, size = [], -(-rows.num_rows // parts)
    for part in range(parts):
        with PayloadWriter(folder, f"part{part}", schema) as writer:
            writer.write(rows.slice(part * size, size))
        files += writer.parts
    return files


def save(folder: pathlib.Path, answers: dict[str, str], inputs: dict[str, tf.DType] | None = None) -> pathlib.Path:
    """Writes a servable that answers each task with a column (-1 if missing), and may take more columns."""
    inputs = inputs or dict.fromkeys(answers.values(), tf.float32)

    @tf.function(input_signature=[{name: tf.TensorSpec([None], kind, name=name) for name, kind in inputs.items()}])
    def serving_raw(columns):
        return {task: tf.where(tf.math.is_nan(columns[name]), -1.0, columns[name]) for task, name in answers.items()}

    tf.saved_model.save(tf.Module(), str(folder), {"serving_raw": serving_raw})
    return folder
