"""The address space that the system allows this process, `ulimit -v`, checked before work starts.

Where it runs out, C++ libraries end the process in the middle of its work with a list of addresses, or wait for ever.
Memory itself, which a container limits, is another thing: without it the system kills a process.
"""

import resource

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import cores

_GIB = 1 << 30
# Measured with 4 cores: 0.4 GiB for Python with numpy; 1.7 with TensorFlow; above 2.9 for a server of a small model;
# 4.9 for a run of 1,000 rows. Each core has threads, with a stack and an arena of their own.
COMMAND_GIB = 0.5
TENSORFLOW_GIB = 3.25
RUN_GIB = 5.25
_CORE_GIB = 0.25


def require_address_space(what: str, gib: float) -> None:
    """Raises InputError where the system allows this process fewer GiB.

    Args:
        what: What needs them, for the message.
        gib: What it needs on one core; above COMMAND_GIB each further core needs some more.
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
