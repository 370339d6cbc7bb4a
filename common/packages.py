"""The parts of the installed package, and their folders in the checkout.

ctrpipe/ contains a link to each of these folders, which gives a checkout and an installed wheel the same module names.
Python, editable installations, mypy and editors follow the links without configuration.
"""

import pathlib

PACKAGE = "ctrpipe"
PARTS = ("common", "models", "transforms", "serving", "pipeline")


def code_files(root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the Python files of the package, sorted by path.

    Args:
        root: The parent of the folder `ctrpipe`.
    """
    own = root / PACKAGE
    parts = (path for part in PARTS for path in (own / part).rglob("*.py"))
    return sorted([*own.glob("*.py"), *parts])


def module_name(root: pathlib.Path, path: pathlib.Path) -> str:
    """Returns the dotted module name of a file from `code_files`."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
