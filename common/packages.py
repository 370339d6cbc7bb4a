"""The one package that is installed, and the folders of the checkout that are its parts.

ctrpipe/ holds a link to each of these folders, so that a checkout and an installed wheel have the same names: Python,
an editable installation, mypy and editors follow the links without being told of them.
"""

import pathlib

PACKAGE = "ctrpipe"
PARTS = ("common", "models", "transforms", "serving", "pipeline")


def code_files(root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the package's files of Python, in the order of their paths.

    Args:
        root: The folder that holds the folder `ctrpipe`.
    """
    own = root / PACKAGE
    parts = (path for part in PARTS for path in (own / part).rglob("*.py"))
    return sorted([*own.glob("*.py"), *parts])


def module_name(root: pathlib.Path, path: pathlib.Path) -> str:
    """Returns the dotted name by which a file of `code_files` is imported."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
