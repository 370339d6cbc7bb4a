"""Imports every module of the project, so that building an image that lacks a package fails."""

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from common.packages import PACKAGES  # noqa: E402


def modules(root: pathlib.Path) -> list[str]:
    """Returns the dotted names of all modules of the packages."""
    files = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for path in files]


if __name__ == "__main__":
    names = modules(ROOT)
    for name in names:
        importlib.import_module(name)
    print(f"{len(names)} modules")
