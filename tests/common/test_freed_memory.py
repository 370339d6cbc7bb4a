"""Memory that a step of a run has freed goes back to the system, and threads share heaps."""

import os
import subprocess
import sys

import pytest

FREED = """
import numpy, psutil, pyarrow
from ctrpipe.common.memory import return_freed_memory

def held():
    return psutil.Process().memory_info().rss >> 20

before = held()
pieces = [pyarrow.array(numpy.arange(30_000)).cast(pyarrow.string()) for _ in range(400)]
full = held()
del pieces
return_freed_memory()
print(full - before, held() - before)
"""


def test_memory_freed_by_arrow_goes_back_to_the_system():
    ended = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    full, left = map(int, ended.stdout.split())
    assert full > 100 and left < full / 2


HEAPS = """
import ctypes, sys, threading
from ctrpipe.common.memory import share_heaps

if int(sys.argv[1]):
    share_heaps(int(sys.argv[1]))
libc = ctypes.CDLL(None)
libc.fdopen.restype, libc.malloc_info.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
libc.fflush.argtypes = [ctypes.c_void_p]
all_started = threading.Barrier(6)

def allocate():
    libc.malloc(1000)
    all_started.wait()

threads = [threading.Thread(target=allocate) for _ in range(5)]
for thread in threads:
    thread.start()
all_started.wait()
output = libc.fdopen(1, b"w")
libc.malloc_info(0, output)
libc.fflush(output)
"""


@pytest.mark.parametrize(("most", "heaps"), [(0, 6), (1, 1), (2, 2)])
def test_share_heaps_limits_the_number_of_heaps(most, heaps):
    allocator = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(allocator)}
    described = subprocess.check_output([sys.executable, "-c", HEAPS, str(most)], env=environment, text=True)
    assert described.count("<heap nr=") == heaps
