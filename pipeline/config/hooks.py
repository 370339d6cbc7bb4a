"""The section `hooks` of a configuration: code of installed packages that a run calls."""

import pydantic

from ctrpipe.transforms.log.section import Section


class Hooks(Section):
    """Code of installed packages that a run calls, named by entry points.

    docs/hooks.md lists the arguments and results of each kind. A failing hook ends the command with exit code 2 and one
    line; repeating the command calls it again. Metrics and gates are called when the model is evaluated, the others
    when all results of the run are written.

    Example:
        hooks: {metrics: [top_decile], gates: [no_worse_slice], trackers: [mlflow]}
    """

    metrics: list[str] = pydantic.Field([], examples=[["top_decile"]])
    """Metrics of installed packages on the test rows, for `hooks` of metrics.json and for the report."""
    gates: list[str] = pydantic.Field([], examples=[["no_worse_slice"]])
    """Gates of installed packages, in addition to `gates`. A model is not pushed if one of them objects to it."""

    trackers: list[str] = pydantic.Field([], examples=[["mlflow"]])
    """Experiment trackers that receive the finished run: `mlflow` or `wandb`, each an extra, or trackers of installed
    packages.
    """
    sections: list[str] = pydantic.Field([], examples=[["columns"]])
    """Sections of installed packages in report.html, below ctrpipe's own."""
    exports: list[str] = pydantic.Field([], examples=[["archive"]])
    """Further forms of the pushed model, written to `exports/<name>/` in the run's folder."""

    @pydantic.field_validator("exports")
    @classmethod
    def _are_folders(cls, value: list[str]) -> list[str]:
        for name in value:
            if "/" in name or name in ("", ".", ".."):
                raise ValueError(f"'{name}' cannot be the name of a folder; give the entry point another name")
        return value

    @property
    def named(self) -> list[tuple[str, str]]:
        """The kind and name of each hook."""
        judging = [("metrics", name) for name in self.metrics] + [("gates", name) for name in self.gates]
        return judging + [("sections", name) for name in self.sections] + self.after_run

    @property
    def after_run(self) -> list[tuple[str, str]]:
        """The kind and name of each hook that is called when the report is written."""
        return [("exports", name) for name in self.exports] + [("trackers", name) for name in self.trackers]
