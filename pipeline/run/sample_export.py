"""Exports a servable of any model in seconds: briefly trained on a generated log, or untrained on a given log.

The exports are for benchmarks and trials of serving; the AUC of such a model is meaningless. TensorFlow takes 3 s to
import. It is imported inside a function, after the check that the model exists.
"""

import dataclasses
import json
import pathlib
import shutil
from typing import Any

import numpy as np

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import atomic_folder, write_json
from ctrpipe.common.processes import Workers
from ctrpipe.models.base.registry import check_hyperparameters, model_class
from ctrpipe.pipeline.config import Model, RunConfig, Training
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.serving.layout import Asset
from ctrpipe.transforms.features.transform import analyze, transform
from ctrpipe.transforms.generate import generate
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

ROWS, SEED = 20_000, 1
LOG, PREPARED = "log.tsv", "prepared.json"
TRAINED_ROWS = 2048  # a few steps, to move all weights from their initial values
# Criteo's 39 columns, one field each.
CRITEO = LogSpec.model_validate(
    {
        "data": {"columns": ["label", "I1..I13", "C1..C26"], "labels": {"ctr": "label"}},
        "features": [
            {"columns": ["I1..I13"], "kind": "numeric", "transform": "log_bucketize"},
            {"columns": ["C1..C26"], "kind": "categorical", "transform": "vocabulary", "top_k": 5000},
        ],
    }
)
# Options for every model that has them: the shape of the figures in docs/measured.md.
SHAPE: dict[str, Any] = {"embedding_dim": 16, "hidden_units": [400, 400]}
# Hiformer, section 4.1.4: the tokens are 128 wide.
TOKEN_MODELS = ("transformer", "transformer_pe", "hetero_att", "hiformer")


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """The log, its transform graph and its packed rows. All models of a folder share them."""

    log: pathlib.Path
    graph: pathlib.Path
    packed: pathlib.Path


def make_export(
    model: str, folder: pathlib.Path, rows: int = ROWS, seed: int = SEED, **hyperparameters: Any
) -> pathlib.Path:
    """Writes `folder/<model>/1`, a version that TF Serving serves with `--model_base_path folder/<model>`.

    The generated log stays as `folder/log.tsv`. Models of the same folder, rows and seed share the log and its
    transform.

    Args:
        model: Registry name.
        folder: The folder of the log and of all its models. It is created if missing.
        rows: Number of rows of the log. More rows give larger vocabularies.
        seed: Seed of the log and of the weights.
        **hyperparameters: Options of the model. The defaults are embeddings of width 16 and hidden layers 400-400.
            Token models default to the options of their papers.

    Returns:
        The version's folder.

    Raises:
        InputError: no such model or hyperparameter.
    """
    options = _hyperparameters(model, hyperparameters)
    prepared = _prepare(folder, rows, seed)
    # Lazy: TensorFlow takes 4 s, and the model's options are checked before.
    import tensorflow_transform as tft

    from ctrpipe.pipeline.training.data import packed_batches
    from ctrpipe.pipeline.training.tensorflow_learner import make_learner
    from ctrpipe.serving.export.export import export
    from ctrpipe.transforms.features.preprocessing import feature_map

    graph = tft.TFTransformOutput(str(prepared.graph))
    fields = feature_map(CRITEO, graph)
    training = Training(batch_size=256, distribution="one_device")
    learner = make_learner(Model(name=model, **options), training, fields, seed)
    packed = [str(prepared.packed / "train" / "*")]
    loss = learner.fit(packed_batches(packed, fields, training.batch_size, seed, take=TRAINED_ROWS // 256))
    if not np.isfinite(loss):
        raise RuntimeError(f"{model}: the loss of {TRAINED_ROWS:,} rows is {loss}")
    version = folder / model / "1"
    first = next(LogReader(CRITEO).read(str(prepared.log))).rows.slice(0, 10)
    extra = {Asset.TRAINING: json.dumps({"model": {"name": model, **options}}, indent=1)}
    with atomic_folder(version) as unfinished:
        export(learner.network, graph, CRITEO, fields, first, unfinished, extra)
    return version


def export_untrained(config: RunConfig, log: TransformedLog, version: pathlib.Path) -> None:
    """Writes a servable of a configuration's model with its initial weights.

    Args:
        config: The model, the log and the settings of serving.
        log: The transformed log.
        version: The version's folder, which must not exist.
    """
    # Lazy: TensorFlow takes 4 s, and the model's options are checked before.
    import tensorflow_transform as tft

    from ctrpipe.pipeline.training.network import build_network
    from ctrpipe.pipeline.training.text_encoder import with_encoder
    from ctrpipe.serving.export.export import export

    network = build_network(with_encoder(config.model, config.text), log.feature_map, config.seed)
    rows = next(read_payload(payload_files(log.payload / "Split-train"), batch_rows=config.serving.warmup_requests))
    graph = tft.TFTransformOutput(str(log.graph))
    serving = (config.serving.position, config.serving.encoder_precision)
    export(network, graph, config.log_spec, log.feature_map, rows, version, {}, *serving)


def _hyperparameters(model: str, given: dict[str, Any]) -> dict[str, Any]:
    try:
        known = model_class(model).options()
        shape = {} if model in TOKEN_MODELS else SHAPE
        options = {key: value for key, value in shape.items() if key in known} | given
        check_hyperparameters(model, **options)
    except (ValueError, TypeError) as error:
        raise InputError(one_line(error)) from error
    return options


def _prepare(folder: pathlib.Path, rows: int, seed: int) -> _Prepared:
    """Generates, reads, analyzes and packs the log, unless the folder holds it with these rows, seed and columns."""
    prepared = _Prepared(folder / LOG, folder / "transform", folder / "packed")
    made_from = {"rows": rows, "seed": seed, "spec": CRITEO.model_dump(mode="json")}
    note = folder / PREPARED
    if note.exists() and json.loads(note.read_text()) == made_from:
        return prepared
    folder.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)
    generate("criteo", rows, seed, prepared.log)
    payload = {name: folder / "payload" / name for name in SPLITS}
    for path in (prepared.graph, prepared.packed, folder / "payload"):
        shutil.rmtree(path, ignore_errors=True)
    for path in payload.values():
        path.mkdir(parents=True)
    here = Workers(processes=1)
    ingest(CRITEO, [str(prepared.log)], seed, payload, folder / "dead_letter", here)
    analyze(CRITEO, payload_files(payload["train"]), prepared.graph, here)
    splits = {name: (payload[name], prepared.packed / name) for name in SPLITS}
    transform(CRITEO, prepared.graph, splits, seed, here)
    write_json(note, made_from)
    return prepared
