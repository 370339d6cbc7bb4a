"""Suggestions for a model that a gate has blocked."""

from collections.abc import Mapping, Sequence
from typing import Any

from ctrpipe.common.hooks import GATE
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.config.training import LINEAR
from ctrpipe.pipeline.training.convergence import ALL_DONE, COSINE_ENDED, still_falling

EARLY = 1 / 3  # of the evaluations: a best evaluation before this fraction is a sign of overfitting
REGULARISE = (
    "raise training.table_l2 (model.embedding_l2 with an optimizer other than adam) and model.dropout, or make "
    "model.hidden_units and model.embedding_dim smaller"
)
QUALITY = ("auc", "gauc", "log_loss", "auc_minus_log_loss", "rig")  # the gates' metrics of how good a model is
STILL_IMPROVING = "raise training.epochs: the model was still improving when they ended"


def advice(
    gates: Sequence[Mapping[str, Any]], metrics: Mapping[str, Any], history: Mapping[str, Any], config: RunConfig
) -> list[str]:
    """Returns suggestions, the most promising first, without a final period. Empty if no gate has failed.

    Args:
        gates: The rows of gates.json.
        metrics: The contents of metrics.json.
        history: The contents of history.json: the evaluations on the validation rows, and the index of the best.
        config: The run's configuration.
    """
    failed = {(gate["metric"], gate["kind"]) for gate in gates if not gate["passed"]}
    texts: list[str] = []
    if failed & {(metric, "absolute") for metric in QUALITY}:
        texts += _for_quality(metrics, history, config)
    if ("rig", "absolute") in failed:
        texts.append("gates.rig null, or a lower gates.rig.min: it lifts the gate for a model worse than the base rate")
    if ("calibration", "absolute") in failed:
        texts += _for_calibration(metrics["calibration"], config)
    if ("calibration", "slice") in failed:
        texts.append(
            "a larger vocabulary (top_k) for the column whose value is named, a model with interactions, or a wider "
            "gates.calibration.max_error: the model misjudges one group of rows"
        )
    if any(metric == "ecs" and kind != GATE for metric, kind in failed):
        texts.append(
            "columns that tell users apart, negatives drawn by popularity (prepare history --draw popularity), "
            "or other limits in gates.ecs: the model shows everybody the same items"
        )
    if any(kind == "change" and metric != "ecs" for metric, kind in failed):
        texts.append(
            "train on more or newer rows, or with more seeds (ctrpipe run --seeds 3): the test then knows the noise of "
            "training runs; gates.max_drop says how much worse than the last model is allowed"
        )
    if objecting := [metric for metric, kind in failed if kind == GATE]:
        texts.append(f"what {' and '.join(sorted(objecting))} of a package objects to, or hooks.gates without it")
    return texts


def _for_quality(metrics: Mapping[str, Any], history: Mapping[str, Any], config: RunConfig) -> list[str]:
    """Returns suggestions for an insufficient AUC or log loss."""
    texts = []
    baseline, best, count = metrics["baseline"], history["best"], len(history["evaluations"])
    behind = baseline and None not in (baseline["auc"], metrics["auc"]) and baseline["auc"] > metrics["auc"]
    if best is not None and count >= 3 and best + 1 <= EARLY * count:
        texts.append(
            f"{REGULARISE}, or lower training.learning_rate: the model overfits, its best evaluation was number "
            f"{best + 1} of {count}"
        )
    elif still_falling(history):
        texts.append(STILL_IMPROVING)
    elif behind and config.model.name != baseline["name"]:
        texts.append(f"{REGULARISE}: the model is larger than these rows can teach")
    elif history["stopped"].startswith(ALL_DONE) and best == count - 1:
        texts.append(STILL_IMPROVING)
    elif history["stopped"] == COSINE_ENDED:
        texts.append("raise training.epochs: the learning rate falls to 0 within them")
    if behind and config.model.name == baseline["name"]:
        texts.append(
            f"training.optimizer lbfgs, by which the same model as baseline has an AUC of {baseline['auc']:.4f}"
            if config.model.name == LINEAR and config.training.optimizer != "lbfgs"
            else f"the model of evaluation.baseline, whose AUC is {baseline['auc']:.4f} on the same rows"
        )
    elif behind:
        texts.append(
            f"model.name {baseline['name']}, the baseline, whose AUC is {baseline['auc']:.4f} on the same rows, or "
            "model.use_linear, which adds a linear part to the deep one"
        )
    elif baseline is None and config.model.name != LINEAR:
        texts.append("evaluation.baseline {name: lr}: it shows what a logistic regression reaches on these rows")
    texts.append("another bound in gates: what is reachable depends on the log")
    return texts


def _for_calibration(calibration: float | None, config: RunConfig) -> list[str]:
    """Returns suggestions for a mean prediction far from the click rate of the test rows."""
    if calibration is None:
        return ["more test rows: there is no click among them"]
    texts = []
    if not config.training.refit:
        texts.append("training.refit: the model then learns from the validation rows too, which are the newest")
    many = "more" if calibration > 1 else "fewer"
    texts.append(
        f"newer training rows, or wider gates.calibration: the model expects {many} clicks than the test rows "
        "have, and the log's click rate may have changed"
    )
    return texts
