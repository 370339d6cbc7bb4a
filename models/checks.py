"""Checks of the arguments of layers and models."""


def require_positive(**sizes: int | None) -> None:
    """Raises ValueError where one of the named sizes is below one. None is allowed."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"`{name}` should be positive. Received: {name}={size}")
