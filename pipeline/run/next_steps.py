"""The commands that follow a run, filled in, and a request with a row of its log."""

import json
import os
import pathlib
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ctrpipe.common.files import write_text
from ctrpipe.common.stores import is_url
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.serving.client.columns import predict_body
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.readers import LogReader

REQUEST = "request.json"  # in the run's folder
PORT = 8501
_WIDTH = 78  # of a printed line, after its indentation


def write_request(config: RunConfig, files: Sequence[str], output: pathlib.Path) -> None:
    """Writes the first good row of a run's log to OUTPUT/request.json, as the body of a predict request.

    Args:
        config: The run's configuration, as `RunConfig.placed` returns it.
        files: The log's files.
        output: The run's folder.

    Raises:
        InputError: a file cannot be read.
    """
    reader = LogReader(config.log_spec, labels=False)
    for path in files:
        for batch in reader.read(path):
            if batch.rows.num_rows:
                row = raw_arrays(batch.rows.slice(0, 1), config.log_spec)
                write_text(output / REQUEST, predict_body("serving_raw", row).decode())
                return


def after_push(
    config: RunConfig, files: Sequence[str], place: pathlib.Path | str, folder: pathlib.Path
) -> list[list[str]]:
    """Returns the commands that use a pushed model: serve it, ask it, explain it and score a log.

    Args:
        config: The run's configuration.
        files: The log's files and globs.
        place: The run's folder or URL, as the user names it.
        folder: The run's folder on this machine.
    """
    own, name = command_name(), config.serving.model_name
    trust = ["--trust"] if ":" in config.model.name else []
    url = f"http://127.0.0.1:{PORT}/v1/models/{name}"
    serve = ["serve", "--model_base_path", f"{place}/models/{name}", "--model_name", name, "--rest_api_port", str(PORT)]
    commands = [[own, *serve]]
    if not is_url(place) and (folder / REQUEST).exists():
        commands.append(["curl", "-d", f"@{place}/{REQUEST}", f"{url}:predict"])
    return [
        *commands,
        [own, "predict", "--url", url, "--input", files[0], "--rows", "5"],
        [own, "explain", str(place), *trust],
        [own, "score", "--model", str(place), "--input", files[0], "--output", "scores"],
    ]


def lifted(gates: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the settings that lift the gates that a model failed, as `gates.rig=null`.

    Args:
        gates: The rows of gates.json.
    """
    settings = []
    for gate in gates:
        if gate["passed"]:
            continue
        if gate["kind"] == "drift":
            settings.append("monitoring.block=false")
        elif gate["kind"] == "change" and gate["metric"] != "ecs":
            settings.append("gates.max_drop={}")
        elif gate["kind"] == "slice":
            settings += ["gates.calibration.slices=[]", "gates.calibration.max_error=null"]
        else:
            task, _, metric = gate["metric"].rpartition(" ")  # a task that predicts a number has its own limits
            settings.append(f"gates.numbers.{task}.{metric}=null" if task else f"gates.{metric}=null")
    return list(dict.fromkeys(settings))


def after_block(
    command: Sequence[str], config: RunConfig, place: pathlib.Path | str, folder: pathlib.Path
) -> list[list[str]]:
    """Returns the commands that show why a gate blocked a model, and that push it all the same.

    Args:
        command: The arguments of the command that ran.
        config: The run's configuration.
        place: The run's folder or URL, as the user names it.
        folder: The run's folder on this machine.
    """
    gates = json.loads((folder / "report_data" / "gates.json").read_text())
    trust = ["--trust"] if ":" in config.model.name else []
    settings = [part for setting in lifted(gates) for part in ("--set", setting)]
    look = [[command_name(), "explain", str(place), *trust]]
    return [*look, [command_name(), *command, *settings]] if settings else look


def shown(command: Sequence[str], width: int = _WIDTH) -> str:
    """Returns a command as a shell takes it, broken between its words into lines of at most `width` characters."""
    lines = [""]
    for word in map(shlex.quote, command):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width - 2:
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def command_name() -> str:
    """Returns how a shell finds `ctrpipe`: by its name, or by a path if its folder is not searched."""
    own = pathlib.Path(sys.executable).with_name("ctrpipe")
    return "ctrpipe" if shutil.which("ctrpipe") or not own.exists() else os.path.relpath(own)
