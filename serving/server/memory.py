"""Settings of the C library's allocator, which keeps memory that was freed."""

import ctypes

_C = ctypes.CDLL(None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
# Above every tensor of a usual request, which would wait for new pages each time: with 4 MiB here and 8 MiB below,
# requests of 1,024 rows took a fifth longer.
_LARGE_BYTES = 8 << 20
_FREE_BYTES_KEPT = 64 << 20  # of a thread, at the end of its heap


def map_large_pieces_alone() -> None:
    """Makes malloc map each large piece by itself, so that free returns its memory to the system.

    By default glibc raises its threshold with the first large piece that is freed, and from then on keeps pieces of
    that size in the heap of each thread (mallopt(3), M_MMAP_THRESHOLD).
    """
    mallopt = getattr(_C, "mallopt", None)  # glibc's
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _FREE_BYTES_KEPT)


def return_unused_pages() -> None:
    """Returns the free pages of all threads' heaps to the system (malloc_trim(3)); takes about a millisecond."""
    trim = getattr(_C, "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
