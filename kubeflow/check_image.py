"""Imports every module of the project, so that an image in which something is missing is never finished."""

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("common", "models", "transforms", "serving", "pipeline", "ctrpipe")


def modules(root: pathlib.Path) -> list[str]:
    """The dotted names of all modules below the packages."""
    files = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for path in files]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    found = modules(ROOT)
    for name in found:
        importlib.import_module(name)
    print(f"{len(found)} modules")
