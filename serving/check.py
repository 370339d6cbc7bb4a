"""Does an export answer in the C++ loader, and what Keras answers?"""

import pathlib

import numpy as np

from common.errors import InputError, one_line
from serving.export import ASSETS, GOLDEN, candidates_of, read_assets
from serving.loader import Servable
from serving.server.served import ServedVersion
from serving.server.warmup import replay_warmup


def check_servable(version: pathlib.Path) -> float:
    """Replays the warm-up requests and compares probabilities with those that Keras gave at export.

    Returns:
        The largest difference found.

    Raises:
        InputError: the model does not load, a warm-up request fails, or a probability differs by more than the
            precision of the encoder explains (1e-6 for float32).
    """
    spec, feature_map = read_assets(version)
    try:
        servable = Servable(version)
        replay_warmup(ServedVersion("", 0, servable), version)
    except Exception as error:
        reason = one_line(error, 300)
        raise InputError(f"{version}: the export does not run in TF Serving's loader: {reason}") from error
    try:
        with np.load(version / ASSETS / GOLDEN) as golden:
            raw = {name[4:]: _tensor(golden[name]) for name in golden.files if name.startswith("raw.")}
            packed = {name[7:]: golden[name] for name in golden.files if name.startswith("packed.")}
            expected = dict.fromkeys(("serving_raw", "serving_packed"), golden["probabilities"])
            tolerance = float(golden["tolerance"])
            requests = {"serving_raw": raw, "serving_packed": packed}
            if "candidates" in golden:
                shared = candidates_of(raw, packed, spec)
                requests |= shared
                expected |= dict.fromkeys(shared, golden["candidates"])
        worst = 0.0
        for signature, inputs in requests.items():
            outputs = servable.run(signature, inputs)
            for index, task in enumerate(feature_map.tasks):
                worst = max(worst, float(np.abs(outputs[task] - expected[signature][:, index]).max()))
    finally:
        servable.close()
    if not worst <= tolerance:
        raise InputError(f"{version}: the export and Keras differ by {worst:.2e}, more than {tolerance:.0e}")
    return worst


def _tensor(values: np.ndarray) -> np.ndarray:
    return values.astype(object if values.dtype.kind == "S" else np.float32)
