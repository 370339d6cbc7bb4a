"""Measures training, inference, precision and tables on a GPU, and writes a results file and a page.

    python -m benchmarks.gpu [--minutes 25] [--only train_xdeepfm ...] [--output FILE] [--keep]
    python -m benchmarks.gpu --device cpu --small     # checks that the command runs; the figures mean nothing
    python -m benchmarks.gpu --render                 # prints the page of the results so far without measuring

Each part is another benchmark in its own process. A part that fails or runs out of memory is listed with the reason,
and the other parts continue. Results are kept: the same command resumes with the parts that are not measured yet.
"""

import concurrent.futures
import dataclasses
import functools
import json
import math
import pathlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from benchmarks.harness import measured
from benchmarks.harness.command import busy, command, cores, machine, output_option, write, zoo_option
from benchmarks.harness.devices import DEVICES, gpu_busy, gpus
from benchmarks.harness.gpu_page import section
from benchmarks.harness.gpu_parts import FULL, PEERS, SMALL, Part, Usable, parts
from benchmarks.harness.ours import BACKENDS, Ours
from benchmarks.harness.printed_sections import write_section
from benchmarks.peers.client import ENVIRONMENTS
from benchmarks.peers.line_process import ProcessError, clean_environment
from benchmarks.train import peer_version
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.progress import announce

FOLDER = pathlib.Path(__file__).parent
KEPT = FOLDER / "last_gpu.json"
NAMES = tuple(part.name for part in parts(FULL, "gpu"))
TORCH = "import json, torch; print(json.dumps([torch.cuda.is_available(), torch.version.cuda, torch.__version__]))"
ENDED = "the time of --minutes was over"


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a part.

    Attributes:
        command: The command, without the interpreter.
        date: Date of the measurement.
        seconds: Duration.
        busy: Share of the machine's cores that other programs used before the part.
        gpu_busy: GPU utilization (0 to 1) in the second before the part; None if unknown.
        report: The benchmark's report; None if it failed.
        reason: Why there is no report.
    """

    command: tuple[str, ...]
    date: str
    seconds: float
    busy: float
    gpu_busy: float | None
    report: dict[str, Any] | None = None
    reason: str | None = None


def see_backends(device: str) -> dict[str, dict[str, Any]]:
    """Returns each backend's device, CUDA and versions, or the `reason` why it is not measured."""

    def see(backend: str) -> dict[str, Any]:
        try:
            with Ours(backend, cores(), device=device) as ours:
                return ours.about()
        except ProcessError as error:
            return {"reason": _last_line(error)}

    return _at_once(see, BACKENDS)


def see_peers(device: str) -> dict[str, dict[str, Any]]:
    """Returns the versions of each peer, PyTorch and CUDA, or the `reason` why it is not measured."""

    def see(peer: str) -> dict[str, Any]:
        python = ENVIRONMENTS / peer / "bin" / "python"
        if not python.exists():
            return {"reason": "it is not installed; run `make peers`"}
        done = subprocess.run([python, "-c", TORCH], capture_output=True, text=True, env=clean_environment())
        if done.returncode:
            return {"reason": f"PyTorch does not start in its environment: {_last_line(done.stderr)}"}
        sees, cuda, torch = json.loads(done.stdout.splitlines()[-1])
        if device == "gpu" and not sees:
            return {"reason": f"its PyTorch {torch} (CUDA {cuda}) sees no GPU; is the driver too old for it?"}
        return {"version": peer_version(peer), "torch": torch, "cuda": cuda}

    return _at_once(see, PEERS)


def _at_once(see: Callable[[str], dict[str, Any]], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the result of `see` for each name; runs them concurrently, as loading libraries takes seconds."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(see, names), strict=True))


def run_part(part: Part, minutes: float, folder: pathlib.Path, device: str, most: float = math.inf) -> Result:
    """Runs a part for at most `minutes` (time left of the call) and `most` minutes (limit of a part)."""
    share, gpu_share = busy(), gpu_busy() if device == "gpu" else None
    announce(part.name)
    started = time.monotonic()
    report = reason = None
    try:
        command, limit = [*part.command, "--output", folder / f"{part.name}.json"], 60 * min(minutes, most)
        report, _ = measured.run(part.name, command, limit, **part.variables)
    except measured.TimeIsOver:
        reason = ENDED if minutes <= most else f"failed: it took longer than the {most:g} minutes of --part-minutes"
    except (ProcessError, ValueError) as error:
        reason = f"failed: {_last_line(error)}"
        write_text(folder / f"{part.name}.txt", f"{error}\n")
    if reason:
        announce(f"{part.name}: {reason}")
    date, seconds = time.strftime("%Y-%m-%d"), time.monotonic() - started
    return Result(part.command[1:], date, seconds, share, gpu_share, report, reason)


def _last_line(text: object) -> str:
    lines = [line for line in str(text).splitlines() if line.strip()]
    return one_line(lines[-1], 300) if lines else "it said nothing"


def is_measured(part: Part, results: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns whether the results contain a report of this command of the part."""
    result = results.get(part.name, {})
    return result.get("report") is not None and tuple(result["command"]) == part.command[1:]


def in_order(wanted: Sequence[Part], results: Mapping[str, Mapping[str, Any]]) -> list[Part]:
    """Returns the parts still to be measured: untried ones first, then failed ones."""
    left = [part for part in wanted if not is_measured(part, results)]
    return sorted(left, key=lambda part: str(results.get(part.name, {}).get("reason", "")).startswith("failed"))


def run_parts(
    wanted: Sequence[Part],
    minutes: float,
    report: dict[str, Any],
    folder: pathlib.Path,
    wrote: Callable[[], None],
    run: Callable[[Part, float, pathlib.Path, str], Result] = run_part,
) -> None:
    """Runs the parts that are not measured yet and adds each result, or the reason for none, to the report.

    Args:
        wanted: The parts.
        minutes: Time limit for all of them together.
        report: The report of earlier calls, updated in place.
        folder: Folder for the parts' own reports.
        wrote: Called after each part.
        run: Runs one part.
    """
    started = time.monotonic()
    for part in in_order(wanted, report["parts"]):
        left = minutes - (time.monotonic() - started) / 60
        unseen = [backend for backend in part.backends if "reason" in report["backends"][backend]]
        if unseen:
            reason = report["backends"][unseen[0]]["reason"]
        elif left < part.minutes:
            reason = ENDED
        else:
            report["parts"][part.name] = dataclasses.asdict(run(part, left, folder, report["device"]))
            wrote()
            continue
        report["parts"][part.name] = report["parts"].get(part.name, {}) | {"report": None, "reason": reason}
        wrote()


def read_results(output: pathlib.Path) -> dict[str, Any]:
    """Returns the results of earlier calls; an empty report if the file does not exist.

    Raises:
        InputError: The file is not a report of this command.
    """
    if not output.exists():
        return {"parts": {}}
    try:
        report: dict[str, Any] = json.loads(output.read_text())
        if report["benchmark"] != "gpu":
            raise ValueError(f"it is one of benchmarks.{report['benchmark']}")
        report["parts"], report["device"], report["small"], report["gpus"]  # noqa: B018  # raises without a key
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"--output {output}: no results of this command ({one_line(error, 100)})") from error
    return report


def begin(output: pathlib.Path, device: str, small: bool, present: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the report to continue.

    Raises:
        InputError: Its results are of another device or other sizes.
    """
    report = read_results(output)
    names = [gpu["name"] for gpu in present]
    if report["parts"]:
        before = (report["device"], report["small"], [gpu["name"] for gpu in report["gpus"]])
        if before != (device, small, names):
            raise InputError(f"--output {output}: its results are of another device or other sizes; give another file")
    about = {"machine": machine(), "date": time.strftime("%Y-%m-%d"), "gpus": present}
    return {"benchmark": "gpu", "device": device, "small": small, **about, "parts": report["parts"]}


def keep(report: Mapping[str, Any]) -> None:
    """Writes the results to the committed file, and the section of docs/measured.md.

    Raises:
        InputError: They are not full-size results of a GPU.
    """
    if report["device"] != "gpu" or report["small"]:
        raise InputError("--keep: only full sizes on a GPU are kept; leave it out with --device cpu and --small")
    write_json(KEPT, report)
    write_section("gpu", section(report))


@command("benchmarks.gpu")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=25.0, help="Time limit of this call.")
@click.option("--part-minutes", type=click.FloatRange(0, min_open=True), default=5.0, help="Time limit of a part.")
@click.option(
    "--only", multiple=True, type=click.Choice(NAMES), help="Part to measure. Repeatable. Default: all.", metavar="PART"
)
@click.option("--device", type=click.Choice(DEVICES), default="gpu", help="cpu only checks that the command runs.")
@click.option("--small", is_flag=True, help="Use trial sizes; the figures mean nothing.")
@zoo_option
@click.option("--render", is_flag=True, help="Print the page of the results in --output without measuring.")
@click.option("--keep", "kept", is_flag=True, help="Also write benchmarks/last_gpu.json and docs/measured.md.")
@output_option("gpu")
def main(
    minutes: float,
    part_minutes: float,
    only: Sequence[str],
    device: str,
    small: bool,
    fuxictr: pathlib.Path | None,
    render: bool,
    kept: bool,
    output: pathlib.Path,
) -> None:
    """Measure this machine's GPU: peak, training compared with FuxiCTR and RecBole, inference, precision, tables.

    Writes OUTPUT and the page next to it after every part, and prints the page. The same command resumes with the parts
    that are not measured yet. A failed part is listed with the reason. Exits with 2 if no GPU is visible.
    """
    started = time.monotonic()
    if render:
        click.echo(section(read_results(output) if output.exists() else None), nl=False)
        return
    present = gpus() if device == "gpu" else []
    if device == "gpu" and not present:
        raise InputError("no GPU is visible; give --device cpu --small to try the command without one")
    report = begin(output, device, small, present)
    if kept and (small or device == "cpu"):
        raise InputError("--keep: only full sizes on a GPU are kept; leave it out with --device cpu and --small")
    report |= {"backends": see_backends(device), "peers": see_peers(device)}
    usable = Usable(
        *(tuple(name for name, seen in report[key].items() if "reason" not in seen) for key in ("backends", "peers")),
        str(fuxictr or "") if "reason" not in report["peers"]["fuxictr"] else "",
    )
    if not usable.backends:
        raise InputError("; ".join(seen["reason"] for seen in report["backends"].values()))
    every = parts(SMALL if small else FULL, device, len(present) or 2, usable)
    wanted = [part for part in every if part.name in only or not only]
    folder = output.with_suffix("")

    def wrote() -> None:
        write(report, output)
        write_text(output.with_suffix(".md"), section(report))

    wrote()  # before measuring: fails early if the file cannot be written
    folder.mkdir(parents=True, exist_ok=True)
    run = functools.partial(run_part, most=part_minutes)
    run_parts(wanted, minutes - (time.monotonic() - started) / 60, report, folder, wrote, run)
    if kept:
        keep(report)
    click.echo(section(report))
    click.echo(f"Written to {output}")
    click.echo(json.dumps(report))


if __name__ == "__main__":
    main()
