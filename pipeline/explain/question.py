"""Runs the explanations of `ctrpipe explain`, and writes their files."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_text
from ctrpipe.common.store_names import with_urls
from ctrpipe.pipeline.explain.explain import Settings, explain, explain_line, write_explanation
from ctrpipe.pipeline.explain.explained_row import RowExplained
from ctrpipe.pipeline.explain.prune import config_of_run, write_pruned
from ctrpipe.pipeline.report.explanation import explanation_page
from ctrpipe.pipeline.report.report import EXPLANATION, write_report
from ctrpipe.pipeline.run.trained_model import find_model


@dataclasses.dataclass(frozen=True)
class Explained:
    """The explanation of a model.

    Attributes:
        explanation: The contents of explanation.json.
        report: The run's report, with the explanation's pages added. None if no report was changed.
        pruned: The file of the pruned configuration. None if not requested.
        written: The path of explanation.json. None without an output folder.
        page: The path of explanation.html, which shows it. None without an output folder.
        log: The files to train the pruned configuration on, where it names none and they are known.
    """

    explanation: dict[str, Any]
    report: pathlib.Path | None
    pruned: pathlib.Path | None
    written: pathlib.Path | None
    page: pathlib.Path | None
    log: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class LineExplained:
    """The explanation of a row's probability.

    Attributes:
        by_method: An explanation for each requested method.
        written: The path of row.json. None without an output folder.
    """

    by_method: tuple[RowExplained, ...]
    written: pathlib.Path | None


def explain_model(
    model: pathlib.Path,
    data: Sequence[str],
    settings: Settings,
    output: pathlib.Path | None = None,
    trust: bool = False,
) -> Explained:
    """Explains a model on a log or on its run's test rows. For test rows, also adds pages to the run's report.

    Args:
        model: The folder of a finished run, of a model's versions, or of a version.
        data: Files and globs of a log with labels. Empty for the run's test rows.
        settings: The settings.
        output: The folder for explanation.json and explanation.html, and for pruned.yaml with `settings.prune`.
        trust: Whether a class of another module than ctrpipe's, which the run names, may be imported.

    Raises:
        InputError: as in `explain`; or pruning is requested without a folder or for a slice.
    """
    if settings.prune is not None and (settings.slice is not None or output is None):
        raise _not_with_prune(settings.prune)
    source = find_model(model, trust)
    explanation = explain(source, data, settings)
    report = None
    if source.run is not None and not data and settings.slice is None:
        report = _add_to_report(source.run, explanation)
    if output is None:
        return Explained(explanation, report, None, None, None)
    pruned, log = None, tuple[str, ...]()
    if settings.prune is not None:
        config = config_of_run(source)
        pruned = write_pruned(output, config, explanation["pruned"])
        log = () if config.data.paths else tuple(source.log())
    written = write_explanation(output, "explanation.json", explanation)
    return Explained(explanation, report, pruned, written, _write_page(output / "explanation.html", explanation), log)


def _not_with_prune(limit: float) -> InputError:
    return InputError(f"--prune {limit:g}: give --output DIR, which gets pruned.yaml, and neither --row nor --slice")


def explain_row(
    model: pathlib.Path,
    row: str,
    data: Sequence[str],
    settings: Settings,
    baseline: str = "average",
    orders: int = 200,
    method: str | None = None,
    output: pathlib.Path | None = None,
    trust: bool = False,
) -> LineExplained:
    """Explains the probability of one row.

    Args:
        model: As in `explain_model`.
        row, data, settings, baseline, orders, method: As in `explain_line`.
        output: The folder for row.json.
        trust: As in `explain_model`.

    Raises:
        InputError: as in `explain_line`; or `settings.prune` is set.
    """
    if settings.prune is not None:
        raise _not_with_prune(settings.prune)
    source = find_model(model, trust)
    explained = tuple(explain_line(source, row, data, settings, baseline, orders, method))
    if output is None:
        return LineExplained(explained, None)
    by_method = {one.method: dataclasses.asdict(one) for one in explained}
    written = write_explanation(output, "row.json", {"row": row, "model": with_urls(str(source.version)), **by_method})
    return LineExplained(explained, written)


def _write_page(path: pathlib.Path, explanation: dict[str, Any]) -> pathlib.Path:
    try:
        write_text(path, explanation_page(explanation))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another --output") from error
    return path


def _add_to_report(run: pathlib.Path, explanation: dict[str, Any]) -> pathlib.Path | None:
    """Adds the pages of an explanation to a run's report. Returns None if the run's folder is read-only."""
    if not (os.access(run, os.W_OK) and os.access(run / "report_data", os.W_OK)):
        return None
    write_explanation(run / "report_data", EXPLANATION, explanation)
    return write_report(run)
