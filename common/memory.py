"""Returns freed memory of the C library's allocator and of Arrow's to the system."""

import ctypes
import sys
from typing import Any

_C = ctypes.CDLL(None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # from glibc's malloc.h
# Larger than any tensor of a usual request. A mapped tensor waits for new pages on every request: with 4 MiB here and 8
# MiB below, requests of 1,024 rows took 20% longer.
_LARGE_BYTES = 8 << 20
_FREE_BYTES_KEPT = 64 << 20  # at the end of each thread's heap


def map_large_pieces_alone() -> None:
    """Makes malloc map each large allocation separately. `free` then returns it to the system.

    By default, glibc raises its threshold when the first large allocation is freed. From then on it keeps allocations
    of that size in the heap of each thread (mallopt(3), M_MMAP_THRESHOLD).
    """
    mallopt = getattr(_C, "mallopt", None)  # glibc's
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _FREE_BYTES_KEPT)


def share_heaps(most: int) -> None:
    """Makes all threads of this process allocate from at most `most` heaps. Call it before they start.

    By default, glibc makes up to eight heaps per core (mallopt(3), M_ARENA_MAX). Each keeps what is free at its end,
    which malloc_trim(3) returns for the first heap only. In a run on ten million rows they kept up to 500 MB.
    """
    mallopt = getattr(_C, "mallopt", None)  # glibc's
    if mallopt is not None:
        mallopt(_ARENA_MAX, most)


def return_unused_pages() -> None:
    """Returns free pages of all heaps to the system (malloc_trim(3)); takes about a millisecond.

    The pages at the end of a heap stay, except those of the first heap.
    """
    trim = getattr(_C, "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def return_freed_memory() -> None:
    """Returns freed memory, including Arrow's, to the system. The peak of a step then excludes the previous step."""
    pyarrow: Any = sys.modules.get("pyarrow")  # not every process has imported it
    if pyarrow is not None:
        pyarrow.default_memory_pool().release_unused()
    return_unused_pages()
