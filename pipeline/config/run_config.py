"""A run's configuration: one YAML file, validated, with errors that name the file, the key and what was expected."""

import pathlib
import re
from typing import Annotated, Any, Literal

import pydantic
import yaml

from common.errors import InputError, one_line
from common.processes import Workers
from pipeline.config.kubeflow import Kubeflow
from transforms.log.spec import LogSpec, Section


class Model(pydantic.BaseModel):
    """The model's registry name; every other key is one of its hyperparameters (checked by the registry).

    `encoder` is where the weights of its text encoder come from, a checkpoint or `random`; by default that of the text,
    of which it must have the shape. `encoder_words` says whether its words come from there as well; the pipeline knows.
    """

    model_config = pydantic.ConfigDict(extra="allow", frozen=True, protected_namespaces=())
    name: str
    encoder: str | None = None
    encoder_words: bool = True

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def of_stage(self, name: str, hyperparameters: dict[str, Any]) -> "Model":
        """Another model that is trained before this one, from the same encoder."""
        return Model(name=name, encoder=self.encoder, encoder_words=self.encoder_words, **hyperparameters)


class Plateau(Section):
    """Multiply the learning rate by `factor` when validation has not improved for `patience` evaluations."""

    factor: float = pydantic.Field(0.1, gt=0, lt=1)
    patience: int = pydantic.Field(1, ge=1)
    minimum: float = pydantic.Field(1e-6, gt=0)


class Stage(Section):
    """Settings of a first stage of a training, in place of those of the training itself; `skip` leaves it out.
    `mask_rate` is the share of words that masked_language_model hides."""

    skip: bool = False
    epochs: int | None = pydantic.Field(None, ge=1)
    learning_rate: float | None = pydantic.Field(None, gt=0)
    batch_size: int | None = pydantic.Field(None, ge=1)
    evaluations_per_epoch: int | None = pydantic.Field(None, ge=1)
    patience: int | None = pydantic.Field(None, ge=1)
    warmup_steps: int | None = pydantic.Field(None, ge=0)
    encoder_rate: float | None = pydantic.Field(None, ge=0)
    mask_rate: float = pydantic.Field(0.15, gt=0, lt=1)

    def applied_to(self, training: "Training") -> "Training":
        own = self.model_dump(exclude_none=True, exclude={"skip", "mask_rate"})
        return training.model_copy(update=own)


class Distillation(Section):
    """The training rows' labels are mixed with the predictions of `teacher` (a folder under models/, or one version in
    it), of which they are the part `weight`."""

    teacher: str
    weight: float = pydantic.Field(0.5, gt=0, le=1)


class Training(Section):
    """Optimisation. `monitor` is measured on the validation rows, `evaluations_per_epoch` times an epoch; training
    stops after `patience` evaluations without an improvement and keeps the best weights. `refit` then trains once more,
    from the start, on training and validation rows together for as many examples as the best weights had seen.

    `optimizer` is Adam on everything, or Adam on the dense weights and, on embedding tables, an update of only the rows
    that a batch touches (see training/row_optimizers.py). `warmup_steps` turns the Transformer's schedule on:
    `learning_rate` is reached after so many steps and falls with the inverse square root of the step from there.
    `encoder_rate` is the factor on the learning rate of the text's encoder and pooler: what starts from a checkpoint
    needs smaller steps than what starts from random numbers; 0 leaves them as they are.
    `stages` are what comes before: the models that a model starts from (text_only, features_only, fm), which train as
    the model does but for what is said here, and masked_language_model, which trains only where it is named.
    `start_at_base_rate` makes the training rows' base rate what a model answers before it is trained, in place of 1/2,
    so that where clicks are rare the first steps, also those of a checkpoint's weights, have more to learn than that.
    `bucket_by_length` puts texts of about the same length into a batch and cuts the padding that all of them have: the
    same model in less time (TensorFlow only; not for numbert, whose numbers' places depend on it).
    `task_weights` weigh the labels' losses, 1 by default. `backend` is Keras's for the training; the served model is
    TensorFlow's either way. `distribution` is over the devices of the host: `auto` takes all accelerators where there
    are several, else one device; `mirrored` takes all devices, also CPUs that JAX divides. `shard_tables` gives each of
    them a part of the embedding tables' rows and of their optimizer's state in place of all (JAX only). `precision`
    is that of the layers while they train: weights, logits and loss are float32, and so is the served model.

    Where the environment's TF_CONFIG names several workers, `auto` trains on all of them (TensorFlow only; and
    `multi_worker` fails where it does not); one that has not joined after `worker_timeout_seconds` ends the training.
    `batch_size` is that of all devices together, whose model is the one that a single device would learn.
    `steps_per_execution` steps run in one call, which spares a TPU, or a small model, the way back to Python."""

    backend: Literal["tensorflow", "jax"] = "tensorflow"
    optimizer: Literal["adam", "lazy_adam", "rowwise_adagrad"] = "adam"

    batch_size: int = pydantic.Field(1024, ge=1)
    epochs: int = pydantic.Field(10, ge=1)
    learning_rate: float = pydantic.Field(1e-3, gt=0)
    warmup_steps: int = pydantic.Field(0, ge=0)
    encoder_rate: float = pydantic.Field(1.0, ge=0)
    task_weights: dict[str, Annotated[float, pydantic.Field(ge=0)]] = {}
    gradient_clip_norm: float | None = pydantic.Field(5.0, gt=0)
    monitor: Literal["auc", "log_loss"] = "log_loss"
    evaluations_per_epoch: int = pydantic.Field(1, ge=1)
    patience: int = pydantic.Field(2, ge=1)
    plateau: Plateau | None = Plateau()
    refit: bool = False
    distillation: Distillation | None = None
    start_at_base_rate: bool = False
    bucket_by_length: bool = False
    stages: dict[Literal["masked_language_model", "text_only", "features_only", "fm"], Stage] = {}
    distribution: Literal["auto", "one_device", "mirrored", "multi_worker", "tpu"] = "auto"
    shard_tables: bool = False
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    steps_per_execution: int = pydantic.Field(1, ge=1)
    worker_timeout_seconds: float = pydantic.Field(600, gt=0)

    @pydantic.model_validator(mode="after")
    def _possible(self) -> "Training":
        if self.backend == "jax" and self.distribution == "tpu":
            raise ValueError(f"distribution {self.distribution} needs backend tensorflow; JAX takes a TPU by itself")
        if self.backend == "jax" and (self.distribution == "multi_worker" or self.steps_per_execution > 1):
            raise ValueError("distribution multi_worker and steps_per_execution need backend tensorflow")
        if self.shard_tables and (self.backend != "jax" or self.distribution == "one_device"):
            raise ValueError("shard_tables needs backend jax and distribution auto or mirrored")
        if self.optimizer != "adam" and self.distribution == "tpu":
            raise ValueError(f"optimizer {self.optimizer} does not run on a TPU; use adam")
        return self


class Bounds(Section):
    """Limits that a metric must keep, ends included."""

    min: float | None = None
    max: float | None = None

    @pydantic.model_validator(mode="after")
    def _some(self) -> "Bounds":
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max")
        return self


class Gates(Section):
    """What a model must reach on the test rows to be pushed. `max_drop` bounds, per metric, how much worse than the
    last blessed model it may be (auc: how much lower; log_loss: how much higher)."""

    auc: Bounds | None = None
    log_loss: Bounds | None = None
    calibration: Bounds | None = None
    max_drop: dict[Literal["auc", "log_loss"], float] = {"auc": 0.001}


class Tail(Section):
    """The test rows whose combination of these feature columns' values came at most `max_count` times in training."""

    columns: list[str] = pydantic.Field(min_length=1)
    max_count: int = pydantic.Field(2, ge=0)


class Evaluation(Section):
    """`slices` are feature columns by whose values the metrics are shown; `tail` is a slice of rare combinations;
    `baseline` is the model trained beside."""

    slices: list[str] = []
    tail: Tail | None = None
    baseline: Model | None = None


class Serving(Section):
    """`model_name` is the folder under models/; `warmup_requests` rows are recorded with the model; `bulk_inferrer`
    adds TFX's BulkInferrer, which scores the test split, to the pipeline. `position` gives columns of the role position
    one value for every request, whatever it says. `encoder_precision` is that of a text's encoder as it is served, and
    as the gates judge it."""

    model_name: str = pydantic.Field("ctr", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    # Four records each, and two of candidates: TF Serving loads no model with over 1000.
    warmup_requests: int = pydantic.Field(10, ge=1, le=249)
    bulk_inferrer: bool = False
    position: dict[str, str | float] = {}
    encoder_precision: Literal["float32", "bfloat16", "int8", "int8_weights"] = "float32"
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Statistics(Section):
    """`max_rows`: a split of more rows has the statistics of a uniform sample of about so many; the report says so."""

    max_rows: int = pydantic.Field(100_000, ge=1000)


class MaxDistance(Section):
    """`categorical`: by how much the share of one value may differ; `numeric`: the Jensen-Shannon divergence."""

    categorical: float = pydantic.Field(0.1, ge=0, le=1)
    numeric: float = pydantic.Field(0.1, ge=0, le=1)


class Monitoring(Section):
    """Logs that the training rows are compared with: `previous`, yesterday's (drift), and `serving`, what was served,
    with or without labels (skew). A column further away than `max_distance`, or its own limit in `columns`, is a
    breach: the run ends with exit code 1, and with `block` the model is not pushed."""

    previous: list[str] = []
    serving: list[str] = []
    max_distance: MaxDistance = MaxDistance()
    columns: dict[str, Annotated[float, pydantic.Field(ge=0, le=1)]] = {}
    block: bool = False


class RunConfig(LogSpec):
    """Everything that determines a run."""

    name: str = pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = pydantic.Field(1, ge=0, lt=2**31)
    model: Model
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    statistics: Statistics = Statistics()
    monitoring: Monitoring = Monitoring()
    gates: Gates = Gates()
    serving: Serving = Serving()
    kubeflow: Kubeflow = Kubeflow()
    workers: int | None = pydantic.Field(None, ge=1)  # processes that read and transform, at most
    beam_args: list[str] = []  # where there are any, Beam reads and transforms, on the runner that they name

    @pydantic.model_validator(mode="after")
    def _slices_exist(self) -> "RunConfig":
        absent = [name for name in self.evaluation.slices if name not in self.feature_columns]
        if absent:
            raise ValueError(f"evaluation.slices: {', '.join(absent)} is no feature column")
        tail = self.evaluation.tail.columns if self.evaluation.tail else []
        absent = [name for name in tail if name not in self.feature_columns]
        if absent or len(set(tail)) < len(tail):
            wrong = f"{', '.join(absent)} is no feature column" if absent else "a column is named twice"
            raise ValueError(f"evaluation.tail.columns: {wrong}")
        return self

    @pydantic.model_validator(mode="after")
    def _precision_is_of_a_text(self) -> "RunConfig":
        if self.serving.encoder_precision != "float32" and self.text is None:
            raise ValueError("serving.encoder_precision: there is no text; add a feature of kind text")
        return self

    @pydantic.model_validator(mode="after")
    def _monitored_columns_exist(self) -> "RunConfig":
        absent = [name for name in self.monitoring.columns if name not in self.feature_columns + self.label_columns]
        if absent:
            raise ValueError(f"monitoring.columns: {', '.join(absent)} is no feature column and no label")
        return self

    @pydantic.model_validator(mode="after")
    def _tasks_exist(self) -> "RunConfig":
        absent = [name for name in self.training.task_weights if name not in self.data.labels]
        if absent:
            tasks = ", ".join(self.data.labels)
            raise ValueError(f"training.task_weights: {', '.join(absent)} is no task; the tasks are {tasks}")
        weights = [self.training.task_weights.get(name, 1.0) for name in self.data.labels]
        if not any(weights):
            raise ValueError("training.task_weights: at least one task needs a positive weight")
        positions = {
            column
            for feature in self.features
            if getattr(feature, "role", "") == "position"
            for column in feature.columns
        }
        if unknown := sorted(set(self.serving.position) - positions):
            raise ValueError(f"serving.position: no column of the role position: {', '.join(unknown)}")
        return self

    def workers_for(self, scratch: pathlib.Path | None = None) -> Workers:
        """Who works on the parts of the log; `scratch` is a folder that Beam's workers see as well."""
        return Workers(self.workers, tuple(self.beam_args), scratch)

    @property
    def log_spec(self) -> LogSpec:
        return LogSpec(data=self.data, features=self.features)


class _Loader(yaml.SafeLoader):
    """YAML 1.1, but 1e-6 is a number, where PyYAML asks for 1.0e-6, and a key that comes twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        repeated = sorted({key for key in keys if isinstance(key, str) and keys.count(key) > 1})
        if repeated:
            raise yaml.YAMLError(f"the key {repeated[0]} comes twice in one mapping, {node.start_mark}")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(text: str) -> Any:
    """Raises yaml.YAMLError."""
    try:
        return yaml.load(text, _Loader)
    except (ValueError, RecursionError) as error:  # a date that does not exist, a thousand brackets
        raise yaml.YAMLError(str(error)) from error


def load_config(path: pathlib.Path, settings: tuple[str, ...] = ()) -> RunConfig:
    """Reads and validates a configuration.

    Args:
        path: The YAML file.
        settings: Overrides as `training.epochs=2`; the value is read as YAML.

    Raises:
        InputError: the file cannot be read, is no YAML, or a key is unknown, missing or has a wrong value.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"{path}: cannot read the configuration: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (invalid UTF-8)") from error
    try:
        values = read_yaml(text)
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {one_line(error)}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected a mapping with the keys name, data, features, model")
    return check_config(values, settings, path)


def check_config(values: dict[str, Any], settings: tuple[str, ...], source: pathlib.Path | str) -> RunConfig:
    """Validates a configuration's values, into which it writes the overrides.

    Raises:
        InputError: a key of `source` is unknown, missing or has a wrong value.
    """
    for setting in settings:
        _apply(values, setting)
    try:
        return RunConfig.model_validate(values)
    except pydantic.ValidationError as error:
        raise InputError(_explain(source, error)) from error


def _apply(values: dict[str, Any], setting: str) -> None:
    key, equals, value = setting.partition("=")
    if not equals or not key:
        raise InputError(f"--set {setting}: expected KEY=VALUE, as in --set training.epochs=2")
    *parents, last = key.split(".")
    place: Any = values
    for parent in parents:
        if place.get(parent) is None:
            place[parent] = {}
        place = place[parent]
        if not isinstance(place, dict):
            raise InputError(f"--set {setting}: '{parent}' is not a group of settings, so '{key}' does not exist")
    try:
        place[last] = read_yaml(value)
    except yaml.YAMLError as error:
        raise InputError(f"--set {setting}: the value is not valid YAML") from error


def _explain(source: pathlib.Path | str, error: pydantic.ValidationError) -> str:
    """One line for the first mistake, and how many more there are."""
    mistakes = error.errors(include_url=False)
    first = mistakes[0]
    key = ".".join(str(part) for part in first["loc"]) or "configuration"
    if first["type"] == "extra_forbidden":
        text = f"{source}: {key}: unknown key; remove it or check the spelling"
    elif first["type"] == "missing":
        text = f"{source}: {key}: this key is required"
    elif first["type"] == "value_error":
        text = f"{source}: {key}: {first['ctx']['error']}"
    else:
        text = f"{source}: {key}: {first['msg']}. Received: {first['input']!r}"
    return one_line(text) + (f" (and {len(mistakes) - 1} more mistakes)" if len(mistakes) > 1 else "")
