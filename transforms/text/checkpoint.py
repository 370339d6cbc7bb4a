"""Locates and fingerprints the checkpoint of a text encoder."""

import functools
import hashlib
import pathlib
import re

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.transforms.log.kinds.text import RANDOM

HUB = "hf://"
# The files of a checkpoint that are downloaded and hashed.
FILES = ("*.json", "*.txt", "*.safetensors")


def find_checkpoint(encoder: str) -> pathlib.Path | None:
    """Returns the folder of an encoder's checkpoint; None for `random`. Downloads hf://owner/name if not cached.

    The name may be followed by `@` and a revision: a branch, tag or commit.

    Raises:
        InputError: the folder does not exist or the download failed.
    """
    if encoder == RANDOM:
        return None
    if encoder.startswith(HUB):
        return _fetch(encoder)
    folder = pathlib.Path(encoder)
    if not folder.is_dir():
        raise InputError(f"features: text: encoder: {encoder}: no such folder; give one of a HuggingFace checkpoint")
    return folder.resolve()


@functools.cache  # so that a run uses one commit, even if the branch moves
def _fetch(encoder: str) -> pathlib.Path:
    require("hub", f"features: text: encoder: {encoder}", "give a local folder")
    from huggingface_hub import snapshot_download  # lazy: an optional package, which only encoders from the hub need

    name, at, revision = encoder.removeprefix(HUB).partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or bool(at) != bool(revision):
        raise InputError(f"features: text: encoder: {encoder}: expected hf://owner/name or hf://owner/name@revision")
    try:
        return pathlib.Path(snapshot_download(name, revision=revision or None, allow_patterns=list(FILES)))
    except Exception as error:  # network, hub or disk errors
        reason = one_line(error, 200)
        raise InputError(f"features: text: encoder: {encoder} cannot be fetched ({reason})") from error


def checkpoint_revision(encoder: str) -> str | None:
    """Returns the commit of a checkpoint from the HuggingFace hub; None for other encoders.

    Raises:
        InputError: as in `find_checkpoint`.
    """
    folder = find_checkpoint(encoder) if encoder.startswith(HUB) else None
    return folder.name if folder and re.fullmatch("[0-9a-f]{40}", folder.name) else None


def checkpoint_fingerprint(encoder: str) -> str:
    """Returns a hash of the checkpoint's files, used as its identity in caches; "" for `random`.

    Raises:
        InputError: as in `find_checkpoint`.
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
