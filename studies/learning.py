"""Measures whether the models learn interactions, on two generated logs with known best possible AUCs.

    python -m studies.learning [--models fm,xdeepfm] [--seeds 3] [--rows 40000] [--epochs 12] [--output FILE]

Clicks depend only on pairs of columns in one log, and only on triples in the other: on products of signs, which
no single column reveals (nor, for triples, any pair of columns). A model's share is its position between LR's test AUC
(0) and the AUC of the true probabilities (1), as mean and spread over the seeds; LR's own share is counted from 0.5.
The models are trained on ids, by the trainer of a run.
"""

import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import chosen_names
from benchmarks.harness.packed_log import PARTS, PackedLog, predicted, trained, write_packed_log
from benchmarks.harness.result_table import Cell, result_table
from ctrpipe.common import metrics
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.transforms.generate import FORMATS, ClickModel
from ctrpipe.transforms.generate.sample import sample

# The columns with planted effects, and four without any.
COLUMNS = ("I4", "I9", "C6", "C9", "C14", "C17", "C20", "C22", "C23", "C25")
CLICK_MODELS = {
    "pairs": ClickModel("pairs", main_strength=0.0, pair_strength=2.0),
    "triples": ClickModel("triples", main_strength=0.0, triple_strength=2.0),
}

TRAINING = Training(
    batch_size=512, epochs=12, learning_rate=0.005, monitor="auc", patience=6, plateau=None, distribution="one_device"
)
# The logs have only interactions, so embeddings start large: near zero, a product of three has no gradient.
FACTORS = {"embedding_dim": 8, "embedding_stddev": 0.3}
DEEP = {**FACTORS, "hidden_units": (64, 64)}
TOKENS = {**DEEP, "embedding_dim": 16, "heads": 2, "key_dim": 8, "value_dim": 8, "ffn_dim": 32}
SETTINGS: dict[str, dict[str, Any]] = {
    "lr": {},
    "lightgbm": {},
    "fm": FACTORS,
    "ffm": {**FACTORS, "embedding_dim": 4},
    "afm": FACTORS,
    "mlp": DEEP,
    "features_only": {**DEEP, "token_dim": 64},
    "fnn": DEEP,
    "ccpm": DEEP,
    "pnn": DEEP,
    "deepfm": DEEP,
    "wide_deep": DEEP,
    "dcn": DEEP,
    "crossnet": FACTORS,
    "dcn_v2": DEEP,
    "dlrm": DEEP,
    "cin": {**FACTORS, "maps": (32, 32)},
    "xdeepfm": {**DEEP, "maps": (32, 32)},
    "autoint": {**DEEP, "layers": 2, "attention_dim": 16},
    "attention_net": {**DEEP, "embedding_dim": 16, "layers": 2},
    "transformer": TOKENS,
    "transformer_pe": TOKENS,
    "hetero_att": TOKENS,
    "hiformer": {**TOKENS, "qk_rank": 32, "v_rank": 64},
    "fibinet": DEEP,
    "mask_net": DEEP,
    "edcn": FACTORS,
    "final_mlp": {**DEEP, "second_units": (64, 64)},
    "final_net": {**DEEP, "second_units": (64, 64)},
    "gdcn": DEEP,
    "ppnet": {**DEEP, "priors": ("C9",)},
    "pepnet": {**DEEP, "priors": ("C9",), "domains": ("C14",)},
    "fcn": {**FACTORS, "exponential_layers": 2, "linear_layers": 2},
    "wukong": DEEP,
    "qnn": FACTORS,
    "rank_mixer": {**FACTORS, "tokens": 4, "token_dim": 32, "ffn_dim": 64},
}


@dataclasses.dataclass(frozen=True)
class Bound:
    """A bound on a model's share on a log: the minimum or the maximum."""

    log: str
    model: str
    least: float | None = None
    most: float | None = None

    def holds(self, share: float) -> bool:
        return (self.least is None or share >= self.least) and (self.most is None or share <= self.most)

    def __str__(self) -> str:
        return f">= {self.least:.0%}" if self.least is not None else f"<= {self.most:.0%}"


# On pairs, every model except LR and trees on its weights should reach an FM. LR's share is counted from 0.5; counted
# from LR it would be 0.
BOUNDS = (
    *(Bound("pairs", name, least=0.7) for name in SETTINGS if name not in ("lr", "lightgbm")),
    Bound("pairs", "lr", most=0.1),
    *(Bound("triples", name, most=0.1) for name in ("lr", "fm")),
    *(Bound("triples", name, least=0.4) for name in ("xdeepfm", "attention_net", "hiformer")),
)


def make_log(kind: str, rows: int, folder: pathlib.Path) -> PackedLog:
    """Returns a new log by one of CLICK_MODELS: training rows, a quarter as many validation, half as many test rows."""
    spec = FORMATS["criteo"]
    spec = dataclasses.replace(spec, columns=tuple(column for column in spec.columns if column.name in COLUMNS))
    parts = {part: sample(spec, CLICK_MODELS[kind], int(rows * of), seed) for part, (seed, of) in PARTS.items()}
    names = [column.name for column in spec.columns]
    return write_packed_log(kind, names, parts, folder)


def trained_auc(model: str, log: PackedLog, seed: int, work: pathlib.Path, training: Training = TRAINING) -> float:
    """Trains to the best validation AUC, and returns the AUC on the test rows."""
    learner = trained(Model(name=model, **SETTINGS[model]), training, log, seed, work)
    auc = metrics.auc(log.labels, predicted(learner, log))
    assert auc is not None  # the log has both classes
    return auc


def share(auc: float, start: float, best: float) -> float:
    """Returns the position of an AUC between `start` (0) and `best` (1)."""
    return (auc - start) / (best - start)


def measure(
    kind: str,
    names: Sequence[str],
    rows: int,
    seeds: int,
    progress: Callable[[str], None],
    training: Training = TRAINING,
) -> dict[str, Any]:
    """Trains the models on a log, and returns their test AUCs and shares.

    Args:
        kind: One of CLICK_MODELS.
        names: The models, lr first.
        rows: Training rows.
        seeds: Training runs of each model.
        progress: Called with a line of text after each training run.
        training: The training settings.

    Returns:
        {"best_auc", "lr_auc", "models": {name: {"auc", "share"}}}, with lists over the seeds.
    """
    aucs_of: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        log = make_log(kind, rows, work)
        for name in names:
            aucs_of[name] = []
            for seed in range(seeds):
                aucs_of[name].append(trained_auc(name, log, seed, work / name / str(seed), training))
                progress(f"{kind}: {name}, seed {seed}: test AUC {aucs_of[name][-1]:.4f} of {log.best_auc:.4f}")
    start = statistics.mean(aucs_of["lr"])
    models = {
        name: {"auc": aucs, "share": [share(auc, 0.5 if name == "lr" else start, log.best_auc) for auc in aucs]}
        for name, aucs in aucs_of.items()
    }
    return {"best_auc": log.best_auc, "lr_auc": start, "models": models}


def missed(logs: dict[str, dict[str, Any]]) -> list[str]:
    """Returns a line for each bound that the mean over the seeds misses."""
    lines = []
    for bound in BOUNDS:
        measured = logs.get(bound.log, {"models": {}})["models"].get(bound.model)
        if measured and not bound.holds(statistics.mean(measured["share"])):
            lines.append(f"{bound.log}: {bound.model} {statistics.mean(measured['share']):.1%}, should be {bound}")
    return lines


def missed_bounds(report: Mapping[str, Any]) -> list[str]:
    return missed(report["logs"])


def table(report: Mapping[str, Any]) -> Table:
    logs = report["logs"]
    parts = [f"{kind}: from {log['lr_auc']:.4f} (LR) to {log['best_auc']:.4f} (best)" for kind, log in logs.items()]
    bounds = {(bound.log, bound.model): str(bound) for bound in BOUNDS}
    columns: dict[str, Cell] = {"model": "{model}"}
    for kind, log in logs.items():
        columns |= _log_columns(kind, log["models"], {model: bounds.get((kind, model), "") for model in log["models"]})
    models = [{"model": name} for name in report["settings"]]
    return result_table(f"Share of the way in test AUC. {'; '.join(parts)}", columns, models)


def _log_columns(kind: str, models: Mapping[str, Any], bounds: Mapping[str, str]) -> dict[str, Cell]:
    """Returns the columns of a log."""

    def mean(key: str, form: str) -> Cell:
        return lambda one: format(statistics.mean(models[one["model"]][key]), form)

    def ends(one: Mapping[str, Any]) -> str:
        shares = models[one["model"]]["share"]
        return f"{min(shares):.1%} .. {max(shares):.1%}"

    columns = {"AUC": mean("auc", ".4f"), "share": mean("share", ".1%"), "least .. most": ends}
    columns["bound"] = lambda one: bounds[one["model"]]
    return {f"{kind}: {name}": cell for name, cell in columns.items()}


def chosen_models(text: str | None, known: Collection[str], first: str) -> tuple[str, ...]:
    """Returns the models of the option --models, or all, preceded by the reference model `first`.

    Raises:
        InputError: A model does not exist.
    """
    names = chosen_names("--models", text, known) if text else known
    return tuple(dict.fromkeys((first, *names)))


@Benchmark("studies.learning", table, missed_bounds)
@click.option("--models", help="Models to train, separated by commas. Default: all.")
@click.option("--seeds", type=click.IntRange(1), default=3, help="Training runs of each model.")
@click.option("--rows", type=click.IntRange(1000), default=40_000, help="Training rows of each log.")
@click.option("--epochs", type=click.IntRange(1), default=TRAINING.epochs, help="Maximum epochs of a training run.")
def main(report: Report, models: str | None, seeds: int, rows: int, epochs: int) -> None:
    """Measure each model's share of the way from LR's test AUC to the best possible, on logs of pairs and of triples.

    Prints a table, writes JSON, and prints the JSON on the last line. Exits with 1 if a share misses its bound.
    """
    names, training = chosen_models(models, SETTINGS, "lr"), TRAINING.model_copy(update={"epochs": epochs})
    load_tensorflow()
    report |= {"rows": rows, "seeds": seeds, "training": training.model_dump(mode="json"), "logs": {}}
    report["settings"] = {name: SETTINGS[name] for name in names}
    for kind in CLICK_MODELS:
        report["logs"][kind] = measure(kind, names, rows, seeds, announce, training)
        report.write()
    report["missed"] = missed(report["logs"])


if __name__ == "__main__":
    main()
