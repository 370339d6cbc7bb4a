"""The `training` part of a run's configuration."""

from typing import Annotated, Any, Literal

import pydantic

from ctrpipe.transforms.log.spec import Section


class Plateau(Section):
    """Lowers the learning rate when the validation metric no longer improves.

    Example:
        training: {plateau: {factor: 0.5, patience: 2}}
    """

    factor: float = pydantic.Field(0.1, gt=0, lt=1)
    """Factor by which the learning rate is multiplied."""
    patience: int = pydantic.Field(1, ge=1)
    """Evaluations without an improvement after which the rate is lowered."""
    minimum: float = pydantic.Field(1e-6, gt=0)
    """Lower limit of the learning rate."""


class FirstStage(Section):
    """Settings of a stage that trains before the model; keys that are not given are as in `training`.

    Example:
        training: {stages: {masked_language_model: {epochs: 3, mask_rate: 0.2}, text_only: {skip: true}}}
    """

    skip: bool = False
    """Whether this stage is left out."""
    epochs: int | None = pydantic.Field(None, ge=1, examples=[3])
    """The most passes over the training rows."""
    learning_rate: float | None = pydantic.Field(None, gt=0, examples=[0.0005])
    """Step size of the optimizer."""
    batch_size: int | None = pydantic.Field(None, ge=1, examples=[256])
    """Rows of one step."""
    evaluations_per_epoch: int | None = pydantic.Field(None, ge=1, examples=[2])
    """How many times an epoch the validation rows are evaluated."""
    patience: int | None = pydantic.Field(None, ge=1, examples=[3])
    """Evaluations without an improvement after which the stage ends."""
    warmup_steps: int | None = pydantic.Field(None, ge=0, examples=[1000])
    """Steps in which the learning rate rises to `learning_rate`; 0: no schedule."""
    encoder_rate: float | None = pydantic.Field(None, ge=0, examples=[0.1])
    """Factor on the learning rate of the text's encoder and pooler."""
    mask_rate: float = pydantic.Field(0.15, gt=0, lt=1)
    """Share of the words that `masked_language_model` hides; no other stage reads it."""

    def applied_to(self, training: "Training") -> "Training":
        """Returns `training` with this stage's settings in place of its own."""
        own = self.model_dump(exclude_none=True, exclude={"skip", "mask_rate"})
        return training.model_copy(update=own)


class Distillation(Section):
    """Mixes the training rows' labels with the predictions of a trained model, the teacher.

    Example:
        training: {distillation: {teacher: runs/large/models/ctr, weight: 0.7}}
    """

    teacher: str = pydantic.Field(examples=["runs/large/models/ctr"])
    """Path of the teacher: a folder of versions under models/ (the latest is taken), or one version in it."""
    weight: float = pydantic.Field(0.5, gt=0, le=1)
    """Share of the teacher's prediction in the mixed label: label = weight * prediction + (1 - weight) * label."""


class WarmStart(Section):
    """Begins with the weights of a trained model, the parent, in place of random ones.

    Vocabularies are of today's training rows; a value that both know keeps its row of the embedding tables and what the
    optimizer knows of it.

    Example:
        training: {epochs: 1, warm_start: {parent: latest, new_values: unknown, boundaries: keep, on_mismatch: take}}
    """

    parent: str = pydantic.Field("latest", min_length=1, examples=["runs/monday", "runs/monday/models/ctr/1763900000"])
    """The folder of a run, of its versions (the newest is taken) or of one version. `latest`: the newest version that
    this run's folder has pushed; before the first push the training begins with random weights.
    """
    new_values: Literal["unknown", "initial"] = "unknown"
    """What a value that the parent does not know begins as: its column's unknown value, or as in a model that starts
    from nothing. Its optimizer state is new in either case.
    """
    window: int = pydantic.Field(1, ge=1, examples=[7])
    """The trainings, today's included, over which `min_count` and `top_k` count a value. A value has to occur today to
    be admitted. With 1 today's rows alone count.
    """
    max_age: int = pydantic.Field(0, ge=0, examples=[7])
    """Trainings in a row without a value after which its row is left out of the tables; 0: the vocabulary is of today's
    training rows alone.
    """
    max_values: int | None = pydantic.Field(None, ge=1, examples=[1_000_000])
    """With `max_age`, the most values of a column's vocabulary: today's, and then those that were seen last; null: no
    limit. `top_k`, `min_count` and `window` decide which of today's values are admitted.
    """
    boundaries: Literal["keep", "learn"] = "keep"
    """Whether the boundaries of buckets of numbers, and the means, variances and quantiles of dense features, stay the
    parent's or are learned of today's training rows. A new bucket then begins as the parent's in which its middle lies.
    """
    optimizer: bool = True
    """Whether the optimizer goes on with the parent's moments and step count, or begins anew."""
    on_mismatch: Literal["refuse", "take"] = "refuse"
    """What happens where the parent has other columns, another transform or another architecture: the run ends, or what
    can be taken is taken, and the rest is listed.
    """

    @pydantic.model_validator(mode="before")
    @classmethod
    def _from_parent(cls, value: Any) -> Any:
        return {"parent": value} if isinstance(value, str) else value

    @pydantic.model_validator(mode="after")
    def _limits_what_stays(self) -> "WarmStart":
        if self.max_values is not None and not self.max_age:
            raise ValueError("max_values goes with max_age; without it use top_k of the columns")
        return self


class Training(Section):
    """Settings of the training: its optimizer, its devices, and when it stops.

    Example:
        training: {batch_size: 4096, epochs: 5, learning_rate: 0.0005, monitor: auc, patience: 3, refit: true}
    """

    backend: Literal["tensorflow", "jax", "auto"] = "tensorflow"
    """Keras's backend for the training; the served model is TensorFlow's either way. `auto` is JAX on a CPU for a model
    that was measured to train faster there (`lr`, `starspace`), where there are enough rows to pay for its
    start, and TensorFlow else.
    """
    optimizer: Literal["adam", "lazy_adam", "rowwise_adagrad"] = "adam"
    """Adam on everything; or Adam on the dense weights and, on embedding tables, an update of only the rows that a
    batch touches: `lazy_adam` keeps two numbers per weight, `rowwise_adagrad` one number per row
    (pipeline/training/row_optimizers.py has the equations).
    """

    adam_beta_1: float = pydantic.Field(0.9, ge=0, lt=1)
    """Decay β₁ of Adam's mean of the gradients; `lazy_adam` has the same three."""
    adam_beta_2: float = pydantic.Field(0.999, ge=0, lt=1, examples=[0.98])
    """Decay β₂ of Adam's mean of the squared gradients."""
    adam_epsilon: float = pydantic.Field(1e-7, gt=0, examples=[1e-9])
    """What Adam adds to the root of that mean; TensorFlow 1 has 1e-8, Keras 1e-7."""

    batch_size: int = pydantic.Field(1024, ge=1)
    """The most rows of one step, on all devices together, so that several devices learn the model that one would. An
    epoch's rows are dealt evenly to its steps: a last step of a few rows would move the weights as far as a full one.
    """
    epochs: int = pydantic.Field(10, ge=1)
    """The most passes over the training rows; `patience` may end the training before."""
    learning_rate: float = pydantic.Field(1e-3, gt=0)
    """Step size of the optimizer."""
    warmup_steps: int = pydantic.Field(0, ge=0)
    """Steps in which the learning rate rises to `learning_rate`, after which it falls with the inverse square root of
    the step, as in the Transformer's paper; 0: no schedule.
    """
    encoder_rate: float = pydantic.Field(1.0, ge=0)
    """Factor on the learning rate of the text's encoder and pooler; 0 leaves their weights as they are.

    Weights from a checkpoint need smaller steps than random ones.
    """
    task_weights: dict[str, Annotated[float, pydantic.Field(ge=0)]] = pydantic.Field({}, examples=[{"cvr": 0.5}])
    """Weight of each task's loss, by the task's name in `data.labels`; 1 where none is given."""
    fake_negative_weighting: bool = False
    """Whether the training rows are as they arrive: each one a negative at once, and a positive beside it when its
    label comes (`ctrpipe prepare labels --fake-negatives`, `data.label_delay`). A positive row's loss is weighted by
    1 + p and a negative one's by (1 - p)(1 + p), where p is what the model answers for it, which the gradient takes as
    a constant: then the model learns the rate of the true labels (Ktena et al. 2019, section 3.3). Validation and test
    rows must have their final labels.
    """
    fake_negative_calibration: bool = False
    """As `fake_negative_weighting`, of rows as they arrive, with the plain loss: the model learns the rate b of the
    positives among these rows, and answers b / (1 - b), which is that of the true labels, in validation and in all
    that is served (fake negative calibration, Ktena et al. 2019).
    """
    gradient_clip_norm: float | None = pydantic.Field(5.0, gt=0)
    """Global norm to which all gradients together are clipped; null: no clipping."""
    monitor: Literal["auc", "log_loss"] = "log_loss"
    """Metric on the validation rows that decides which weights are the best."""
    evaluations_per_epoch: int = pydantic.Field(1, ge=1)
    """How many times an epoch the validation rows are evaluated."""
    patience: int = pydantic.Field(2, ge=1)
    """Evaluations without an improvement after which the training stops; the best weights are kept."""
    plateau: Plateau | None = Plateau()
    """Lowers the learning rate when `monitor` no longer improves; null: never."""
    averaged_evaluations: int = pydantic.Field(1, ge=1, examples=[4])
    """About how many evaluations the weights that are evaluated, kept and served are averaged over; 1: those of one.

    The training itself goes on from the weights as they are. The mean of several is nearer to the minimum around which
    the steps go, and less of it is chance; it lags behind where the weights still move, so that it is for trainings of
    more evaluations than these (pipeline/training/averaging.py has the equation). One more copy of the weights is held
    in the memory of the host.
    """
    refit: bool = False
    """Trains once more, from the start, on training and validation rows together, for as many examples as the best
    weights had seen.
    """
    table_l2: float = pydantic.Field(0.0, ge=0, examples=[1e-5])
    """λ of the penalty λ/2·Σw² on all weights of the embedding tables and of the linear part, at every step.

    FuxiCTR, RecBole and DeepCTR have it so. The model's own `embedding_l2` and `linear_l2` count the rows of a batch
    alone, and so hardly hold back rare values. Needs `optimizer` `adam`: the others update the rows of a batch alone.
    """
    network_l2: float = pydantic.Field(0.0, ge=0, examples=[1e-5])
    """λ of the penalty λ/2·Σw² on the network's weights of two axes or more, at every step: all kernels, and vectors of
    dense features, tasks and positions; no biases, no embedding tables and no text encoder.

    It is a part of the gradient, as FuxiCTR's `net_regularizer` and the weight decay of RecBole's Adam are. A model's
    own `l2` is on its MLPs alone, and adds to this one.
    """
    regularisation_rows: int | None = pydantic.Field(None, ge=1, examples=[42_000])
    """Training rows for which the model's regularisation is stated; null: it is the same for any number of rows.

    With N training rows, `table_l2`, `network_l2` and the model's `l2`, `embedding_l2` and `linear_l2` are multiplied
    by `regularisation_rows` / N, and so are the odds p / (1 - p) of the rates p `dropout` and `embedding_dropout`: a
    prior weighs less the more rows there are.
    """
    distillation: Distillation | None = None
    """Mixes the labels with a trained model's predictions; null: the labels alone."""
    warm_start: WarmStart | None = None
    """The trained model that this one begins with, also as a text alone: `warm_start: latest`; null: none. First stages
    are left out then: their weights are in it.
    """
    start_at_base_rate: bool = False
    """Whether the model predicts the training rows' base rate (the share of clicks) before it is trained, not 1/2.

    Where clicks are rare, the first steps would otherwise learn little but that rate.
    """
    end_at_base_rate: bool = False
    """Whether the trained model's logits get the constant with which its mean probability over the rows that it has
    learnt is their share of clicks.

    Where a training ends decides that mean by chance, by per cents; the training rows tell it as exactly as their
    clicks can, which are several times those of the validation rows. It takes one pass of predictions over the training
    rows (with `refit` the validation rows too), and goes with one label.
    """
    bucket_by_length: bool = False
    """Puts texts of about the same length into a batch and cuts the padding that all of them have, which saves time.
    TensorFlow only; without effect on `numbert`, where the places of the numbers depend on the padding.
    """
    stages: dict[Literal["masked_language_model", "text_only", "features_only", "fm", "fism"], FirstStage] = (
        pydantic.Field({}, examples=[{"text_only": {"skip": True}}])
    )
    """Settings of the stages that train first: the models whose weights the model starts from (`text_only`,
    `features_only`, `fm`), and two that run only where they are named here: `masked_language_model`, on the log's own
    texts, and `fism`, before a `nais`.
    """
    distribution: Literal["auto", "one_device", "mirrored", "multi_worker", "tpu"] = "auto"
    """The devices among which a batch is divided.

    `auto` uses all workers where the environment's TF_CONFIG names several, a TPU where TPU_NAME names one, all
    accelerators where the host has several, else one device. `mirrored` uses all devices of the host,
    including the devices into which JAX divides a CPU; `multi_worker` fails where TF_CONFIG does not name several
    workers.
    """
    shard_tables: bool = False
    """Whether each device holds a part of the embedding tables' rows and of their optimizer's state, not all of them.

    JAX only, with `distribution` `auto` or `mirrored`.
    """
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"] = "float32"
    """Precision of the layers while they train; weights, logits, loss and the served model are float32. `auto` is
    `mixed_bfloat16` on a CPU that multiplies bfloat16, for a model that was measured to train faster in it there, and
    `float32` else.
    """
    steps_per_execution: int = pydantic.Field(1, ge=1)
    """Steps that run in one call, without a return to Python, which costs time on a TPU or with a small model
    (TensorFlow only).
    """
    xla: bool = False
    """Whether XLA compiles the training step, into a few kernels in place of hundreds (TensorFlow on one device; JAX
    always does). Each new shape of a batch is compiled once more, which takes seconds.
    """
    worker_timeout_seconds: float = pydantic.Field(600, gt=0)
    """Seconds to wait for all workers of TF_CONFIG to join, after which the training fails."""

    @property
    def fake_negatives(self) -> str:
        """Returns the key that says that the training rows are as they arrive; "" where they are not."""
        keys = ("fake_negative_weighting", "fake_negative_calibration")
        return next((key for key in keys if getattr(self, key)), "")

    @pydantic.model_validator(mode="after")
    def _possible(self) -> "Training":
        if self.backend == "jax" and self.distribution == "tpu":
            raise ValueError(f"distribution {self.distribution} needs backend tensorflow; JAX takes a TPU by itself")
        if self.backend == "jax" and self.steps_per_execution > 1:
            raise ValueError("steps_per_execution needs backend tensorflow")
        if self.xla and self.backend == "jax":
            raise ValueError("xla is for backend tensorflow: JAX compiles every step; remove it")
        if self.shard_tables and (self.backend != "jax" or self.distribution not in ("auto", "mirrored")):
            raise ValueError("shard_tables needs backend jax and distribution auto or mirrored")
        if self.table_l2 and self.optimizer != "adam":
            raise ValueError(f"table_l2 needs optimizer adam: {self.optimizer} updates the rows of a batch alone")
        if self.fake_negative_weighting and self.fake_negative_calibration:
            raise ValueError("fake_negative_weighting and fake_negative_calibration: remove one of the two")
        if self.fake_negatives and (self.distillation or self.refit):
            raise ValueError(
                f"{self.fake_negatives}: the labels of a teacher and of validation rows are final; remove distillation"
                " and refit"
            )
        if self.fake_negatives and self.end_at_base_rate:
            raise ValueError(f"{self.fake_negatives}: the rows' share of clicks is not final; remove end_at_base_rate")
        if self.optimizer != "adam" and self.distribution == "tpu":
            raise ValueError(f"optimizer {self.optimizer} does not run on a TPU; use adam")
        return self
