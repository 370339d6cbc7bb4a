"""Check a configuration and a log before a run."""

import dataclasses
from typing import Any

from ctrpipe.data import Logs, as_given, log_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.run.check import check_before_run
from ctrpipe.result import Result
from ctrpipe.settings import Config, data_of, overrides, source_of
from ctrpipe.table import Table


@dataclasses.dataclass(frozen=True, repr=False)
class Check(Result):
    """The result of a check. The table and `to_pandas` have one row per error and per note.

    Attributes:
        rows: Number of well-formed rows read: the first 10,000, and rows that are read together with them.
        rejected: Number of malformed rows.
        errors: Problems that would make a run fail.
        notes: Things that may be a mistake.
        splits: Number of rows of each split; empty if the log is too large for a check to read it whole.
        read: A description of the rows read, such as `all 200 rows read, 3 malformed`.
    """

    rows: int
    rejected: int
    errors: tuple[str, ...]
    notes: tuple[str, ...]
    splits: dict[str, int]
    read: str

    @property
    def passed(self) -> bool:
        """Whether there are no errors."""
        return not self.errors

    def _records(self) -> list[dict[str, Any]]:
        parts = [("error", self.errors), ("note", self.notes)]
        return [{"kind": kind, "text": text} for kind, texts in parts for text in texts]

    def _table(self) -> Table:
        errors, notes = (
            f"{len(texts)} {kind}{'' if len(texts) == 1 else 's'}"
            for kind, texts in (("error", self.errors), ("note", self.notes))
        )
        below = f"{self.read}; {errors}, {notes}"
        return Table(["", "found"], [list(record.values()) for record in self._records()], below)


@in_one_line
def check(config: Config, data: Logs | None = None, **settings: Any) -> Check:
    """Checks a configuration and the first 10,000 rows of a log for problems, in seconds.

    Args:
        config: The configuration, as in `run`.
        data: The log, or a dict of the three splits' logs, as in `run`.
        settings: Configuration keys to override, as in `run`.

    Returns:
        A `Check` with the errors that would make a run fail, and notes on possible mistakes.

    Raises:
        InputError: the configuration itself is invalid.

    Example:
        >>> ctrpipe.check("mine.yaml", frame).passed
        True
    """
    loaded = load_config(source_of(config), overrides(settings))
    findings = check_before_run(*log_of(loaded, data_of(config, data), None))
    errors, notes = (tuple(map(as_given, texts)) for texts in (findings.errors, findings.notes))
    return Check(findings.rows, findings.rejected, errors, notes, findings.splits, findings.read)
