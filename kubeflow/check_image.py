"""Imports the modules that an image is for, so that building one that lacks a package fails.

Without arguments all modules of the project; `check_image.py serve score` imports those of these commands.
"""

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from common.packages import PACKAGES  # noqa: E402
from pipeline.code_version import imported  # noqa: E402


def all_modules(root: pathlib.Path) -> list[str]:
    """Returns the dotted names of all modules of the packages."""
    files = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for path in files]


def modules_of(commands: list[str]) -> list[str]:
    """Returns the dotted names of the modules that some commands of `ctrpipe` import, inside functions too."""
    return sorted(imported("pipeline.cli", *(f"pipeline.commands.{name}" for name in commands)))


if __name__ == "__main__":
    names = modules_of(sys.argv[1:]) if sys.argv[1:] else all_modules(ROOT)
    for name in names:
        importlib.import_module(name)
    print(f"{len(names)} modules")
