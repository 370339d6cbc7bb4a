"""Measures a model's serving latency before it is trained. The latency does not depend on the weights."""

import pathlib
import statistics
import tempfile

from ctrpipe.common.processes import cores, run_in_new_process
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.sample_export import export_untrained
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.serving.tuning.tune_process import ClientLoad, Setting, measure

SIGNATURE = "serving_raw"  # a raw row of the log, as clients send it
ROUNDS, SECONDS = 3, 1.0


def serving_p99(config: RunConfig, log: TransformedLog, folder: pathlib.Path) -> float:
    """Returns the p99 latency, in milliseconds, of sequential requests of one raw row.

    An export of the untrained model runs in its own process with TensorFlow's default threads, without network
    transfer. The result is the median of 3 rounds of one second each.

    Args:
        config: The trial's configuration.
        log: The transformed log.
        folder: An existing folder for the export. The export is removed afterwards.
    """
    with tempfile.TemporaryDirectory(dir=folder) as made:
        version = pathlib.Path(made) / "1"
        export_untrained(config, log, version)
        setting, loads = Setting(cores(), cores(), True), [ClientLoad(rows=1, clients=1)] * ROUNDS
        rounds = run_in_new_process(measure, setting, str(version), SIGNATURE, loads, SECONDS)
    return statistics.median(each.p99_ms for each in rounds)
