"""The settings of the latency benchmark, from the YAML file of --config.

A benchmark with the default settings takes some minutes.
"""

import pathlib
from typing import Annotated, Any, Literal

import pydantic
import yaml

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.transforms.log.section import Section

KindName = Literal["rest_row", "rest_columnar", "rest_b64", "grpc_packed", "grpc_examples"]
Count = Annotated[int, pydantic.Field(ge=1)]
Seconds = Annotated[float, pydantic.Field(gt=0)]


class OpenLoop(Section):
    """An open loop of Poisson arrivals.

    Attributes:
        kinds: The kinds of requests.
        rows: The numbers of rows in a request.
        loads: Arrival rates, as shares of the highest rate of a closed loop.
        rates: Further arrival rates, in requests per second.
        connections: The largest number of requests in flight over REST.
        seconds: The seconds of one cell.
    """

    kinds: tuple[KindName, ...] = ("rest_columnar", "grpc_packed")
    rows: tuple[Count, ...] = (1, 100)
    loads: tuple[Annotated[float, pydantic.Field(gt=0)], ...] = (0.5, 0.8)
    rates: tuple[Annotated[float, pydantic.Field(gt=0)], ...] = ()
    connections: Count = 64
    seconds: Seconds = 4.0


class Settings(Section):
    """The settings of a benchmark. Its cells are all combinations of kinds, rows and concurrency.

    Attributes:
        kinds: The kinds of requests.
        rows: The numbers of rows in a request.
        concurrency: The numbers of clients of the closed loop.
        rounds: The number of rounds. Each round measures all cells in turn.
        seconds: The seconds of one cell in one round, after `warm_up`.
        warm_up: The uncounted seconds before each measurement.
        open_loop: The open loop; None: no open loop.
        history: The number of items in every row's history; None: the histories stay unchanged.
        generators: The number of processes that send the load; None: half the number of cores.
        papers: Whether to measure by the methods of Hiformer and BERT4CTR too.
        seed: The seed of the arrival times.
    """

    kinds: tuple[KindName, ...] = ("rest_row", "rest_columnar", "rest_b64", "grpc_packed", "grpc_examples")
    rows: tuple[Count, ...] = (1, 10, 100, 270, 1024)
    concurrency: tuple[Count, ...] = (1, 8, 32)
    rounds: Count = 5
    seconds: Seconds = 0.3
    warm_up: Annotated[float, pydantic.Field(ge=0)] = 0.1
    open_loop: OpenLoop | None = OpenLoop()
    history: Count | None = None
    generators: Count | None = None
    papers: bool = True
    seed: Annotated[int, pydantic.Field(ge=0)] = 1


QUICK = Settings(
    rows=(1, 100),
    concurrency=(1, 8),
    rounds=1,
    seconds=0.4,
    warm_up=0.1,
    open_loop=OpenLoop(rows=(1,), loads=(0.5,), seconds=1.0),
    papers=False,
)


def read_settings(path: pathlib.Path | None, quick: bool, **options: object) -> Settings:
    """Returns the defaults, overridden by a YAML file and by options that are not None or empty.

    Args:
        path: The YAML file, or None.
        quick: Whether QUICK gives the defaults.
        options: Settings by name. `rates` replaces the open loop's loads.

    Raises:
        InputError: the file cannot be read, or a key or value is invalid.
    """
    values: dict[str, Any] = (QUICK if quick else Settings()).model_dump()
    where = "options"
    if path:
        where = str(path)
        try:
            given = yaml.safe_load(path.read_text())
        except OSError as error:
            raise InputError(f"{path}: cannot read the configuration: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not valid YAML: {one_line(error)}") from error
        if not isinstance(given, dict):
            raise InputError(f"{path}: expected a mapping with keys like rows, concurrency, kinds")
        values |= given
    given_options = {key: value for key, value in options.items() if value is not None and value != ()}
    rates = given_options.pop("rates", None)
    values |= given_options
    if rates:
        values["open_loop"] = (values["open_loop"] or OpenLoop().model_dump()) | {"rates": rates, "loads": ()}
    try:
        return Settings.model_validate(values)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = (
            "unknown key" if first["type"] == "extra_forbidden" else f"{first['msg']}. Received: {first['input']!r}"
        )
        raise InputError(f"{where}: {key}: {reason}") from error
