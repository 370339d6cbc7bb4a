"""Checks a configuration and its log before a run: `ctrpipe check`."""

from collections.abc import Sequence

from ctrpipe.common import extras
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.draft.check_log import Findings, check_log


def check_before_run(config: RunConfig, patterns: Sequence[str]) -> Findings:
    """Runs the checks of `check_log`. If they find no error, also builds the model and the baseline, as a run does.

    Without the extra `pipeline`, no model is built, and a note says so.
    """
    if _calls_foreign_models(config):
        load_tensorflow()  # before their modules do, which would print its log lines and take the user's keras.json
    findings = check_log(config, patterns)
    if findings.errors:
        return findings
    if extras.missing("pipeline"):
        findings.notes.append(
            "The models were not built, because this needs the extra pipeline; a run builds them first"
        )
        return findings
    load_tensorflow()
    # Lazy: TensorFlow and TFT take 7 s of CPU to import, which a log with errors does not need.
    from ctrpipe.pipeline.training.buildable import impossible_models

    # The counts include malformed rows and rows that sampling leaves out, which are not trained on.
    are_trained_on = findings.splits and not findings.rejected and config.data.negative_sampling == 1
    findings.errors += impossible_models(config, findings.splits if are_trained_on else None)
    return findings


def _calls_foreign_models(config: RunConfig) -> bool:
    """Returns whether `check_log` imports a module for a model that is not ctrpipe's."""
    return any(":" in model.name for model in (config.model, config.evaluation.baseline) if model)
