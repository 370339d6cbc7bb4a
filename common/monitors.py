"""The validation metrics that a training run can monitor. A separate module, which lets `--help` import no library."""

from typing import Literal

Monitor = Literal["auc", "log_loss", "gauc", "auc_minus_log_loss", "auc_plus_gauc"]
BY_GROUP: tuple[Monitor, ...] = ("gauc", "auc_plus_gauc")  # need evaluation.group
