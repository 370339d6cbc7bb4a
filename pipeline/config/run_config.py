"""The whole configuration of a run: its sections, and the rules between them."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pydantic

from ctrpipe.common import hooks
from ctrpipe.common.errors import InputError
from ctrpipe.common.monitors import BY_GROUP
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.processes import Workers
from ctrpipe.models.base.raw_numbers import reads_numbers
from ctrpipe.pipeline.config.calibration import Calibration
from ctrpipe.pipeline.config.evaluation import Evaluation, Gates, Statistics, check_reachable
from ctrpipe.pipeline.config.hooks import Hooks
from ctrpipe.pipeline.config.kubeflow import Kubeflow
from ctrpipe.pipeline.config.model import Model
from ctrpipe.pipeline.config.monitoring import Monitoring
from ctrpipe.pipeline.config.search import SearchRange
from ctrpipe.pipeline.config.serving import Serving
from ctrpipe.pipeline.config.training import CLICKS_ONLY, OWN_LOSS, WITHIN_GROUPS, WITHOUT_PROBABILITIES, Training
from ctrpipe.transforms.histories import EventLog
from ctrpipe.transforms.log.division import placed_files
from ctrpipe.transforms.log.items_found import ItemsFound, with_items_found
from ctrpipe.transforms.log.kinds.numeric import TRANSFORMS, Numeric
from ctrpipe.transforms.log.kinds.text import RANDOM
from ctrpipe.transforms.log.lists import columns_of
from ctrpipe.transforms.log.spec import FORMAT_NAMES, LogSpec
from ctrpipe.transforms.log.split import Split, SplitFiles

SEEDS = 2**31  # seeds are below it


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else "range"


# Discriminated before validation, so that an error in one type is not reported as an error in the other.
_Searched = Annotated[
    Annotated[list[Any], pydantic.Tag("list")] | Annotated[SearchRange, pydantic.Tag("range")],
    pydantic.Discriminator(_kind),
]


class RunConfig(LogSpec):
    """The settings that determine a run, in one YAML file.

    Example:
        name: mine
        data: {format: csv, header: true, labels: {ctr: click}}
        features:
          - {columns: [age], kind: numeric}
          - {columns: [device, shop], kind: categorical, min_count: 5}
        model: {name: dcn_v2}
    """

    name: str = pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=63, examples=["mine"])
    """Name of the run: at most 63 letters, digits, `_`, `.` and `-`. Its folder is `runs/<name>`, unless `--output` is
    given.
    """
    seed: int = pydantic.Field(1, ge=0, lt=SEEDS)
    """Seed of all random numbers: initial weights, row order, hash split. It makes a run reproducible."""
    events: EventLog | None = None
    """Conversion of an event log, given by `--data` or `data.paths`, to the impressions that `data` describes. null:
    the log already contains impressions.
    """
    model: Model
    """The model to train."""
    training: Training = Training()
    """Optimizer, regularization, devices and early stopping."""
    calibration: Calibration | None = None
    """Calibration of the trained model's probabilities; null: none."""
    search: dict[str, _Searched] | None = pydantic.Field(
        None, examples=[{"model.embedding_dim": [8, 16, 32], "training.learning_rate": {"log": [1e-4, 1e-2]}}]
    )
    """Search space of `ctrpipe tune`: keys of `model` and `training`, each with a list of values or a range. null: a
    default search space for the model. All other commands ignore it.
    """
    evaluation: Evaluation = Evaluation()
    """Slices and a baseline model for the report."""
    statistics: Statistics = Statistics()
    """Settings of the statistics of the splits."""
    monitoring: Monitoring = Monitoring()
    """Logs to compare with the training rows, to detect drift and skew."""
    gates: Gates = Gates()
    """Conditions that a model must meet to be pushed."""
    serving: Serving = Serving()
    """Settings of the pushed model and its serving signatures."""
    kubeflow: Kubeflow = Kubeflow()
    """Settings for Kubeflow Pipelines."""
    hooks: Hooks = Hooks()
    """Code of installed packages that a run calls, such as an experiment tracker."""
    workers: int | None = pydantic.Field(None, ge=1, examples=[4])
    """Maximum number of worker processes that read and transform the log; null: one per core, or fewer for a small log.
    """
    beam_args: list[str] = pydantic.Field([], examples=[["--runner=FlinkRunner", "--job_endpoint=HOST:8099"]])
    """Beam pipeline arguments. If given, Beam reads and transforms the log, on the runner that they name."""

    @pydantic.model_validator(mode="after")
    def _format_has_a_reader(self) -> "RunConfig":
        name = self.data.format
        if name not in FORMAT_NAMES and name not in hooks.names("readers"):
            known = ", ".join(FORMAT_NAMES)
            raise ValueError(
                f"data.format: '{name}' is none of {known}, and no installed package has such a reader"
                f"{did_you_mean(name, FORMAT_NAMES)}"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _transforms_exist(self) -> "RunConfig":
        for name in self.hook_transforms:
            if name not in hooks.names("transforms"):
                meant = did_you_mean(name, [*TRANSFORMS, *hooks.names("transforms")])
                known = ", ".join(TRANSFORMS)
                raise ValueError(
                    f"features: transform '{name}' is none of {known}, and no installed package has such a "
                    f"transform{meant}"
                )
        return self

    @property
    def hook_transforms(self) -> list[str]:
        """The transforms of installed packages, sorted by name."""
        numeric = [feature for feature in self.features if isinstance(feature, Numeric)]
        return sorted({feature.transform for feature in numeric if feature.is_hook})

    @pydantic.model_validator(mode="after")
    def _slices_exist(self) -> "RunConfig":
        absent = [name for name in self.evaluation.slices if name not in self.feature_columns]
        if absent:
            near = did_you_mean(absent[0], self.feature_columns)
            raise ValueError(f"evaluation.slices: {', '.join(absent)} is not a feature column{near}")
        tail = self.evaluation.tail.columns if self.evaluation.tail else []
        if vectors := [name for name in [*self.evaluation.slices, *tail] if name in self.vector_lengths]:
            raise ValueError(
                f"evaluation: {vectors[0]} is a vector, whose values do not repeat between rows; name another column"
            )
        absent = [name for name in tail if name not in self.feature_columns]
        if absent or len(set(tail)) < len(tail):
            wrong = f"{', '.join(absent)} is not a feature column" if absent else "a column is named twice"
            raise ValueError(f"evaluation.tail.columns: {wrong}")
        bounded = self.gates.calibration.slices if self.gates.calibration else []
        if absent := [name for name in bounded if name not in self.evaluation.slices]:
            raise ValueError(f"gates.calibration.slices: add {', '.join(absent)} to evaluation.slices")
        return self

    @pydantic.model_validator(mode="after")
    def _groups_exist(self) -> "RunConfig":
        if self.group is not None:
            raise ValueError(f"group: write evaluation: {{group: {self.group}}}")
        group, training = self.evaluation.group, self.training
        if group is not None:
            feature = self.inputs.get(group)
            if feature is None or group in (self.text.columns if self.text else []) or group in self.separators:
                raise ValueError(f"evaluation.group: {group} is not a feature column with one value in each row")
        needs = {f"training.monitor: {training.monitor}": training.monitor in BY_GROUP}
        needs |= {"gates.gauc": self.gates.gauc is not None, "gates.max_drop: gauc": "gauc" in self.gates.max_drop}
        needs |= {f"training.loss: {name}": name in WITHIN_GROUPS for name in training.losses(self.data.click_tasks)}
        if group is None and (named := [key for key, needed in needs.items() if needed]):
            raise ValueError(f"{named[0]} needs evaluation.group, the column of the users or lists")
        return self

    @pydantic.model_validator(mode="after")
    def _scores_become_probabilities(self) -> "RunConfig":
        """Checks that the losses and the calibration give probabilities."""
        if absent := [task for task in self.training.loss_by_task if task not in self.data.labels]:
            tasks = ", ".join(self.data.labels)
            raise ValueError(f"training.loss: {', '.join(absent)} is not a task; the tasks are {tasks}")
        if numbers := [task for task in self.training.loss_by_task if task in self.data.number_tasks]:
            raise ValueError(
                f"training.loss: {numbers[0]} predicts a number, whose loss data.labels.{numbers[0]}.predicts sets"
            )
        losses = self.training.losses(self.data.click_tasks)
        scores = [name for name in losses if name in WITHOUT_PROBABILITIES]
        if scores and self.calibration is None:
            raise ValueError(
                f"training.loss: {scores[0]} gives scores, not probabilities; add calibration, such as "
                "{method: platt}, or take another loss"
            )
        if losses[0] in WITHIN_GROUPS and losses[0] != "jrc" and self.training.monitor not in ("auc", *BY_GROUP):
            monitor = self.training.monitor
            raise ValueError(
                f"training.monitor: {monitor} is meaningless for the scores of {losses[0]}; take gauc or auc"
            )
        if set(losses) != {"binary_cross_entropy"} and self.model.name in OWN_LOSS:
            raise ValueError(f"training.loss: {self.model.name} has a loss of its own; remove training.loss")
        if set(losses) != {"binary_cross_entropy"} and self.model.option("tri_bce") is True:
            raise ValueError(
                f"training.loss: {self.model.name} adds cross-entropies of its two networks, in which another loss has "
                "no part; set model.tri_bce: false, or remove training.loss"
            )
        if set(losses) != {"binary_cross_entropy"} and (named := self.training.needs_cross_entropy):
            raise ValueError(f"training.{named} needs loss: binary_cross_entropy")
        return self

    @pydantic.model_validator(mode="after")
    def _numbers_have_a_loss(self) -> "RunConfig":
        numbers = self.data.number_tasks
        if absent := [task for task in self.gates.numbers if task not in numbers]:
            known = ", ".join(numbers) or "none of the tasks"
            raise ValueError(f"gates.numbers: {absent[0]} is not a task that predicts a number; {known} does")
        for task, bounds in self.gates.numbers.items():
            if bounds.calibration and numbers[task].predicts == "count":  # other numbers may be negative
                check_reachable("calibration", bounds.calibration.min, bounds.calibration.max)
        for name, model in (("model", self.model), ("evaluation.baseline", self.evaluation.baseline)):
            if model and model.name in CLICKS_ONLY and numbers:
                task = next(iter(numbers))
                raise ValueError(f"{name}: {model.name} predicts probabilities only, and {task} is a number; take mmoe")
            if model and model.name == "esmm" and (after := [t for t, each in self.data.labels.items() if each.after]):
                raise ValueError(
                    f"{name}: esmm learns {after[0]} from all impressions; remove data.labels.{after[0]}.after, or "
                    "take another model, such as mmoe"
                )
        if numbers and (key := self.training.needs_cross_entropy):
            raise ValueError(f"training.{key} is for tasks of clicks, and {next(iter(numbers))} is a number; remove it")
        return self

    @pydantic.model_validator(mode="after")
    def _lists_exist(self) -> "RunConfig":
        if limits := self.gates.ecs:
            try:
                columns_of(self.log_spec, limits.group, limits.item, ("gates.ecs.group", "gates.ecs.item"))
            except InputError as error:
                raise ValueError(str(error)) from error
        return self

    @pydantic.model_validator(mode="after")
    def _precision_is_of_a_text(self) -> "RunConfig":
        if self.serving.encoder_precision != "float32" and self.text is None:
            raise ValueError("serving.encoder_precision: there is no text; add a feature of kind text")
        return self

    @pydantic.model_validator(mode="after")
    def _explains_what_it_serves(self) -> "RunConfig":
        if self.serving.explain and self.serving.encoder_precision != "float32":
            raise ValueError("serving.explain: gradients need float32; remove serving.encoder_precision")
        if self.serving.explain and len(set(self.explained_columns)) < len(self.explained_columns):
            raise ValueError("serving.explain: a column is named text, the name for the columns of a text; rename it")
        return self

    @pydantic.model_validator(mode="after")
    def _teacher_and_labels_are_of_the_same_rows(self) -> "RunConfig":
        if self.training.distillation and self.data.negative_sampling < 1:
            raise ValueError(
                "data.negative_sampling: a teacher predicts the probabilities of all rows; remove training.distillation"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _one_constant_is_for_one_label(self) -> "RunConfig":
        if self.training.end_at_base_rate and len(self.data.labels) > 1:
            raise ValueError("training.end_at_base_rate needs a single label: no constant is right for several")
        return self

    @pydantic.model_validator(mode="after")
    def _late_labels_are_joined_once(self) -> "RunConfig":
        delay, split = self.data.label_delay, self.data.split
        if self.events and split.files:
            raise ValueError("data.split: events.split divides the event log; write by: time, column: part")
        if delay and self.events:
            raise ValueError("data.label_delay: an event log has its labels; remove events or label_delay")
        key = self.training.fake_negatives and f"training.{self.training.fake_negatives}"
        if not key:
            return self
        if len(self.data.labels) > 1 or self.data.negative_sampling < 1:
            raise ValueError(f"{key} needs a single label and data.negative_sampling: 1")
        if delay and delay.label_time is None:
            raise ValueError(f"data.label_delay: {key} needs labels, their key and label_time")
        if delay and (split.column, split.validation_from, split.test_from) != ("part", "1", "2"):
            raise ValueError(
                f"data.split: data.label_delay and {key} define the parts; write "
                "{by: time, column: part, validation_from: '1', test_from: '2'}"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _calibration_has_rows_and_slices(self) -> "RunConfig":
        if self.calibration is None:
            return self
        if self.training.refit:
            raise ValueError("calibration: training.refit trains on the validation rows; remove one of the two")
        columns = self.calibration.by
        if absent := [name for name in columns if name not in self.feature_by_column]:
            raise ValueError(f"calibration.by: {', '.join(absent)} is not a feature column")
        if len(set(columns)) < len(columns):
            raise ValueError("calibration.by: a column is named twice")
        for name in columns:
            if not self.feature_by_column[name].is_single:
                raise ValueError(
                    f"calibration.by: {name} does not have one of a few values in each row; name categorical or "
                    "bucketized columns"
                )
        return self

    @pydantic.model_validator(mode="after")
    def _monitored_columns_exist(self) -> "RunConfig":
        absent = [name for name in self.monitoring.columns if name not in self.feature_columns + self.label_columns]
        if absent:
            raise ValueError(f"monitoring.columns: {', '.join(absent)} is neither a feature column nor a label")
        if absent := [name for name in self.monitoring.attributions if name not in self.explained_columns]:
            raise ValueError(f"monitoring.attributions: {', '.join(absent)} is not an explained column")
        return self

    @pydantic.model_validator(mode="after")
    def _batches_have_statistics(self) -> "RunConfig":
        for key, model in (("model", self.model), ("evaluation.baseline", self.evaluation.baseline)):
            if model and self.training.batch_size == 1 and model.option("normalization") == "batch":
                raise ValueError(
                    f"training.batch_size: 1 with {key}.normalization: batch normalises each row by itself, to zero; "
                    "use a larger batch or normalization: layer"
                )
        return self

    @pydantic.model_validator(mode="after")
    def _tasks_exist(self) -> "RunConfig":
        absent = [name for name in self.training.task_weights if name not in self.data.labels]
        if absent:
            tasks = ", ".join(self.data.labels)
            raise ValueError(f"training.task_weights: {', '.join(absent)} is not a task; the tasks are {tasks}")
        weights = [self.training.task_weights.get(name, 1.0) for name in self.data.labels]
        if not any(weights):
            raise ValueError("training.task_weights: at least one task needs a positive weight")
        positions = {column for feature in self.features if feature.is_position for column in feature.columns}
        if unknown := sorted(set(self.serving.position) - positions):
            raise ValueError(f"serving.position: not a column with role: position: {', '.join(unknown)}")
        return self

    def placed(self, patterns: Sequence[str]) -> tuple["RunConfig", list[str]]:
        """Returns the configuration and the log's files, in order. With `by: files`, its split then lists each file.

        Histories with several values per item get the settings detected in the first file (`items_found`).

        Args:
            patterns: The files and globs of the log.

        Raises:
            InputError: a file is missing, or is in two splits.
        """
        split, files = placed_files(self.data.split, patterns)
        config = self
        if split is not self.data.split:
            config = self.model_copy(update={"data": self.data.model_copy(update={"split": split, "paths": []})})
        with_items = config.items_found(files)
        return (config.model_copy(update={"features": with_items.features}) if with_items.told else config), files

    def items_found(self, files: Sequence[str]) -> ItemsFound:
        """Returns the features, with the detected settings of histories with several values per item in the first
        file.
        """
        return with_items_found(self.features, files[0], self.data.encoding)

    def with_files(self, files: Mapping[str, list[str]]) -> "RunConfig":
        """Returns the configuration with a split by files, given the files and globs of each split."""
        split = Split(by="files", files=SplitFiles.model_validate(files), seed=self.data.split.seed)
        return self.model_copy(update={"data": self.data.model_copy(update={"split": split, "paths": []})})

    def workers_for(self, scratch: pathlib.Path | None = None) -> Workers:
        """Returns the workers that process the log; `scratch` is a folder that Beam's workers can read and write."""
        return Workers(self.workers, tuple(self.beam_args), scratch)

    @property
    def checkpoints(self) -> list[tuple[str, str]]:
        """The checkpoints of text encoders, each with the key that names it."""
        named = [("text.encoder", self.text.encoder)] if self.text else []
        models = (self.model, self.evaluation.baseline)
        named += [("model.encoder", model.encoder) for model in models if model and model.encoder]
        return [(key, encoder) for key, encoder in named if encoder != RANDOM]

    @property
    def log_spec(self) -> LogSpec:
        """The description of the log, without the other settings, for the reader and the transform."""
        models = (self.model, self.evaluation.baseline)
        raw_numbers = self.raw_numbers or any(reads_numbers(model.name) for model in models if model)
        group = self.evaluation.group
        return LogSpec(
            data=self.data, features=self.features, derived=self.derived, raw_numbers=raw_numbers, group=group
        )
