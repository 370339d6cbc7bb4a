"""The `training` section of a run's configuration."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pydantic

from ctrpipe.common import hooks
from ctrpipe.common.monitors import Monitor
from ctrpipe.common.near import did_you_mean
from ctrpipe.transforms.log.section import Section

LINEAR = "lr"  # the model that `optimizer: lbfgs` trains
LOSSES = ("binary_cross_entropy", "focal", "pairwise_logistic", "softmax", "jrc")
WITHIN_GROUPS = ("pairwise_logistic", "softmax", "jrc")  # losses that compare the rows of a group
WITHOUT_PROBABILITIES = ("focal", "pairwise_logistic", "softmax")  # losses whose optimum is no probability
# Models that make probabilities of all tasks, in their loss or between their layers.
CLICKS_ONLY = ("esmm", "fcn", "final_net", "qnn", "starspace", "lightgbm", "cascading_nn_gbdt")
OWN_LOSS = ("starspace", "lightgbm", "cascading_nn_gbdt")  # models with a loss that no key changes


class Plateau(Section):
    """Lowers the learning rate when the validation metric stops improving.

    Example:
        training: {plateau: {factor: 0.5, patience: 2}}
    """

    factor: float = pydantic.Field(0.1, gt=0, lt=1)
    """Factor that the learning rate is multiplied by."""
    patience: int = pydantic.Field(1, ge=1)
    """Number of evaluations without improvement after which the learning rate is lowered."""
    minimum: float = pydantic.Field(1e-6, gt=0)
    """Minimum learning rate."""


class FirstStage(Section):
    """Settings of a stage that trains before the model; an omitted key has the value of `training`.

    Example:
        training: {stages: {masked_language_model: {epochs: 3, mask_rate: 0.2}, text_only: {skip: true}}}
    """

    skip: bool = False
    """Whether to skip this stage."""
    epochs: int | None = pydantic.Field(None, ge=1, examples=[3])
    """Maximum number of epochs (passes over the training rows)."""
    learning_rate: float | None = pydantic.Field(None, gt=0, examples=[0.0005])
    """Learning rate of the optimizer."""
    batch_size: int | None = pydantic.Field(None, ge=1, examples=[256])
    """Number of rows of a training step."""
    evaluations_per_epoch: int | None = pydantic.Field(None, ge=1, examples=[2])
    """Number of evaluations on the validation rows per epoch."""
    patience: int | None = pydantic.Field(None, ge=1, examples=[3])
    """Number of evaluations without improvement after which the stage stops."""
    warmup_steps: int | None = pydantic.Field(None, ge=0, examples=[1000])
    """Number of steps in which the learning rate rises to `learning_rate`; 0: no schedule."""
    encoder_rate: float | None = pydantic.Field(None, ge=0, examples=[0.1])
    """Multiplier on the learning rate of the text encoder and pooler."""
    mask_rate: float = pydantic.Field(0.15, gt=0, lt=1)
    """Share of the tokens that `masked_language_model` masks; the other stages ignore it."""

    def applied_to(self, training: "Training") -> "Training":
        """Returns a copy of `training` with the settings of this stage."""
        own = self.model_dump(exclude_none=True, exclude={"skip", "mask_rate"})
        return training.model_copy(update=own)


class Distillation(Section):
    """Knowledge distillation: mixes the training labels with the predictions of a trained model, the teacher.

    Example:
        training: {distillation: {teacher: runs/large/models/ctr, weight: 0.7}}
    """

    teacher: str = pydantic.Field(examples=["runs/large/models/ctr"])
    """Path or URL of the teacher: a run or a folder of versions, whose latest version is used, or one version. If
    there is a later one, the next run trains again.
    """
    weight: float = pydantic.Field(0.5, gt=0, le=1)
    """Weight of the teacher's prediction: mixed label = weight * prediction + (1 - weight) * label."""


class WarmStart(Section):
    """Starts training from the weights of a trained model, the parent, instead of random weights.

    The vocabularies are built from the current training rows. A value that is also in the parent's vocabulary keeps its
    row of the embedding tables and its optimizer state.

    Example:
        training: {epochs: 1, warm_start: {parent: latest, new_values: unknown, boundaries: keep, on_mismatch: take}}
    """

    parent: str = pydantic.Field("latest", min_length=1, examples=["runs/monday", "runs/monday/models/ctr/1763900000"])
    """Folder of a run, of its versions (the newest version is used) or of one version. `latest`: the newest version
    that was pushed from this run's folder; before the first push, training starts from random weights.
    """
    new_values: Literal["unknown", "initial"] = "unknown"
    """Initial embedding of a value that the parent does not know. `unknown`: the embedding of the column's
    out-of-vocabulary id. `initial`: the initializer, as without a warm start. Its optimizer state is always reset.
    """
    window: int = pydantic.Field(1, ge=1, examples=[7])
    """Number of training runs, including the current one, over which `min_count` and `top_k` count a value. The value
    must also occur in the current training rows. 1: count the current training rows only.
    """
    max_age: int = pydantic.Field(0, ge=0, examples=[7])
    """Number of consecutive training runs for which a value stays in the vocabulary without occurring in the training
    rows; 0: the vocabulary has values of the current training rows only.
    """
    max_values: int | None = pydantic.Field(None, ge=1, examples=[1_000_000])
    """Maximum vocabulary size of a column, for use with `max_age`; null: no limit. Values of the current training rows
    come first (`top_k`, `min_count` and `window` decide which), then the most recently seen values.
    """
    boundaries: Literal["keep", "learn"] = "keep"
    """Source of the bucket boundaries, and of the means, variances and quantiles of dense features. `keep`: the parent.
    `learn`: the current training rows; a new bucket starts from the parent's bucket that contains its midpoint.
    """
    optimizer: bool = True
    """Whether the optimizer continues with the parent's moments and step count, or is reset."""
    on_mismatch: Literal["refuse", "take"] = "refuse"
    """What to do if the columns, transforms, labels or architecture of the parent differ. `refuse`: stop the run.
    `take`: copy the weights that fit and list the others.
    """

    @pydantic.model_validator(mode="before")
    @classmethod
    def _from_parent(cls, value: object) -> Any:
        return {"parent": value} if isinstance(value, str) else value

    @pydantic.model_validator(mode="after")
    def _limits_what_stays(self) -> "WarmStart":
        if self.max_values is not None and not self.max_age:
            raise ValueError("max_values needs max_age; without it use top_k of the columns")
        return self


class Training(Section):
    """Settings of the training job: optimizer, regularization, devices and early stopping.

    Example:
        training: {batch_size: 4096, epochs: 5, learning_rate: 0.0005, monitor: auc, patience: 3, refit: true}
    """

    backend: Literal["tensorflow", "jax", "auto"] = "tensorflow"
    """Keras backend of the training job; the served model is always a TensorFlow SavedModel. `auto`: JAX on a CPU for
    the models that measurably train faster there (`lr`, `starspace`), if there are enough rows to offset its startup
    time; otherwise TensorFlow.
    """
    optimizer: Literal["adam", "lazy_adam", "rowwise_adagrad", "lbfgs"] = "adam"
    """`adam`: Adam on all weights. `lazy_adam` and `rowwise_adagrad`: Adam on the dense weights; on embedding tables,
    they update only the rows that occur in a batch. `lazy_adam` stores two numbers per weight, `rowwise_adagrad` one
    per row (equations: pipeline/training/row_optimizers.py). `lbfgs`: L-BFGS on all rows at once, only for the model
    `lr`. A baseline `lr` is always trained with it. It ends at the optimum and does not depend on the seed. The
    validation log loss chooses the strength of the L2 penalty, unless `table_l2` is given. Learning rate, batch size,
    epochs and `patience` have no effect.
    """

    adam_beta_1: float = pydantic.Field(0.9, ge=0, lt=1)
    """Decay rate β₁ of Adam's mean of the gradients. `lazy_adam` uses β₁, β₂ and ε, too."""
    adam_beta_2: float = pydantic.Field(0.999, ge=0, lt=1, examples=[0.98])
    """Decay rate β₂ of Adam's mean of the squared gradients."""
    adam_epsilon: float = pydantic.Field(1e-7, gt=0, examples=[1e-9])
    """ε that Adam adds to the square root of the mean squared gradient; TensorFlow 1 uses 1e-8, Keras 1e-7."""

    batch_size: int = pydantic.Field(1024, ge=1)
    """Maximum number of rows per training step, over all devices; the model is thus the same for any number of devices.
    The rows of an epoch are divided evenly among its steps, because a last step of a few rows would change the weights
    as much as a full one.
    """
    epochs: int = pydantic.Field(10, ge=1)
    """Maximum number of epochs (passes over the training rows); `patience` can stop training earlier."""
    learning_rate: float = pydantic.Field(1e-3, gt=0)
    """Learning rate of the optimizer."""
    warmup_steps: int = pydantic.Field(0, ge=0)
    """Number of steps in which the learning rate rises to `learning_rate`. It then decays with the inverse square root
    of the step, as in the Transformer paper; 0: no schedule.
    """
    decay: Literal["plateau", "cosine"] = "plateau"
    """How the learning rate falls. `plateau`: where `monitor` stops improving, as the key `plateau` says. `cosine`:
    along half a cosine from `learning_rate` to 0 over all `epochs`, one value for the steps between two evaluations;
    the key `plateau` has then no effect.
    """
    encoder_rate: float = pydantic.Field(1.0, ge=0)
    """Multiplier on the learning rate of the text encoder and pooler; 0 freezes their weights.

    Weights from a checkpoint need smaller steps than random weights.
    """
    task_weights: dict[str, Annotated[float, pydantic.Field(ge=0)]] = pydantic.Field({}, examples=[{"cvr": 0.5}])
    """Weight of each task's loss, by task name in `data.labels`; 1 for tasks that are not listed."""
    loss: str | dict[str, str] = pydantic.Field("binary_cross_entropy", examples=["jrc", {"order": "focal"}])
    """Loss of all tasks, or by task name in `data.labels`; `binary_cross_entropy` for tasks that are not listed. The
    others are `focal`, `pairwise_logistic`, `softmax`, `jrc`, and losses of installed packages (docs/hooks.md).
    `focal` weights hard rows more (Lin 2017). `pairwise_logistic`, `softmax` and `jrc` compare the rows of a batch with
    the same value of `evaluation.group`: each click with the other rows of its group, in pairs or by a softmax. `jrc`
    adds the cross-entropy to a softmax for each class, and keeps the probability (Sheng 2023). `focal`,
    `pairwise_logistic` and `softmax` give scores, so they need `calibration`. The rows of a group share a batch as far
    as they are among the same 200,000 rows. Equations: models/base/losses.py.
    """
    focal_gamma: float = pydantic.Field(2.0, ge=0)
    """γ of the focal loss: how much less easy rows count."""
    focal_alpha: float | None = pydantic.Field(None, gt=0, lt=1, examples=[0.25])
    """α of the focal loss: weight of clicks, and 1 - α of other rows; null: no such weight."""
    jrc_weight: float = pydantic.Field(0.5, ge=0, le=1)
    """Share of the cross-entropy in the loss `jrc`; the rest is the share of its two softmaxes."""
    fake_negative_weighting: bool = False
    """Whether to apply fake negative weighting to delayed labels: each impression is a negative row at once, and gets
    an additional positive row when its label arrives (`ctrpipe prepare labels --fake-negatives`, `data.label_delay`).
    The loss of a positive row is weighted by 1 + p, a negative row's loss by (1 - p)(1 + p), where p is the
    predicted probability without its gradient. The model then learns the rate of the true labels (Ktena et al. 2019,
    section 3.3). Validation and test rows must have final labels.
    """
    fake_negative_calibration: bool = False
    """Whether to apply fake negative calibration: the same rows as for `fake_negative_weighting`, with the unweighted
    loss. The model learns the rate b of the positives among these rows, and predicts b / (1 - b), the rate of the true
    labels, in validation and in serving (Ktena et al. 2019).
    """
    gradient_clip_norm: float | None = pydantic.Field(5.0, gt=0)
    """Global norm that all gradients together are clipped to; null: no clipping."""
    monitor: Monitor = "log_loss"
    """Metric on the validation rows that selects the best weights. `gauc` and `auc_plus_gauc` need `evaluation.group`.
    `auc_minus_log_loss` is the difference of the two, which FuxiCTR monitors, and `auc_plus_gauc` the sum, which it
    monitors on rows in groups.
    """
    evaluations_per_epoch: int = pydantic.Field(1, ge=1)
    """Number of evaluations on the validation rows per epoch."""
    patience: int = pydantic.Field(2, ge=1)
    """Number of evaluations without improvement after which training stops; the best weights are kept."""
    not_finite: Literal["fail", "keep_best"] = "fail"
    """Reaction to a loss, a prediction or a metric of an evaluation that is NaN or infinite. `fail`: end the run with a
    line that says where. `keep_best`: stop training there and keep the best weights of the evaluations before; if there
    are none, `fail`.
    """
    plateau: Plateau | None = Plateau()
    """Lowers the learning rate when `monitor` stops improving; null: never."""
    averaged_evaluations: int = pydantic.Field(1, ge=1, examples=[4])
    """Approximate number of evaluations over which weights are averaged; 1: no averaging.

    The averaged weights are evaluated, kept and served; training continues from the weights that are not averaged. The
    average is closer to the minimum than the weights of a single step, and less noisy. It lags behind while the weights
    still change fast, so training should have more evaluations than this number. One additional copy of the weights is
    held in host memory. Equation: pipeline/training/averaging.py.
    """
    refit: bool = False
    """Whether to train a second time, from the start, on the training and validation rows together, for as many
    examples as the best weights had seen.
    """
    table_l2: float = pydantic.Field(0.0, ge=0, examples=[1e-5])
    """λ of the L2 penalty λ/2·Σw² on all weights of the embedding tables and of the linear part, at every step.

    FuxiCTR, RecBole and DeepCTR define it the same way. The model's own `embedding_l2` and `linear_l2` penalize only
    the rows of a batch, and therefore hardly regularize rare values. Needs `optimizer: adam`: the other optimizers
    update only the rows of a batch.
    """
    network_l2: float = pydantic.Field(0.0, ge=0, examples=[1e-5])
    """λ of the L2 penalty λ/2·Σw² on the network's weights with two or more axes, at every step.

    These are all kernels, and the vectors of dense features, tasks and positions, but not biases, embedding tables or
    the text encoder. The penalty is a part of the gradient, like FuxiCTR's `net_regularizer` and the weight decay of
    RecBole's Adam. A model's own `l2` applies to its MLPs only, and adds to this penalty.
    """
    regularisation_rows: int | None = pydantic.Field(None, ge=1, examples=[42_000])
    """Number of training rows that the regularization settings refer to; null: do not scale them.

    With N training rows, `table_l2`, `network_l2` and the model's `l2`, `embedding_l2` and `linear_l2` are multiplied
    by `regularisation_rows` / N. So are the odds p / (1 - p) of the rates p of `dropout` and `embedding_dropout`. The
    reason: the more rows there are, the less a prior weighs.
    """
    distillation: Distillation | None = None
    """Mixes the labels with the predictions of a trained model; null: train on the labels only."""
    warm_start: WarmStart | None = None
    """The trained model to start from; `warm_start: latest` is short for `{parent: latest}`. null: random weights. With
    a parent, the `stages` do not run, because the parent contains their weights.
    """
    start_at_base_rate: bool = False
    """Whether the untrained model predicts the base rate (share of clicks) of the training rows instead of 1/2.

    If clicks are rare, the first training steps would otherwise learn little more than that rate.
    """
    end_at_base_rate: bool = False
    """Whether to add a constant to the trained model's logits that makes its mean probability over the training rows
    equal to their share of clicks.

    Without it, the mean is off by a few percent, depending on the step at which training stops. The training rows
    determine the constant more exactly than the validation rows, because they have several times as many clicks. It
    takes one prediction pass over the training rows (with `refit`, also the validation rows), and supports one label.
    """
    bucket_by_length: bool = False
    """Whether to batch texts of similar length and remove the padding that all texts of a batch share, which saves
    time. TensorFlow only. It has no effect on `numbert`, where the positions of the numbers depend on the padding.
    """
    stages: dict[Literal["masked_language_model", "text_only", "features_only", "fm", "fism"], FirstStage] = (
        pydantic.Field({}, examples=[{"text_only": {"skip": True}}])
    )
    """Settings of the stages that train before the model, which starts from their weights: `text_only`, `features_only`
    and `fm`. Two more stages run only if they are listed here: `masked_language_model`, on the texts of the log, and
    `fism`, before `nais`.
    """
    distribution: Literal["auto", "one_device", "mirrored", "multi_worker", "tpu"] = "auto"
    """Devices that share the rows of a batch (data parallelism).

    `auto` uses all workers if the environment variable TF_CONFIG names several, a TPU if TPU_NAME names one, all
    accelerators if the host has several, and otherwise one device. `mirrored` uses all devices of the host, including
    the virtual devices that JAX splits a CPU into. `multi_worker` fails if TF_CONFIG does not name several workers.
    """
    shard_tables: bool = False
    """Whether to shard the rows of the embedding tables and their optimizer state across the devices, instead of
    replicating them. JAX only, with `distribution` `auto` or `mirrored`.
    """
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"] = "float32"
    """Compute precision of the layers during training; weights, logits, loss and the served model are float32. `auto`:
    `mixed_bfloat16` on a CPU with bfloat16 instructions, for the models that measurably train faster with it; otherwise
    `float32`.
    """
    steps_per_execution: int = pydantic.Field(1, ge=1)
    """Number of training steps per call from Python. More steps save time on a TPU or with a small model (TensorFlow
    only).
    """
    xla: bool = False
    """Whether XLA compiles the training step, into a few kernels instead of hundreds. TensorFlow on one device only;
    JAX always uses XLA. Each new batch shape is compiled again, which takes seconds.
    """
    worker_timeout_seconds: float = pydantic.Field(600, gt=0)
    """Seconds to wait until all workers of TF_CONFIG have joined; training fails after that."""

    def of_baseline(self, model: str, predicts_numbers: bool = False) -> "Training":
        """Returns the settings of a baseline, by the name of its model.

        A linear baseline is always trained to its optimum, independent of the model. With `fake_negative_weighting`,
        the loss has no single optimum, and L-BFGS fits probabilities only: then the settings are the model's.

        Args:
            model: The name of the baseline's model.
            predicts_numbers: Whether a task predicts a number.
        """
        if model != LINEAR or self.fake_negative_weighting or predicts_numbers:
            return self
        kept = ("refit", "task_weights", "fake_negative_calibration", "end_at_base_rate")
        return Training(optimizer="lbfgs", **{key: getattr(self, key) for key in kept})

    @property
    def loss_by_task(self) -> dict[str, str]:
        """The losses configured per task."""
        return dict(self.loss) if isinstance(self.loss, dict) else {}

    def losses(self, tasks: Sequence[str]) -> list[str]:
        """Returns the loss of each task."""
        if isinstance(self.loss, str):
            return [self.loss for _ in tasks]
        return [self.loss.get(task, "binary_cross_entropy") for task in tasks]

    @property
    def hook_losses(self) -> list[str]:
        """The losses of installed packages, sorted by name."""
        named = {self.loss} if isinstance(self.loss, str) else set(self.loss.values())
        return sorted(named - set(LOSSES))

    @property
    def needs_cross_entropy(self) -> str:
        """The first key that needs the binary cross-entropy; "" if there is none."""
        keys = {"optimizer: lbfgs": self.optimizer == "lbfgs", "distillation": self.distillation is not None}
        keys[self.fake_negatives] = bool(self.fake_negatives)
        return next((key for key, given in keys.items() if given), "")

    @property
    def depends_on_seed(self) -> bool:
        """Whether the weights depend on the seed. L-BFGS reaches the optimum with any seed."""
        return self.optimizer != "lbfgs"

    @property
    def fake_negatives(self) -> str:
        """Returns the name of the enabled fake-negative key; "" if neither is enabled."""
        keys = ("fake_negative_weighting", "fake_negative_calibration")
        return next((key for key in keys if getattr(self, key)), "")

    @pydantic.model_validator(mode="after")
    def _losses_exist(self) -> "Training":
        for name in self.hook_losses:
            if name not in hooks.names("losses"):
                meant = did_you_mean(name, [*LOSSES, *hooks.names("losses")])
                raise ValueError(
                    f"loss: '{name}' is none of {', '.join(LOSSES)}, and no installed package has such a loss{meant}"
                )
        return self

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
        if self.decay == "cosine" and self.warmup_steps:
            raise ValueError("decay: cosine and warmup_steps are two schedules of the learning rate; remove one")
        if self.table_l2 and self.optimizer not in ("adam", "lbfgs"):
            raise ValueError(f"table_l2 needs optimizer adam: {self.optimizer} updates only the rows of a batch")
        if self.optimizer == "lbfgs" and (self.warm_start or self.fake_negative_weighting):
            key = "warm_start" if self.warm_start else "fake_negative_weighting"
            raise ValueError(f"{key} needs another optimizer than lbfgs, which finds only the optimum of the log loss")
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
