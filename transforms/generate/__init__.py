"""Generates seeded sample logs with known click probabilities.

Layouts: Criteo, Avazu, KDD Cup 2012, texts, histories, and a funnel with two labels.
"""

from ctrpipe.transforms.generate.click_model import ClickModel, Interactions
from ctrpipe.transforms.generate.drift import Drift
from ctrpipe.transforms.generate.formats import FORMATS, LogLayout
from ctrpipe.transforms.generate.funnel import FunnelModel, generate_funnel
from ctrpipe.transforms.generate.generator import AUC_ROWS, GenerateResult, generate, generate_days
from ctrpipe.transforms.generate.history import HistoryClickModel, generate_history
from ctrpipe.transforms.generate.kddcup2012 import TextClickModel, generate_kddcup2012

__all__ = [
    "AUC_ROWS",
    "FORMATS",
    "ClickModel",
    "Drift",
    "FunnelModel",
    "GenerateResult",
    "HistoryClickModel",
    "Interactions",
    "LogLayout",
    "TextClickModel",
    "generate",
    "generate_days",
    "generate_funnel",
    "generate_history",
    "generate_kddcup2012",
]
