"""Settings of the C library's allocator, which keeps memory that was freed."""

import ctypes

_C = ctypes.CDLL(None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
# Above every tensor of a usual request, which would wait for new pages each time: with 4 MiB here and 8 MiB below,
# requests of 1,024 rows took a fifth longer.
_LARGE_BYTES = 8 << 20
_FREE_BYTES_KEPT = 64 << 20  # of a thread, at the end of its heap


def map_large_pieces_alone() -> None:
    """Makes each large piece a mapping of its own, which is gone when it is freed.

    Left alone, glibc takes the first large piece that is freed as a sign that more of its size will come, and keeps
    their room in the heap of each thread.
    """
    mallopt = getattr(_C, "mallopt", None)  # glibc's
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _FREE_BYTES_KEPT)


def return_unused_pages() -> None:
    """Gives back what lies free between pieces in use, of all threads; takes about a millisecond."""
    trim = getattr(_C, "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
