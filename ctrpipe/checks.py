"""What a run would stumble over."""

import dataclasses
from typing import Any

from ctrpipe.data import Data, files_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result
from ctrpipe.settings import Config, data_of, overrides, source_of
from ctrpipe.table import Table


@dataclasses.dataclass(frozen=True, repr=False)
class Check(Result):
    """What a check has found. Its table, and `to_pandas`, have a row for each error and each note.

    Attributes:
        rows: Good rows that were read, 10,000 at most.
        rejected: Malformed ones.
        errors: What would end a run.
        notes: What may be a mistake.
    """

    rows: int
    rejected: int
    errors: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing was found that would end a run."""
        return not self.errors

    def _records(self) -> list[dict[str, Any]]:
        found = [("error", self.errors), ("note", self.notes)]
        return [{"kind": kind, "text": text} for kind, texts in found for text in texts]

    def _table(self) -> Table:
        counts = f"{self.rows:,} rows read, {self.rejected:,} malformed"
        below = f"{counts}; {len(self.errors)} errors, {len(self.notes)} notes"
        return Table(["", "found"], [list(record.values()) for record in self._records()], below)


@in_one_line
def check(config: Config, data: Data | None = None, **settings: Any) -> Check:
    """Says in seconds what a run would stumble over, in a configuration and in the first 10,000 rows of a log.

    Args:
        config: The configuration, as `run` takes it.
        data: The log: files or globs, a DataFrame or a pyarrow Table; None for the configuration's own.
        settings: Keys of the configuration to override, as `run` takes them.

    Raises:
        InputError: the configuration itself cannot be used.

    Example:
        >>> ctrpipe.check("mine.yaml", frame).passed
        True
    """
    # numpy, pyarrow and pydantic: 0.4 s that `import ctrpipe` does without.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.draft.check_log import check_log

    loaded = load_config(source_of(config), overrides(settings))
    found = check_log(loaded, files_of(data_of(config, data), None) or loaded.data.paths)
    return Check(found.rows, found.rejected, tuple(found.errors), tuple(found.notes))
