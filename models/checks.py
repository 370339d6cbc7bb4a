"""Checks of the arguments of layers and models. Each raises ValueError with one line that names the argument."""

from models.feature_map import FeatureMap


def require_positive(**sizes: int | None) -> None:
    """Raises ValueError where one of the named sizes is below one. None is allowed."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"`{name}` should be positive. Received: {name}={size}")


def require_fields(model: str, feature_map: FeatureMap) -> None:
    """Raises ValueError where the data has no field, only dense features."""
    if not feature_map.fields:
        raise ValueError(f"{model} needs at least one field; all features are dense")


def require_one_task(model: str, feature_map: FeatureMap) -> None:
    """Raises ValueError where the data has several labels: the model's interaction is one number."""
    if len(feature_map.tasks) > 1:
        tasks = ", ".join(feature_map.tasks)
        raise ValueError(f"{model} predicts one task; give one label or another model. Received: {tasks}")
