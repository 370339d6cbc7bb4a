"""Replay a log day by day to compare retraining policies."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctrpipe.bar import with_bar
from ctrpipe.common.figures import shown
from ctrpipe.common.files import by_number
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.store_folders import written_output
from ctrpipe.data import FOLDER, Data, PathLike, days_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.replay.days import readable_days
from ctrpipe.pipeline.replay.run import RUNS, ReplayPlan, policies_of, run_replay
from ctrpipe.pipeline.replay.show import replay_figure, write_replay
from ctrpipe.result import Result, evaluations
from ctrpipe.settings import Config, output_place, overrides, source_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHOWN = ("auc", "log_loss", "calibration", "cpu_seconds")


@dataclasses.dataclass(frozen=True, repr=False)
class Replay(Result):
    """A finished replay.

    The table has the means per policy. `to_pandas` has one row per seed, policy and day.

    Attributes:
        output: The folder of the replay.
        report: The contents of replay.json.
    """

    output: pathlib.Path
    report: dict[str, Any]

    @property
    def history(self) -> "pd.DataFrame":
        """The evaluations of all training runs in order, by seed and folder of the training run."""
        trained = []
        for path in sorted(self.output.glob("seed=*/runs/**/report_data/history.json"), key=by_number):
            run = path.parents[1].relative_to(self.output)
            seed, _, *parts = run.parts
            names = {"seed": int(seed.partition("=")[2]), "training": "/".join(parts)}
            trained.append((names, json.loads(path.read_text())))
        return evaluations(trained)

    def _records(self) -> list[dict[str, Any]]:
        return list(self.report["results"])

    def _table(self) -> Table:
        rows = [[policy, *(means[key] for key in SHOWN)] for policy, means in self.report["policies"].items()]
        return Table(["policy", *SHOWN], rows)

    @in_one_line
    def plot(self) -> "Figure":
        """Plots the metrics and the CPU seconds per day, one line per policy."""
        return shown(replay_figure(self.report["results"]))


@in_one_line
@with_bar
def replay(
    config: Config,
    data: Data | Mapping[str, Data],
    output: PathLike | None = None,
    *,
    day: str | None = None,
    window: int = 7,
    policies: Sequence[str] = ("retrain", "warm", "frozen"),
    seeds: int = 1,
    warm_settings: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Replay:
    """Trains up to each day of a log and evaluates on the next day, for several retraining policies.

    After an interruption, the same call continues the replay.

    Args:
        config: The configuration, as in `run`.
        data: A glob with one folder or file per day; a DataFrame or a pyarrow Table with a day column; or a dict with
            one table per day.
        output: Folder of the replay, or its URL in a store. None uses runs/<name of the configuration>-replay.
        day: The day column of a DataFrame. For a timestamp, the date counts.
        window: Number of days in the first training run, and in each training run of "retrain".
        policies: "retrain" trains from scratch every day on the last `window` days. "warm" trains every day on that
            day only, starting from the model of the day before. "frozen" keeps the model of the first training run.
        seeds: Number of training runs of each model, with different seeds.
        warm_settings: Configuration keys to override in warm starts only.
        settings: Configuration keys to override, as in `run`.

    Returns:
        A `Replay` with the metrics and the costs of each policy on each day.

    Raises:
        InputError: the configuration, a day or a policy cannot be used, or the folder contains a different replay.

    Example:
        >>> ctrpipe.replay("mine.yaml", frame, day="date", window=3).to_pandas().groupby("policy")["auc"].mean()
    """
    load_tensorflow()

    loaded = load_config(source_of(config), overrides(settings))
    with written_output(output_place(output, f"{loaded.name}-replay"), leave_out=[RUNS, FOLDER]) as place:
        folder = place.folder
        days = readable_days(loaded, days_of(data, day, folder / FOLDER))
        plan = ReplayPlan(loaded, days, window, policies_of(policies), overrides(warm_settings or {}), seeds)
        return Replay(folder, write_replay(run_replay(plan, folder), folder))
