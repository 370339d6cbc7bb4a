"""The section `hooks` of a configuration: code of installed packages that a run calls."""

import pydantic

from ctrpipe.transforms.log.section import Section


class Hooks(Section):
    """Code of installed packages that a run calls when it has finished, by the names of their entry points.

    docs/hooks.md says what each kind is given and returns. All results of the run are written before; a hook that fails
    ends the command with exit code 2 and one line, and the same command calls it again.

    Example:
        hooks: {trackers: [mlflow], sections: [], exports: []}
    """

    trackers: list[str] = pydantic.Field([], examples=[["mlflow"]])
    """Experiment trackers, which are given the run: `mlflow` and `wandb`, which are extras, or those of installed
    packages.
    """
    sections: list[str] = pydantic.Field([], examples=[["columns"]])
    """Sections of report.html, below those of ctrpipe."""
    exports: list[str] = pydantic.Field([], examples=[["archive"]])
    """Further forms of the pushed model, written to `exports/<name>/` in the run's folder."""

    @property
    def named(self) -> list[tuple[str, str]]:
        """The kind and name of each hook."""
        return [("sections", name) for name in self.sections] + self.after_run

    @property
    def after_run(self) -> list[tuple[str, str]]:
        """The kind and name of each hook that is called when the report is written."""
        return [("exports", name) for name in self.exports] + [("trackers", name) for name in self.trackers]
