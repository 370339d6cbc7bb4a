"""Where versions of a model lie: <base path>/<integer>/, as TF Serving reads them."""

import pathlib


def versions(base_path: pathlib.Path) -> list[pathlib.Path]:
    """The folders with an integer name, lowest first."""
    if not base_path.is_dir():
        return []
    found = [path for path in base_path.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


def newest_version(base_path: pathlib.Path) -> pathlib.Path | None:
    """The folder with the highest integer name, or None."""
    found = versions(base_path)
    return found[-1] if found else None
