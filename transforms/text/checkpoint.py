"""Finds the checkpoint of a text's encoder."""

import functools
import hashlib
import pathlib
import re

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.transforms.log.spec import RANDOM

HUB = "hf://"
# The files of a checkpoint to fetch and to hash.
FILES = ("*.json", "*.txt", "*.safetensors")


def find_checkpoint(encoder: str) -> pathlib.Path | None:
    """Returns the folder of a text's `encoder`, None for random; downloads hf://owner/name if it is not cached.

    An `@` and a revision may follow the name: a branch, a tag or a commit.

    Raises:
        InputError: there is no such folder, or it cannot be fetched.
    """
    if encoder == RANDOM:
        return None
    if encoder.startswith(HUB):
        return _fetch(encoder)
    folder = pathlib.Path(encoder)
    if not folder.is_dir():
        raise InputError(f"features: text: encoder: {encoder}: no such folder; give one of a HuggingFace checkpoint")
    return folder.resolve()


@functools.cache  # a run uses one commit, even if a branch moves
def _fetch(encoder: str) -> pathlib.Path:
    require("hub", f"features: text: encoder: {encoder}", "give a local folder")
    from huggingface_hub import snapshot_download  # an optional package, which only encoders of the hub need

    name, at, revision = encoder.removeprefix(HUB).partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or bool(at) != bool(revision):
        raise InputError(f"features: text: encoder: {encoder}: expected hf://owner/name or hf://owner/name@revision")
    try:
        return pathlib.Path(snapshot_download(name, revision=revision or None, allow_patterns=list(FILES)))
    except Exception as error:  # of the network, the hub or the disk
        reason = one_line(error, 200)
        raise InputError(f"features: text: encoder: {encoder} cannot be fetched ({reason})") from error


def checkpoint_revision(encoder: str) -> str | None:
    """Returns the commit of a checkpoint of the HuggingFace hub; None for other encoders.

    Raises:
        InputError: as `find_checkpoint`.
    """
    folder = find_checkpoint(encoder) if encoder.startswith(HUB) else None
    return folder.name if folder and re.fullmatch("[0-9a-f]{40}", folder.name) else None


def checkpoint_fingerprint(encoder: str) -> str:
    """Returns a hash of the checkpoint's files, to identify it in caches; "" for random.

    Raises:
        InputError: as `find_checkpoint`.
    """
    folder = find_checkpoint(encoder)
    if folder is None:
        return ""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in FILES for path in folder.glob(pattern)}):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
