"""Measures our training speed against the fastest peer's: `python -m benchmarks.train`."""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    busy,
    chosen_names,
    cores,
    device_option,
    on_cores,
    positive_numbers,
    shape_options,
    zoo_option,
)
from benchmarks.harness.ours import BACKENDS, OPTIMIZERS, Ours
from benchmarks.harness.result_table import Cell, if_any, met, result_table
from benchmarks.harness.settings import (
    HIDDEN,
    HISTORY,
    MODELS,
    OF_ZOO,
    TARGETS,
    TARGETS_OF_ZOO,
    TEXTS,
    Shape,
    our_options,
    peer_options,
    zoo_options,
)
from benchmarks.harness.turns import alternate, ratios, spread
from benchmarks.peers.client import FOLDER, NAMES, Peer
from benchmarks.peers.line_process import ProcessError
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.progress import announce

FULL = "float32"
PRECISIONS = (FULL, "mixed_bfloat16", "mixed_float16")
SAME = "same"  # peer precision: bfloat16 if ours is bfloat16, else float32
TORCH_DEVICES = {"cpu": "cpu", "gpu": "cuda:0"}
# On a GPU, two steps are too few for its clock and its allocator to settle.
TRIAL_STEPS = {"cpu": 2, "gpu": 20}
LEAST_STEPS, MOST_STEPS = 3, 500


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One model's samples/s, by round; `theirs` is empty without a peer.

    Args:
        model: The model's registry name.
        hyperparameters: Our hyperparameters.
        peer: The fastest peer that has the model.
        trials: Samples/s of every peer that has the model, in the short round that chose `peer`.
        busy: Share of the machine's cores that other programs used.
        backend: Our backend.
        step_flops: Floating-point operations of our step; None if not counted.
        reason: Why there are no rounds; None on success.
        precision, peer_precision: Our precision and the peer's.
    """

    model: str
    hyperparameters: dict[str, Any]
    peer: str | None = None
    trials: dict[str, float] = dataclasses.field(default_factory=dict)
    ours: list[float] = dataclasses.field(default_factory=list)
    theirs: list[float] = dataclasses.field(default_factory=list)
    busy: float = 0.0
    backend: str = "tensorflow"
    step_flops: float | None = None
    reason: str | None = None
    precision: str = FULL
    peer_precision: str = FULL

    def as_json(self) -> dict[str, Any]:
        """Returns the rounds, their medians, the ratios' median and range, and whether that median meets the target."""
        values = dataclasses.asdict(self)
        if self.reason:
            return values
        values |= {"ours_samples_per_s": spread(self.ours)}
        if self.theirs:
            ratio, target = ratios(self.ours, self.theirs), (TARGETS | TARGETS_OF_ZOO).get(self.model)
            met = None if target is None else ratio["median"] >= target
            values |= {"theirs_samples_per_s": spread(self.theirs), "ratio": ratio, "target": target, "met": met}
        return values


def steps_for(samples_per_s: float, seconds: float, batch: int) -> int:
    """Returns the number of steps that take about `seconds`."""
    return min(max(math.ceil(seconds * samples_per_s / batch), LEAST_STEPS), MOST_STEPS)


@dataclasses.dataclass(frozen=True)
class Sides:
    """Trains ours and the peers' models on the same data shape and cores.

    Args:
        ours: Our process.
        peers: The peers' processes by name.
        shape: The shape of the data.
        training: Fields of `ctrpipe.pipeline.config.Training`.
        rounds: Number of rounds in which ours and theirs alternate.
        steps: Timed steps of each in a round; None: as many as take about `seconds`.
        seconds: Seconds of each in a round if `steps` is None.
        device: The device of both sides, one of devices.DEVICES.
        zoo: FuxiCTR's repository, to include its models of OF_ZOO; "" for its package alone.
        peer_precision: "float32", or "mixed_bfloat16": PyTorch's autocast.
    """

    ours: Ours
    peers: dict[str, Peer]
    shape: Shape
    training: dict[str, Any]
    rounds: int
    steps: int | None
    seconds: float
    device: str
    zoo: str = ""
    peer_precision: str = FULL

    def compare(self, model: str) -> Comparison:
        """Tries every peer that has the model, then alternates ours and the fastest peer's."""
        trials: dict[str, float] = {}
        for name, peer in self.peers.items():
            if model in peer.models() or (self.zoo and name == "fuxictr" and model in OF_ZOO):
                trial = self.trial(model, name, peer)
                trials |= {} if trial is None else {name: trial}
        best = max(trials, key=trials.__getitem__, default=None)
        options = our_options(model, best, self.shape)
        precisions = {"precision": self.training.get("precision", FULL), "peer_precision": self.peer_precision}
        ours_steps = self.number_of_steps(self.mine(model, options, TRIAL_STEPS[self.device]))
        turns = {"ours": lambda: self.mine(model, options, ours_steps)}
        if best:
            theirs_steps = self.number_of_steps(trials[best])
            turns["theirs"] = lambda: self.theirs(model, self.peers[best], theirs_steps)

        def tell(number: int, speeds: Mapping[str, float]) -> None:
            text = f"{model}: round {number} of {self.rounds}: {speeds['ours']:,.0f} samples/s"
            announce(f"{text}, {best} {speeds['theirs']:,.0f}" if best else text)

        rounds = alternate(turns, self.rounds, tell)
        return Comparison(model, options, best, trials, **rounds, backend=self.ours.backend, **precisions)

    def trial(self, model: str, name: str, peer: Peer) -> float | None:
        """Returns a peer's samples/s in a short round; None if the peer does not support the precision."""
        try:
            speed = self.theirs(model, peer, TRIAL_STEPS[self.device])
        except ProcessError as error:
            if self.peer_precision == FULL:
                raise
            announce(f"{model}: {name} is left out, as it cannot in {self.peer_precision}: {one_line(error)}")
            return None
        announce(f"{model}: {name} {speed:,.0f} samples/s in a short round")
        return speed

    def number_of_steps(self, samples_per_s: float) -> int:
        return self.steps or steps_for(samples_per_s, self.seconds, self.shape.batch)

    def mine(self, model: str, hyperparameters: dict[str, Any], steps: int) -> float:
        """Returns our samples/s after one untimed step; the trial has already compiled the step."""
        options = {"training": self.training, "warmup": 1}
        return self.ours.train(model, hyperparameters, self.shape, steps, **options)["samples_per_s"]

    def theirs(self, model: str, peer: Peer, steps: int) -> float:
        sizes = zoo_options(model, self.shape, self.zoo) if model in OF_ZOO else peer_options(self.shape)
        options = {**sizes, "device": TORCH_DEVICES[self.device], "warmup": 1}
        options["autocast"] = self.peer_precision != FULL
        return peer.train(model, steps, self.shape.batch, self.ours.threads, **options)["samples_per_s"]


def table(report: Mapping[str, Any]) -> Table:
    results = report["models"]
    several = [key for key in ("backend", "precision") if len({one[key] for one in results}) > 1]

    def name(one: Mapping[str, Any]) -> str:
        return f"{one['model']} ({', '.join(one[key] for key in several)})" if several else one["model"]

    columns: dict[str, Cell] = {
        "model": name,
        "samples/s": if_any("ours_samples_per_s", "{ours_samples_per_s[median]:,.0f}"),
        "peer": if_any("peer", "{peer}"),
        "its samples/s": if_any("theirs_samples_per_s", "{theirs_samples_per_s[median]:,.0f}"),
        "ratio": if_any("ratio", "{ratio[median]:.2f}"),
        "range": if_any("ratio", "{ratio[min]:.2f}-{ratio[max]:.2f}"),
        "target": if_any("target", "{target:.1f}"),
        "": lambda one: one["reason"][:60] if one["reason"] else met(one) if "met" in one else "",
    }
    side = f"{report['backend']}, {report['optimizer']}"
    title = f"Training, samples/s: ours ({side}), {report['threads']} threads, {report['machine']['cpu']}"
    return result_table(title, columns, results)


def chosen_models(text: str | None) -> list[str]:
    """Returns the models of `--models`; by default those with a target.

    Raises:
        InputError: A name is not in MODELS or TEXTS.
    """
    return list(TARGETS if text is None else chosen_names("--models", text, sorted((*MODELS, *TEXTS))))


def peer_version(name: str) -> str:
    """Returns the peer's version, pinned in its requirements file."""
    pin = f"{name.replace('_', '-')}=="
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(pin)).removeprefix(pin).rstrip(" \\")


def their_precision(own: str, wanted: str) -> str:
    """Returns the peer's precision for `--peer-precision` and our precision."""
    if wanted != SAME:
        return wanted
    return "mixed_bfloat16" if own == "mixed_bfloat16" else FULL


@contextlib.contextmanager
def started(names: tuple[str, ...], python: pathlib.Path | None) -> Iterator[dict[str, Peer]]:
    """Runs the peers' processes inside the block.

    Raises:
        PeerError: A peer's environment is missing.
    """
    with contextlib.ExitStack() as stack:
        yield {peer.name: stack.enter_context(peer) for peer in [Peer(name, python) for name in names]}


def chosen_peers(against: str) -> tuple[tuple[str, ...], ...]:
    """Returns the peers of `--against` in groups; ours is compared with the fastest of each group.

    Raises:
        InputError: A name is not in NAMES.
    """
    if against in ("peers", "none"):
        return (NAMES if against == "peers" else (),)
    return tuple((name,) for name in chosen_names("--against", against, NAMES))


def measure(
    names: list[str],
    backends: Sequence[str],
    threads: int,
    groups: Sequence[tuple[str, ...]],
    python: pathlib.Path | None,
    device: str,
    precisions: Sequence[tuple[str, str]],
    flops: bool = False,
    **settings: Any,
) -> Iterator[tuple[dict[str, Any], list[Comparison]]]:
    """Yields the versions and the comparisons so far, after each model; its processes have ended by then.

    A model's processes train it in each pair of precisions, ours and theirs. If a model has several comparisons, a
    failed one is reported with its reason.
    """
    comparisons: list[Comparison] = []
    peers = tuple(dict.fromkeys(peer for group in groups for peer in group))
    training = settings.pop("training")
    for name in names:
        share = busy()
        with on_cores(threads), concurrent.futures.ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
            # Runs while the processes start, which takes as long.
            counting = pool.submit(step_flops, name, threads, settings["shape"], settings["zoo"]) if flops else None
            ours = [stack.enter_context(Ours(backend, threads, device=device)) for backend in backends]
            running = stack.enter_context(started(peers, python))
            about: dict[str, Any] = {"backend": ", ".join(backends), "device": None, "versions": {}}
            for one in ours:
                seen = one.about()
                about |= {"device": seen["device"], "versions": about["versions"] | seen["versions"]}
            about["peers"] = {peer: peer_version(peer) for peer in peers}
            counted = counting.result() if counting else None
            for one, pair, group in itertools.product(ours, precisions, some_with(name, groups, running)):
                chosen = {peer: running[peer] for peer in group}
                own = training if one.backend == "tensorflow" else training | {"xla": False}
                own, theirs = own | {"precision": pair[0]}, {"peer_precision": pair[1]}
                sides = Sides(one, chosen, training=own, device=device, **theirs, **settings)
                try:
                    comparison = sides.compare(name)
                except ProcessError as error:
                    if len(ours) * len(groups) * len(precisions) == 1:
                        raise
                    reason, peer = one_line(error, 300), ", ".join(group) or None
                    failed = Comparison(name, {}, peer, backend=one.backend, reason=reason)
                    comparison = dataclasses.replace(failed, precision=pair[0], **theirs)
                comparisons.append(dataclasses.replace(comparison, busy=share, step_flops=counted))
        yield about, comparisons


def some_with(model: str, groups: Sequence[tuple[str, ...]], peers: dict[str, Peer]) -> list[tuple[str, ...]]:
    """Returns the groups with a peer that has the model; if there is none, one empty group."""
    if len(groups) == 1:
        return list(groups)
    having = []
    for group in groups:
        with contextlib.suppress(ProcessError):  # a peer that does not start fails later, in training
            if not any(model in peers[peer].models() for peer in group):
                continue
        having.append(group)
    return having or [()]


def step_flops(model: str, threads: int, shape: Shape, zoo: str) -> float:
    """Returns the operations of a step of our model, which do not depend on backend or device."""
    peer = "fuxictr" if zoo and model in OF_ZOO else None
    with Ours("jax", threads, device="cpu") as counter:
        return counter.flops(model, our_options(model, peer, shape), shape)


@Benchmark("benchmarks.train", table)
@click.option("--models", "models", metavar="A,B", help="Registry names. Default: all that have a target.")
@click.option("--against", default="peers", help="peers: the fastest one; A,B: each of these; or none.")
@click.option(
    "--backend",
    "backends",
    type=click.Choice(BACKENDS),
    multiple=True,
    default=["tensorflow"],
    help="Our backend. Repeatable.",
)
@click.option("--xla", is_flag=True, help="Compile TensorFlow's step with XLA, as JAX does.")
@click.option(
    "--precision",
    "precisions",
    type=click.Choice(PRECISIONS),
    multiple=True,
    default=[FULL],
    help="Our precision. Repeatable.",
)
@click.option(
    "--peer-precision",
    type=click.Choice([*PRECISIONS[:2], SAME]),
    default=FULL,
    help="The peers' precision, by autocast; same: bfloat16 if ours is.",
)
@click.option("--flops", is_flag=True, help="Also count the operations of our step.")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="adam", help="Ours; the peers use dense Adam.")
@click.option("--rounds", type=click.IntRange(1), default=5, help="Rounds in which ours and theirs alternate.")
@click.option("--steps", type=click.IntRange(1), help="Timed steps of each in a round, instead of --seconds.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=3.0, help="Seconds of each in a round.")
@click.option("--batch", type=click.IntRange(1), default=2048, help="Rows in a step.")
@shape_options
@click.option("--hidden", default=",".join(map(str, HIDDEN)), help="Units of the hidden layers of an MLP.")
@click.option("--history", type=click.IntRange(1), default=HISTORY, help="Maximum length of a history, one more field.")
@click.option("--least-history", type=click.IntRange(1), default=1, help="Minimum length of a history.")
@zoo_option
@click.option("--ids", type=click.IntRange(2), default=5000, help="Ids in each field.")
@click.option("--zipf", type=click.FloatRange(0, min_open=True), help="Exponent of Zipf's law for them; else uniform.")
@device_option
@click.option("--peer-python", type=click.Path(path_type=pathlib.Path), help="Interpreter with the peers installed.")
def main(
    report: Report,
    models: str | None,
    against: str,
    backends: tuple[str, ...],
    xla: bool,
    precisions: tuple[str, ...],
    peer_precision: str,
    flops: bool,
    optimizer: str,
    rounds: int,
    steps: int | None,
    seconds: float,
    batch: int,
    fields: int,
    ids: int,
    zipf: float | None,
    dim: int,
    threads: int | None,
    hidden: str,
    history: int,
    least_history: int,
    fuxictr: pathlib.Path | None,
    device: str,
    peer_python: pathlib.Path | None,
) -> None:
    """Measure the training speed (forward, backward, update) of our models and of the fastest peer that has the model.

    Every peer that has the model (FuxiCTR, DeepCTR-Torch, RecBole: `make peers`) runs a short round. Then ours and the
    fastest peer alternate, or ours and each peer of --against, one after the other. Each runs in its own process, on
    the same cores, with the same sizes (MLP of --hidden, CIN 64-64-64, 3 cross layers, 3 attention layers of 2 heads),
    without dropout and L2, on ids that are uniform or follow Zipf's law (--zipf 1.2). --fuxictr adds the classes of
    FuxiCTR's model zoo. On a GPU both sides round factors to TF32. The result is the median of the rounds' ratios.
    Prints a table, writes JSON after every model, and prints the JSON on the last line.
    """
    names = chosen_models(models)
    if least_history > history:
        raise InputError(f"--least-history {least_history}: should be at most --history, which is {history}")
    shape = Shape(fields, ids, dim, batch, history, least_history, positive_numbers("--hidden", hidden), zipf)
    training = {"optimizer": optimizer, "xla": xla}
    settings = {"shape": shape, "training": training, "rounds": rounds, "steps": steps}
    settings |= {"seconds": seconds, "device": device, "flops": flops}
    settings |= {"zoo": str(fuxictr.resolve()) if fuxictr else ""}
    pairs = [(own, their_precision(own, peer_precision)) for own in dict.fromkeys(precisions)]
    settings |= {"precisions": pairs}
    groups = chosen_peers(against)
    threads = threads or cores()
    report |= {"shape": dataclasses.asdict(shape), **training, "precision": ", ".join(own for own, _ in pairs)}
    report |= {"peer_precision": peer_precision, "threads": threads, "rounds": rounds}
    for about, comparisons in measure(names, backends, threads, groups, peer_python, **settings):
        report |= about | {"models": [comparison.as_json() for comparison in comparisons]}
        report["busy"] = max(comparison.busy for comparison in comparisons)
        report.write()


if __name__ == "__main__":
    main()
