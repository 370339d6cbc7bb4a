"""A log's days, trained and scored one after another."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctrpipe.data import FOLDER, Data, PathLike, days_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result, evaluations
from ctrpipe.settings import Config, output_folder, overrides, source_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHOWN = ("auc", "log_loss", "calibration", "cpu_seconds")


@dataclasses.dataclass(frozen=True, repr=False)
class Replay(Result):
    """A finished replay. Its table has each policy's means; `to_pandas` has a row for each seed, policy and day.

    Attributes:
        output: The replay's folder.
        report: The contents of replay.json.
    """

    output: pathlib.Path
    report: dict[str, Any]

    @property
    def history(self) -> "pd.DataFrame":
        """The evaluations of all trainings, in order, by seed and the training's folder."""
        trained = []
        for path in sorted(self.output.glob("seed=*/runs/**/report_data/history.json")):
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
        """Returns each day's metrics and CPU seconds, a line for each policy."""
        from ctrpipe.figures import shown  # matplotlib: 0.4 s
        from ctrpipe.pipeline.replay.show import replay_figure

        return shown(replay_figure(self.report["results"]))


@in_one_line
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
    """Trains up to each day of a log and scores the next one, by several policies; the same call goes on.

    Args:
        config: The configuration, as `run` takes it.
        data: A glob of days, which are folders or files; a DataFrame or a pyarrow Table with a column of days; or a
            dict with a table for each day.
        output: The replay's folder; None for runs/<name of the configuration>-replay.
        day: Of a DataFrame, the column whose values are the days; of times, the date counts.
        window: Days that a retraining reads.
        policies: "retrain": every day, from nothing, on the last `window` days. "warm": every day, on that day alone,
            from the model of the day before. "frozen": never after the first training.
        seeds: Trainings of each model.
        warm_settings: Keys of the configuration to override in warm starts alone.
        settings: Keys of the configuration to override, as `run` takes them.

    Raises:
        InputError: the configuration, a day or a policy cannot be used, or the folder holds another replay.

    Example:
        >>> ctrpipe.replay("mine.yaml", frame, day="date", window=3).to_pandas().groupby("policy")["auc"].mean()
    """
    from ctrpipe.common.libraries import load_tensorflow

    load_tensorflow()
    # TensorFlow: 3 s that `import ctrpipe` does without.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.replay.days import find_days
    from ctrpipe.pipeline.replay.run import Plan, policies_of, run_replay
    from ctrpipe.pipeline.replay.show import write_replay

    loaded = load_config(source_of(config), overrides(settings))
    folder = output_folder(output, f"{loaded.name}-replay")
    days = tuple(find_days(days_of(data, day, folder / FOLDER)))
    plan = Plan(loaded, days, window, policies_of(policies), overrides(warm_settings or {}), seeds)
    return Replay(folder, write_replay(run_replay(plan, folder), folder))
