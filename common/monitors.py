"""Names the validation metrics that a training can watch. Apart, so that `--help` imports no library."""

from typing import Literal

Monitor = Literal["auc", "log_loss", "gauc", "auc_minus_log_loss"]
