"""Imports the modules that an image needs; building an image that lacks a package fails.

Without arguments, imports all modules of the project. `check_image.py serve score` imports the modules of these
commands and skips modules that need a package of an extra: their callers check for the extra first.
"""

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ctrpipe.common.code_version import imported  # noqa: E402
from ctrpipe.common.extras import extra_of  # noqa: E402
from ctrpipe.common.packages import code_files, module_name  # noqa: E402


def modules_of(commands: list[str]) -> list[str]:
    """Returns the dotted names of the modules that `ctrpipe` commands import, including imports inside functions."""
    return sorted(imported("ctrpipe.pipeline.cli", *(f"ctrpipe.pipeline.commands.{name}" for name in commands)))


if __name__ == "__main__":
    names = modules_of(sys.argv[1:]) if sys.argv[1:] else [module_name(ROOT, path) for path in code_files(ROOT)]
    passed_over = 0
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not (sys.argv[1:] and error.name and extra_of(error.name.partition(".")[0])):
                raise
            passed_over += 1
    print(f"{len(names) - passed_over} modules" + (f", {passed_over} of an extra passed over" if passed_over else ""))
