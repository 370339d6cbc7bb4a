"""Leaves out work that most test files do not test and that takes longer than all that they test.

- Grappler: it optimises each signature of a loaded graph before the first run. Loading a small export and running five
  of its signatures takes 0.4 s of CPU without it, and 1.8 s with it.
- matplotlib, for the seven charts of a run's report: 1 s of the 6 s of a small run. Their data is still computed.

Users have both, so the files named here keep both. So do processes: servers, commands and workers, also forks of a test
process, unless they call `leave_out`.
"""

import functools
import html
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ctrpipe.common import sessions

ROOT = Path(__file__).parents[1]
# All signatures of an export, every kind of model, a whole run, both protocols, and what is measured.
OPTIMISED = (
    "tests/benchmarks",
    "tests/contract",
    "tests/e2e/test_pipeline.py::test_every_way_to_a_probability_gives_the_same",
    "tests/e2e/test_pipeline.py::test_the_result_has_the_promised_layout",
    "tests/models/test_saving.py",
    "tests/serving/test_admission.py",
    "tests/serving/test_budget.py",
    "tests/serving/test_latency.py",
    "tests/serving/test_loader.py",
    "tests/serving/test_pace.py",
    "tests/serving/test_pieces.py",
    "tests/serving/test_tune.py",
)
# In `make test-all`. `make test` has one model's case, and the export of a whole run has all signatures optimised.
OPTIMISED_WHERE_LARGE = ("tests/serving/test_every_model.py",)
# A whole run, what its report shows, and what trackers get of it.
DRAWN = (
    "tests/e2e/test_pipeline.py::test_the_result_has_the_promised_layout",
    "tests/pipeline/test_report.py",
    "tests/pipeline/test_report_in_browser.py",
    "tests/pipeline/test_report_numbers.py",
    "tests/pipeline/test_trackers.py",
)
PLOTS = "ctrpipe.pipeline.report.plots"

_load_as_ever = sessions.load_session
_is_optimised = True


@functools.wraps(_load_as_ever)
def _load_session(folder: Path, config: Any = None, tags: Sequence[str] = ("serve",)) -> tuple[Any, dict[str, Any]]:
    return _load_as_ever(folder, config if _is_optimised else without_optimisers(config), tags)


def without_optimisers(config: Any) -> Any:
    """Returns a copy of a ConfigProto, or of TensorFlow's default one, that leaves graphs unchanged."""
    from tensorflow.core.protobuf import config_pb2  # whoever loads a session has imported TensorFlow

    quick = config_pb2.ConfigProto()
    if config is not None:
        quick.CopyFrom(config)
    quick.graph_options.rewrite_options.disable_meta_optimizer = True
    quick.graph_options.optimizer_options.opt_level = config_pb2.OptimizerOptions.L0
    quick.graph_options.optimizer_options.do_function_inlining = True  # as Grappler, so that errors name the same nodes
    return quick


sessions.load_session = _load_session  # before other modules take its name


def titled_svg(chart: Any) -> str:
    """Returns a picture of a chart's title, in place of the chart."""
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img"><title>{html.escape(chart.title)}</title></svg>'


def leave_out() -> None:
    """Leaves out both in this process from now on."""
    global _is_optimised
    _is_optimised = False
    from ctrpipe.pipeline.report import plots  # Lazy: 0.5 s; a process that draws nothing does without it.

    plots.chart_svg = titled_svg


def is_of(file: Path, names: tuple[str, ...], test: str = "") -> bool:
    """Returns whether a test file, or a test of it, is one of these, or in one of these folders."""
    return file.is_relative_to(ROOT) and f"{file.relative_to(ROOT).as_posix()}::{test}".startswith(names)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Decides before the fixtures of a file make the shared objects of its tests."""
    global _is_optimised
    is_large = item.get_closest_marker("large") is not None
    _is_optimised = is_of(item.path, OPTIMISED + OPTIMISED_WHERE_LARGE * is_large, item.name)
    if plots := sys.modules.get(PLOTS):  # what has not run yet is drawn as ever
        charts = sys.modules["ctrpipe.common.charts"]
        plots.chart_svg = charts.chart_svg if is_of(item.path, DRAWN, item.name) else titled_svg
