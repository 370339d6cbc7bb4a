"""Checks that an export runs in the C++ loader and gives the same probabilities as Keras."""

import pathlib
from collections.abc import Mapping

import numpy as np

from ctrpipe.common.errors import InputError, NotFiniteError, one_line
from ctrpipe.serving.assets import GoldenRows, read_feature_map, read_log_spec
from ctrpipe.serving.explained import BASELINE_LOGIT, LOGIT, attributions
from ctrpipe.serving.explained import SIGNATURE as EXPLAIN
from ctrpipe.serving.export.export import candidates_of
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server.served import ServedVersion
from ctrpipe.serving.server.warmup import replay_warmup
from ctrpipe.serving.xla import xla_node

EXPLAINED_TOLERANCE = 1e-3  # between a row's sum of attributions and its logit minus the baseline logit


def check_servable(version: pathlib.Path) -> float:
    """Replays the warm-up requests and compares the answers with those of Keras at export.

    Returns:
        The largest difference between two probabilities, or two numbers in units of their size.

    Raises:
        InputError: the graph needs XLA, the model does not load, a warm-up request fails, a row's attributions do not
            add up, a probability is not finite, or it differs by more than the version's tolerance. That is 1e-6 for a
            float32 encoder, and more for a lower precision or a steep calibration.
    """
    if node := xla_node(version):
        raise InputError(
            f"{version}: {node} is compiled by XLA, which TF Serving refuses unless it runs with "
            "--xla_cpu_compilation_enabled; take jit_compile=True out of the model"
        )
    numbers = read_feature_map(version).numbers_by_task
    scales = {task: None if number is None else number.scale for task, number in numbers.items()}
    tasks = list(scales)
    try:
        servable = Servable(version)
        replay_warmup(ServedVersion("", 0, servable), version)
    except Exception as error:
        reason = one_line(error, 300)
        raise InputError(f"{version}: the export does not run in TF Serving's loader: {reason}") from error
    try:
        golden = GoldenRows.load(asset_path(version, Asset.GOLDEN))
        requests = {"serving_raw": golden.raw, "serving_packed": golden.packed}
        expected = dict.fromkeys(requests, golden.probabilities)
        if golden.candidates is not None:
            shared = candidates_of(golden.raw, golden.packed, read_log_spec(version))
            requests |= shared
            expected |= dict.fromkeys(shared, golden.candidates)
        worst = 0.0
        if EXPLAIN in servable.signatures:
            explained = servable.run(EXPLAIN, golden.raw)
            worst = _check_attributions(version, explained, golden.probabilities[:, 0], tasks[0])
        for signature, inputs in requests.items():
            outputs = servable.run(signature, inputs)
            for index, task in enumerate(tasks):
                if not np.isfinite(outputs[task]).all():
                    raise NotFiniteError(
                        f"{version}: {signature} answers a row of its own log with NaN or infinity",
                        "lower training.learning_rate, or set training.gradient_clip_norm, and train again",
                    )
                worst = max(worst, _difference(outputs[task], expected[signature][:, index], scales[task]))
    finally:
        servable.close()
    if not worst <= golden.tolerance:
        raise InputError(f"{version}: the export and Keras differ by {worst:.2e}, more than {golden.tolerance:.0e}")
    return worst


def _difference(answered: np.ndarray, expected: np.ndarray, scale: float | None) -> float:
    """Returns the largest difference of a task's answers.

    The difference of numbers is divided by the number or by the task's scale, whichever is larger. Probabilities have
    no scale.
    """
    unit = 1.0 if scale is None else np.maximum(scale, np.abs(expected))
    return float((np.abs(answered - expected) / unit).max())


def _check_attributions(
    version: pathlib.Path, answer: Mapping[str, np.ndarray], expected: np.ndarray, task: str
) -> float:
    """Returns the largest error of the probabilities. Raises InputError if attributions do not add up."""
    added = np.sum(list(attributions(answer).values()), axis=0)
    left = np.abs(answer[LOGIT] - answer[BASELINE_LOGIT] - added).max()
    if not left <= EXPLAINED_TOLERANCE:
        raise InputError(f"{version}: attributions leave {left:.2e} of a logit, more than {EXPLAINED_TOLERANCE:.0e}")
    return float(np.abs(answer[task] - expected).max())
