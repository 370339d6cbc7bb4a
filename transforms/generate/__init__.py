"""Seeded sample logs in the layouts of Criteo, Avazu and KDD Cup 2012, with a click model whose truth is known."""

from transforms.generate.click_model import ClickModel, Interactions
from transforms.generate.formats import FORMATS, LogLayout
from transforms.generate.generator import AUC_ROWS, GenerateResult, generate
from transforms.generate.kddcup2012 import TextClickModel, generate_kddcup2012

__all__ = [
    "AUC_ROWS",
    "FORMATS",
    "ClickModel",
    "GenerateResult",
    "Interactions",
    "LogLayout",
    "TextClickModel",
    "generate",
    "generate_kddcup2012",
]
