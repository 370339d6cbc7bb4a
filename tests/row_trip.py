"""Prints the files that rows go through in `ctrpipe run`, `ctrpipe score` and a served request.

`python -m tests.row_trip` starts all three on a small log.

The files are in the order in which their code is first called, with the floor of their room (see
docs/explanation/architecture.md). A climb is a file on a higher floor than the one before it: a reader who follows the
row goes back up. Code that runs at import is left out, and so is what another process runs.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import threading
import types
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from click.testing import CliRunner

from tests.small_config import SMALL, joined
from tests.test_architecture import ROOT, floors, modules, room

DEVICES = ("phone", "tablet", "desktop")


class Trip:
    """Records the project's files in the order in which their code is first called."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self._places: dict[str, str] = {}

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            name = frame.f_code.co_filename
            if name not in self._places:
                self._places[name] = _place(name)
            place = self._places[name]
            if place and place not in self.files and not _at_import(frame):
                self.files[place] = None

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Records what this process runs within the block, in all threads."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _at_import(frame: types.FrameType | None) -> bool:
    """Returns whether an import is on the stack, as for a class body or a decorator."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _place(name: str) -> str:
    """Returns the path of one of the project's modules below the checkout; "" for any other."""
    path = pathlib.Path(os.path.realpath(name))
    if path.suffix != ".py" or not path.is_relative_to(ROOT):
        return ""
    place = str(path.relative_to(ROOT))
    return place if place.split("/")[0] in ("common", "models", "transforms", "serving", "pipeline", "ctrpipe") else ""


def floors_of(files: Sequence[str]) -> list[int]:
    """Returns the floor of each file's room."""
    by_file = {str(file): module for module, file in modules().items()}
    return [floors().get(room(by_file[file]), 0) for file in files]


def climbs(levels: Sequence[int]) -> int:
    """Returns how often a level is above the one before it."""
    return sum(second > first for first, second in zip(levels, levels[1:], strict=False))


def trips(folder: pathlib.Path) -> dict[str, list[str]]:
    """Runs the commands on a small log, sends a request, and returns the files of each."""
    rows = [f"{number % 2},{DEVICES[number % 3]},q{number % 7},ad{number % 5}" for number in range(400)]
    log, one_row = folder / "log.csv", folder / "row.csv"
    log.write_text("click,device,query,ad\n" + "\n".join(rows) + "\n")
    one_row.write_text("click,device,query,ad\n0,phone,q1,ad1\n")
    settings = {
        "data": {"paths": [str(log)], "format": "csv"},
        "workers": 1,
        "gates": {"rig": None},
        "training": {"backend": "tensorflow"},
    }
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(joined(SMALL, settings)))
    output = folder / "run"
    return {
        "run": _files("run", str(config), "--output", str(output)),
        "score": _files(
            *("score", "--model", str(output / "models" / "ctr"), "--input", str(one_row)),
            *("--output", str(folder / "scores"), "--workers", "1"),
        ),
        "serve": _files_of_a_request(output, {"device": "phone", "query": "q1", "ad": "ad1"}),
    }


def _files(*arguments: str) -> list[str]:
    from ctrpipe.pipeline.cli import main

    trip = Trip()
    with trip.recorded():
        result = CliRunner().invoke(main, arguments)
    if result.exit_code:
        raise SystemExit(f"ctrpipe {' '.join(arguments)}: {result.output}")
    return list(trip.files)


def _files_of_a_request(model: pathlib.Path, row: dict[str, str]) -> list[str]:
    """Returns the files of a REST request to a server in this process. Its start and its end are left out."""
    import ctrpipe

    trip = Trip()
    with trip.recorded(), ctrpipe.serve(model) as server:
        trip.files.clear()
        body = json.dumps({"signature_name": "serving_raw", "instances": [row]}).encode()
        with urllib.request.urlopen(f"{server.url}:predict", body) as answer:
            assert json.load(answer)["predictions"]
        return list(trip.files)


def print_trips() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--files", action="store_true", help="list the files with their floors")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for command, files in trips(pathlib.Path(folder)).items():
            levels = floors_of(files)
            print(f"ctrpipe {command}: {len(files)} files, {climbs(levels)} climbs")
            for file, level in zip(files, levels, strict=True) if options.files else ():
                print(f"  {level:2} {file}")


if __name__ == "__main__":
    print_trips()
