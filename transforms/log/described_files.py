"""Hashes of the files of a log."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ctrpipe.transforms.log.byte_sum import ByteSum
from ctrpipe.transforms.log.files import input_errors, open_stored


def fingerprint_files(data: list[dict[str, Any]]) -> str:
    """Returns a hash of the files' contents in order, given the results of `describe_file`."""
    return hashlib.sha256(json.dumps([file["sha256"] for file in data]).encode()).hexdigest()[:16]


def sums_of(data: list[dict[str, Any]]) -> tuple[ByteSum, ...]:
    """Returns each file's checksum, which readers of the file compare with what they read."""
    return tuple(ByteSum(file["bytes"], file["crc32"]) for file in data)


def describe_file(path: str) -> dict[str, Any]:
    """Reads a file once, and returns its path, its size in bytes and its checksums.

    Raises:
        InputError: the file cannot be read.
    """
    digest, read = hashlib.sha256(), ByteSum()
    with input_errors(path), open_stored(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            read.add(block)
    return {"path": path, "bytes": read.length, "sha256": digest.hexdigest(), "crc32": read.crc}


@contextlib.contextmanager
def described(files: list[str]) -> Iterator[Future[list[dict[str, Any]]]]:
    """Yields a future of `describe_file` for each file, computed in a thread while the block runs."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(lambda: [describe_file(path) for path in files])
