"""Checks of the arguments of layers and models."""

from collections.abc import Sequence


def require_positive(**sizes: int | None) -> None:
    """Raises ValueError for the first named size that is below 1; None passes."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"`{name}` should be positive. Received: {name}={size}")


def require_one_rate(dropout: float | Sequence[float]) -> None:
    """Raises ValueError if there are several dropout rates, for a model with dropout outside its MLP."""
    if not isinstance(dropout, int | float):
        raise ValueError(f"`dropout` should be one rate, which is not the MLP's alone here. Received: {list(dropout)}")
