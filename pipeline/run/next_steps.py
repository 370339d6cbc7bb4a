"""The commands that follow a run, filled in, and a request with a row of its log."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ctrpipe.common.command_lines import command_name
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_text
from ctrpipe.common.hooks import GATE
from ctrpipe.common.progress import announce
from ctrpipe.common.stores import is_url
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.config.evaluation import Gates
from ctrpipe.serving.predict_body import predict_body
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.readers import LogReader

REQUEST = "request.json"  # in the run's folder
PORT = 8501

_OTHER_KINDS = ("drift", "change", "slice", GATE)  # of gates that are no limit of a metric


def write_request(config: RunConfig, files: Sequence[str], output: pathlib.Path) -> None:
    """Writes the first good row of a run's log to OUTPUT/request.json, as the body of a predict request.

    The model is already pushed at this point. If the log has been removed or changed, only the request is not written.

    Args:
        config: The run's configuration, as `RunConfig.placed` returns it.
        files: The log's files.
        output: The run's folder.
    """
    reader = LogReader(config.log_spec, labels=False)
    try:
        batches = (batch for path in files for batch in reader.read(path))
        rows = next((batch.rows for batch in batches if batch.rows.num_rows), None)
    except InputError as error:
        announce(f"{error}; the run is finished, but {REQUEST} is not written")
        (output / REQUEST).unlink(missing_ok=True)
        return
    if rows is not None:
        write_text(
            output / REQUEST, predict_body("serving_raw", raw_arrays(rows.slice(0, 1), config.log_spec)).decode()
        )


def after_push(
    config: RunConfig, files: Sequence[str], place: pathlib.Path | str, folder: pathlib.Path
) -> list[list[str]]:
    """Returns the commands that use a pushed model: serve it, ask it, explain it, score a log, and open the report.

    Args:
        config: The run's configuration.
        files: The log's files and globs; empty if the split names them all.
        place: The run's folder or URL, as the user names it.
        folder: The run's folder on this machine.
    """
    own, name = command_name(), config.serving.model_name
    trust = ["--trust"] if ":" in config.model.name else []
    url = f"http://127.0.0.1:{PORT}/v1/models/{name}"
    serve = ["serve", "--model_base_path", f"{place}/models/{name}", "--model_name", name, "--rest_api_port", str(PORT)]
    commands = [[own, *serve]]
    log = _some_rows(config, files)
    if not is_url(place) and (folder / REQUEST).exists():
        commands.append(["curl", "-d", f"@{place}/{REQUEST}", f"{url}:predict"])
    commands += [
        [own, "predict", "--url", url, "--input", log, "--rows", "5"],
        [own, "explain", str(place), *_rows(place, config, files), *trust],
        [own, "score", "--model", str(place), "--input", log, "--output", "scores"],
    ]
    return commands if is_url(place) else [*commands, open_report(place)]


def _some_rows(config: RunConfig, files: Sequence[str]) -> str:
    """Returns a file or glob of the log: a test file, if the split names the files."""
    return config.data.split.files.test[0] if config.data.split.files else files[0]


def _rows(place: pathlib.Path | str, config: RunConfig, files: Sequence[str]) -> list[str]:
    """Returns the option that names the rows to explain. A run in a store does not know its own log."""
    return ["--data", _some_rows(config, files)] if is_url(place) else []


def open_report(place: pathlib.Path | str) -> list[str]:
    """Returns the command that shows the report of a run's folder in a browser."""
    return [command_name(), "report", str(place), "--open"]


def lifted(gates: Sequence[Mapping[str, Any]], configured: Gates) -> list[str]:
    """Returns the settings that lift the gates that a model failed, as `gates.rig=null`.

    Args:
        gates: The rows of gates.json.
        configured: The gates of the configuration. A setting must not leave a gate without a limit.
    """
    settings = []
    failed = [gate for gate in gates if not gate["passed"]]
    of_numbers = [tuple(gate["metric"].rsplit(" ", 1)) for gate in failed if _is_of_number(gate)]
    calibration = configured.calibration
    of_all_rows = calibration is not None and (calibration.min is not None or calibration.max is not None)
    of_all_rows = of_all_rows and not any(_key(gate) == "calibration" for gate in failed)
    for gate in failed:
        if gate["kind"] == "drift":
            settings.append("monitoring.block=false")
        elif gate["kind"] == "change" and gate["metric"] != "ecs":
            settings.append("gates.max_drop={}")
        elif gate["kind"] == GATE:
            kept = ",".join(each["metric"] for each in gates if each["kind"] == GATE and each["passed"])
            settings.append(f"hooks.gates=[{kept}]")
        elif gate["kind"] == "slice" and of_all_rows:
            settings += ["gates.calibration.slices=[]", "gates.calibration.max_error=null"]
        elif gate["kind"] == "slice":
            settings.append("gates.calibration=null")
        elif _is_of_number(gate):
            settings += _numbers_lifted(of_numbers, configured)
        else:
            settings.append(f"gates.{_key(gate)}=null")
    return list(dict.fromkeys(settings))


def _is_of_number(gate: Mapping[str, Any]) -> bool:
    """Returns whether a gate limits a task that predicts a number, as `seconds mae`."""
    return gate["kind"] not in _OTHER_KINDS and " " in gate["metric"]


def _key(gate: Mapping[str, object]) -> str:
    """Returns the key of a limit in `gates`; "" for a gate that has none of its own."""
    return "" if gate["kind"] in _OTHER_KINDS and gate["metric"] != "ecs" else str(gate["metric"])


def _numbers_lifted(failed: Sequence[tuple[str, ...]], configured: Gates) -> list[str]:
    """Returns the settings that lift limits of tasks that predict a number, given as task and metric."""
    left: dict[str, dict[str, Any]] = {}
    for task, bounds in configured.numbers.items():
        limits = bounds.model_dump(exclude_none=True)
        left[task] = {metric: limit for metric, limit in limits.items() if (task, metric) not in failed}
    if all(left.values()):
        return [f"gates.numbers.{task}.{metric}=null" for task, metric in failed]
    return [f"gates.numbers={json.dumps({task: limits for task, limits in left.items() if limits})}"]


def after_block(
    command: Sequence[str], config: RunConfig, place: pathlib.Path | str, folder: pathlib.Path
) -> list[list[str]]:
    """Returns the commands that show why a gate blocked a model, and the command that pushes it anyway.

    Args:
        command: The arguments of the command that ran.
        config: The run's configuration.
        place: The run's folder or URL, as the user names it.
        folder: The run's folder on this machine.
    """
    gates = json.loads((folder / "report_data" / "gates.json").read_text())
    trust = ["--trust"] if ":" in config.model.name else []
    settings = [part for setting in lifted(gates, config.gates) for part in ("--set", setting)]
    given = [*command[command.index("--data") + 1 :][:1]] if "--data" in command else config.data.paths
    look = [[command_name(), "explain", str(place), *_rows(place, config, given), *trust]]
    if not is_url(place):
        look.append(open_report(place))
    return [*look, [command_name(), *command, *settings]] if settings else look
