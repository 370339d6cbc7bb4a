"""Check the address space limit of this process (`ulimit -v`) before work starts.

If the address space runs out, C++ libraries abort the process with a stack dump, or hang. A memory limit, such as that
of a container, is different: the system kills the process.
"""

import resource

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import cores

_GIB = 1 << 30
# Measured with 4 cores: 0.4 GiB for Python with numpy, 1.7 with TensorFlow, above 2.9 for a server of a small model,
# 4.9 for a run of 1,000 rows. Every core adds threads, each with its own stack and arena.
COMMAND_GIB = 0.5
TENSORFLOW_GIB = 3.25
RUN_GIB = 5.25
_CORE_GIB = 0.25


def require_address_space(what: str, gib: float) -> None:
    """Raises InputError if the address space limit of this process is too low.

    Args:
        what: What needs the address space, for the message.
        gib: The GiB needed on one core. Above COMMAND_GIB, each further core adds _CORE_GIB.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY:
        return
    needed = gib if gib <= COMMAND_GIB else gib + _CORE_GIB * (cores() - 1)
    if allowed < needed * _GIB:
        raise InputError(
            f"{what} needs {needed:g} GiB of address space, and the system allows {allowed / _GIB:.2g} GiB; raise the "
            "limit with ulimit -v, and limit memory by a container instead"
        )
