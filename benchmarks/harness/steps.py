"""The benchmarks that `python -m benchmarks.all` runs: their small sizes, and the ratios in their reports.

A ratio compares two measurements of one run, which makes it comparable across machines and days; seconds are not.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.peers.client import NAMES

Report = Mapping[str, Any]
MODELS = "xdeepfm,autoint,dcn_v2,deepfm,fm"  # one of each kind of interaction


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A measured ratio.

    Attributes:
        name: Numerator and denominator in words.
        value: The median, if there are several.
        at_most: Whether less is better.
        target: The bar; None if there is none at this size.
    """

    name: str
    value: float
    at_most: bool = False
    target: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target


@dataclasses.dataclass(frozen=True)
class Step:
    """A benchmark at a small size.

    Attributes:
        name: Its name on the page, and of its folder.
        command: The command, without --output.
        minutes: Approximate duration on four cores.
        peers: The environments of `make peers` that it needs.
        ratios: Extracts the ratios from the report.
    """

    name: str
    command: tuple[str, ...]
    minutes: float
    peers: tuple[str, ...]
    ratios: Callable[[Report], list[Ratio]]


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"benchmarks.{name}", *arguments


def preprocess(report: Report) -> list[Ratio]:
    """Returns the ratio of our preprocessing rows/s to each peer's with the same rule."""
    return [
        Ratio(f"preprocessing, rows/s over {one['peer']}, {one['rows']:,} rows", one["ratio"], target=one["target"])
        for one in report["ratios"]
    ]


def train(report: Report) -> list[Ratio]:
    """Returns the ratio of each model's samples/s to the fastest peer's; the fastest peer may vary between runs."""
    return [
        Ratio(f"training {one['model']}, samples/s over the fastest peer", one["ratio"]["median"], target=one["target"])
        for one in report["models"]
        if "ratio" in one
    ]


def memory(report: Report) -> list[Ratio]:
    """Returns the memory of training over FuxiCTR's, and the growth with additional rows."""
    lines = [(f"memory: {one['name']}", one["value"], one["target"]) for one in report["lines"]]
    return [Ratio(name, value, True, target) for name, value, target in lines]


def tables(report: Report) -> list[Ratio]:
    """Returns the ratio of a step's times on a large and a small table."""
    small, large = (f"{rows:,}" for rows in report["rows"])
    return [
        Ratio(
            f"a step with {large} rows over {small}, {one['optimizer']}, {'Zipf' if one['zipf'] else 'uniform'} ids",
            one["ratio"]["median"],
            True,
            one["target"],
        )
        for one in report["results"]
    ]


def reader(report: Report) -> list[Ratio]:
    """Returns the ratio of rows/s from packed files to rows/s from gzip TFRecords."""
    by_name = {one["name"]: one["rows_per_s"]["median"] for one in report["readers"]}
    gzip = max(rate for name, rate in by_name.items() if name.startswith("gzip"))
    packed = max(rate for name, rate in by_name.items() if not name.startswith("gzip"))
    return [Ratio("packed files, rows/s over gzip TFRecords", packed / gzip)]


def score(report: Report) -> list[Ratio]:
    """Returns the ratios of rows/s of scoring a raw log to rows/s of the model alone and of BulkInferrer."""
    ratios = []
    for one in report["claims"]:
        if one["ratio"] is None:  # hidden by the variation of the start-up time
            continue
        processes = f", {one['workers']} processes" if one["workers"] else ""
        name = f"scoring, rows/s over {one['against']}{processes}"
        ratios.append(Ratio(name, one["ratio"]["median"], target=one["target"]))
    return ratios


def latency(report: Report) -> list[Ratio]:
    """Returns the latency ratios that have a target."""
    return [Ratio(one["name"], one["value"], one["at_most"], one["target"]) for one in report["targets"]]


def text_cost(report: Report) -> list[Ratio]:
    """Returns the time ratios between models with a text."""
    return [
        Ratio(f"{name}, ms, {case['features']} features", case[name], name.startswith("bert4ctr"))
        for case in report["measured"]
        for name in ("bert4ctr over shallow_interaction_n", "numbert over bert4ctr")
    ]


def text_serving(report: Report) -> list[Ratio]:
    """Returns the ratio of the CPU time if each candidate has its own text to the CPU time if they share one."""
    return [
        Ratio(f"requests of {one['candidates']} candidates, CPU of a text each over a shared one", one["cpu_gain"])
        for one in report["sharing"]
    ]


def candidates(report: Report) -> list[Ratio]:
    """Returns the ratio of a request's time if it sends the user once to its time if it has a row per candidate."""
    return [
        Ratio(f"{one['model']}, ms of a user once over rows", one["over"]["serving_raw"], True, one["target"])
        for one in report["models"]
    ]


def parity(report: Report) -> list[Ratio]:
    """Returns the largest difference of logits from a peer's on the same weights, over the limit."""
    differences = [pair["difference"] for pair in report["pairs"]]
    return [Ratio("difference of logits from peers, over the limit", max(differences) / report["limit"], True, 1.0)]


STEPS = (
    Step(
        "preprocess",
        _module("preprocess", "--rows", "200000", "--against", "fuxictr"),
        4,
        ("fuxictr",),
        preprocess,
    ),
    Step(
        "preprocess_stock",
        _module("preprocess", "--rows", "200000", "--against", "stock", "--rows-stock", "20000"),
        5,
        (),
        preprocess,
    ),
    Step("train", _module("train", "--models", MODELS, "--rounds", "3", "--seconds", "2"), 8, NAMES, train),
    Step("memory", _module("memory", "--only", "cin"), 2, ("fuxictr",), memory),
    Step("memory_growth", _module("memory", "--only", "files", "--only", "score"), 3, (), memory),
    Step("tables", _module("tables", "--large", "1000000", "--rounds", "3", "--seconds", "1"), 2, (), tables),
    Step("reader", _module("reader", "--rows", "300000"), 1, (), reader),
    Step(
        "score",
        _module("score", "--rows", "50000,200000", "--rows-bulk", "10000,50000", "--rounds", "2"),
        6,
        (),
        score,
    ),
    Step(
        "latency",
        (sys.executable, "-c", "from ctrpipe.pipeline.cli import main; main(prog_name='ctrpipe')", "bench", "latency")
        + ("--quick", "--no-papers", "--bars"),
        4,
        (),
        latency,
    ),
    Step("text_cost", _module("text_cost", "--layers", "4", "--width", "256"), 3, (), text_cost),
    Step("text_serving", _module("text_serving", "--layers", "2", "--width", "128"), 2, (), text_serving),
    Step("candidates", _module("candidates"), 1, (), candidates),
    Step("parity", _module("parity"), 2, NAMES, parity),
)
