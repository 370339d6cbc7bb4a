"""`ctrpipe explain`: a question about a model, its answer, and what of it is kept in files."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.explain.explain import Settings, explain, explain_line, write_explanation
from ctrpipe.pipeline.explain.explained_row import RowExplained
from ctrpipe.pipeline.explain.prune import config_of_run, write_pruned
from ctrpipe.pipeline.report.report import EXPLANATION, write_report
from ctrpipe.pipeline.run.trained_model import find_model


@dataclasses.dataclass(frozen=True)
class Explained:
    """What a model uses and what its log holds.

    Attributes:
        explanation: The contents of explanation.json.
        report: The run's report, to which its pages were added; None where it has none of them.
        pruned: The smaller configuration's file; None where none was asked for.
        written: explanation.json; None where no folder was named.
    """

    explanation: dict[str, Any]
    report: pathlib.Path | None
    pruned: pathlib.Path | None
    written: pathlib.Path | None


@dataclasses.dataclass(frozen=True)
class LineExplained:
    """Why a row has its probability.

    Attributes:
        by_method: An explanation for each method that was asked for.
        written: row.json; None where no folder was named.
    """

    by_method: tuple[RowExplained, ...]
    written: pathlib.Path | None


def explain_model(
    model: pathlib.Path, data: Sequence[str], settings: Settings, output: pathlib.Path | None = None
) -> Explained:
    """Explains a model by a log, or by its run's test rows, whose explanation also goes into the run's report.

    Args:
        model: The folder of a finished run, of a model's versions, or of a version.
        data: Files and globs of a log with labels; none for the run's test rows.
        settings: What to ask.
        output: The folder for explanation.json, and for pruned.yaml where `settings.prune` asks for it.

    Raises:
        InputError: as `explain`; or a smaller configuration is asked for without a folder or of a slice.
    """
    if settings.prune is not None and (settings.slice is not None or output is None):
        raise _not_with_prune(settings.prune)
    source = find_model(model)
    found = explain(source, data, settings)
    report = None
    if source.run is not None and not data and settings.slice is None:
        report = _add_to_report(source.run, found)
    if output is None:
        return Explained(found, report, None, None)
    pruned = None if settings.prune is None else write_pruned(output, config_of_run(source), found["pruned"])
    return Explained(found, report, pruned, write_explanation(output, "explanation.json", found))


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
) -> LineExplained:
    """Explains why one row has its probability.

    Args:
        model: As in `explain_model`.
        row, data, settings, baseline, orders, method: As in `explain_line`.
        output: The folder for row.json.

    Raises:
        InputError: as `explain_line`.
    """
    if settings.prune is not None:
        raise _not_with_prune(settings.prune)
    source = find_model(model)
    found = tuple(explain_line(source, row, data, settings, baseline, orders, method))
    if output is None:
        return LineExplained(found, None)
    by_method = {one.method: dataclasses.asdict(one) for one in found}
    written = write_explanation(output, "row.json", {"row": row, "model": str(source.version), **by_method})
    return LineExplained(found, written)


def _add_to_report(run: pathlib.Path, explanation: dict[str, Any]) -> pathlib.Path | None:
    """Adds the pages of an explanation to a run's report, where the run's folder can be written."""
    if not (os.access(run, os.W_OK) and os.access(run / "report_data", os.W_OK)):
        return None
    write_explanation(run / "report_data", EXPLANATION, explanation)
    return write_report(run)
