"""A step of a run does not keep what the step before it has needed."""

import subprocess
import sys

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


def test_what_arrow_has_freed_goes_back_to_the_system():
    ended = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    full, left = map(int, ended.stdout.split())
    assert full > 100 and left < full / 2
