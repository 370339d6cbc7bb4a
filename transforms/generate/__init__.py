"""Seeded sample logs in the Criteo and Avazu layouts, with a hidden click model whose truth is known."""

from transforms.generate.click_model import ClickModel, Interactions
from transforms.generate.formats import FORMATS, LogSpec
from transforms.generate.generator import AUC_ROWS, GenerateResult, generate

__all__ = ["AUC_ROWS", "FORMATS", "ClickModel", "GenerateResult", "Interactions", "LogSpec", "generate"]
