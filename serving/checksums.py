"""Checksums of the files that a version's graph reads, such as vocabularies.

TensorFlow checks the weights' checksums but not those of these files: a damaged vocabulary changes the answers in
silence. Without the index of the weights it loads a graph whose requests all fail, as of a version that is half copied.
"""

import hashlib
import json
import os
import pathlib

from ctrpipe.common.errors import InputError
from ctrpipe.serving.layout import GRAPH_ASSETS, Asset, asset_path, weights_index


def write_checksums(version: pathlib.Path) -> None:
    """Writes the checksums and sizes of the files that the graph reads into the version's assets."""
    files = {name: version / GRAPH_ASSETS / name for name in _names(version)}
    sums = {name: _sum(file) for name, file in files.items()}
    sizes = {name: file.stat().st_size for name, file in files.items()}
    asset_path(version, Asset.CHECKSUMS).write_text(json.dumps({"sha256": sums, "bytes": sizes}, indent=1))


def check_assets(version: pathlib.Path) -> None:
    """Compares the files that the graph reads with their checksums, and looks for the index of the weights.

    A version without checksums is not checked.

    Raises:
        InputError: a file is missing or has changed, or the checksums cannot be read.
    """
    path = asset_path(version, Asset.CHECKSUMS)
    if not os.path.lexists(path):  # a link that leads nowhere is a mistake
        return
    try:
        kept = json.loads(path.read_bytes())
        sums, sizes = dict(kept["sha256"]), dict(kept.get("bytes", {}))  # earlier exports have no sizes
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); push the model again") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged; push the model again") from error
    index = weights_index(version)
    if not index.is_file():
        raise InputError(f"{index}: is missing; push the model again")
    for name, expected in sums.items():
        file = version / GRAPH_ASSETS / name
        try:
            # A file that is far too long is not read.
            is_equal = file.stat().st_size == sizes.get(name, file.stat().st_size) and _sum(file) == expected
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror}); push the model again") from error
        if not is_equal:
            raise InputError(f"{file}: differs from what was exported; push the model again")


def _names(version: pathlib.Path) -> list[str]:
    folder = version / GRAPH_ASSETS
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _sum(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
