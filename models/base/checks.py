"""Checks of the arguments of layers and models."""


def require_positive(**sizes: int | None) -> None:
    """Raises ValueError for the first named size that is below 1; None passes."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"`{name}` should be positive. Received: {name}={size}")
