"""A server does not keep all that large requests have needed."""

import os
import subprocess
import sys
import threading

import pytest

from ctrpipe.serving.server import core
from ctrpipe.serving.server.options import ServerOptions

START = """
import ctypes, sys
from ctrpipe.common.memory import map_large_pieces_alone, return_unused_pages
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
"""
# A page that was given back reads as zeros: unlike the sizes that a system reports, the same on every kernel.
SMALL = """
SIZE = 100_000  # below what malloc maps alone
pieces = [libc.malloc(SIZE) for _ in range(40)]
for piece in pieces:
    ctypes.memset(piece, 7, SIZE)
held = pieces.pop()  # above the others: the heap cannot simply end earlier
for piece in pieces:
    libc.free(piece)
if sys.argv[1] == "return":
    return_unused_pages()
print(sum(ctypes.string_at(piece + SIZE // 2, 1) == bytes([7]) for piece in pieces))
"""
# Before each piece glibc keeps its size, whose second bit says that it is a mapping of its own.
LARGE = """
if sys.argv[1] == "alone":
    map_large_pieces_alone()
libc.free(libc.malloc(16 << 20))
print(ctypes.c_size_t.from_address(libc.malloc(16 << 20) - 8).value >> 1 & 1)
"""
# As far as glibc goes by itself as large pieces are freed, whatever the machine's own settings are.
LARGE_FROM_32_MIB = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=33554432"}


def printed(program: str, how: str, **settings: str) -> int:
    allocator = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(allocator)}
    command = [sys.executable, "-c", START + program, how]
    return int(subprocess.check_output(command, env=environment | settings, text=True))


@pytest.mark.parametrize(("how", "kept"), [("leave", 39), ("return", 0)])
def test_what_lies_free_between_pieces_in_use_is_given_back(how, kept):
    assert printed(SMALL, how) == kept


@pytest.mark.parametrize(("how", "mapped"), [("leave", 0), ("alone", 1)])
def test_large_pieces_are_mapped_alone_however_many_were_freed(how, mapped):
    assert printed(LARGE, how, **LARGE_FROM_32_MIB) == mapped


@pytest.mark.parametrize(("tidy_seconds", "excess"), [(0.01, 0), (1000.0, 1)])  # the second: above the limit
def test_a_server_bounds_what_is_kept_and_gives_back_again_and_again(tmp_path, monkeypatch, tidy_seconds, excess):
    given_back = threading.Semaphore(0)
    large_alone = threading.Event()
    monkeypatch.setattr(core, "map_large_pieces_alone", large_alone.set)
    monkeypatch.setattr(core, "return_unused_pages", given_back.release)
    monkeypatch.setattr(core, "_TIDY_SECONDS", tidy_seconds)
    monkeypatch.setattr(core, "_TIGHT_SECONDS", 0.01)
    server = core.ServerCore(ServerOptions(model_base_path=tmp_path))
    monkeypatch.setattr(server.budget, "excess", lambda: excess)
    starting = threading.Thread(target=server.start)  # waits for a first version until the server is stopped
    starting.start()
    try:
        assert all(given_back.acquire(timeout=30) for _ in range(3))
        assert large_alone.is_set()
    finally:
        server.stop()
        starting.join()
