"""Finds the files of a log whose split is by files."""

from collections.abc import Sequence

from ctrpipe.common.errors import InputError
from ctrpipe.common.stores import absolute
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.split import SPLITS, Split, SplitFiles


def placed_files(split: Split, patterns: Sequence[str]) -> tuple[Split, list[str]]:
    """Returns a split whose `files` list single files, and all files of the log, in the order of the splits.

    Any other split is returned unchanged, with the files of the patterns.

    Args:
        split: The split.
        patterns: The files and globs of the log. With `by: files`, those of the training rows, unless `files` names
            them.

    Raises:
        InputError: a file is missing or in two splits, or both the patterns and `files` name training files.
    """
    if split.files is None:
        return split, find_files(list(patterns))
    if split.files.train and patterns:
        raise InputError("data.split.files.train names the training files; leave out data.paths and --data, or train")
    named = {"train": split.files.train or list(patterns), **{n: getattr(split.files, n) for n in SPLITS[1:]}}
    files = {name: [absolute(path) for path in find_files(list(given))] for name, given in named.items()}
    places: dict[str, str] = {}
    for name, paths in files.items():
        for path in paths:
            if places.setdefault(path, name) != name:
                raise InputError(f"data.split.files: {path} is in {places[path]} and in {name}; name it once")
    return split.model_copy(update={"files": SplitFiles(**files)}), list(places)
