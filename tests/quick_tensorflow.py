"""Leaves out work of TensorFlow, Keras and httpx for error messages, or that they repeat, in test processes.

- Each operation of a graph keeps the stack that made it, for the message of an error. A stack of pytest is 60 frames
  deep: 3 to 4% of all CPU time.
- A variable has a name for such messages, so each one made eagerly builds a kernel of its own: 1 ms of the 1.6 ms that
  a variable takes, 3% of the time of tests of models. TensorFlow keeps all of these kernels.
- Keras wraps each call of a layer so that an error shows its arguments.
- A client of httpx reads the certificates of all authorities, in 30 ms.

It is left out in forks of a test process too, but not in new servers and commands.
"""

import functools
from collections.abc import Callable
from typing import Any


def leave_out() -> None:
    """Leaves the work out for the rest of the process, and for its forks."""
    import httpx
    import keras  # the process has imported TensorFlow
    from tensorflow.python.ops import gen_resource_variable_ops
    from tensorflow.python.util import tf_stack

    tf_stack.extract_stack = with_one_answer(tf_stack.extract_stack)
    gen_resource_variable_ops.var_handle_op = without_debug_name(gen_resource_variable_ops.var_handle_op)
    keras.config.disable_traceback_filtering()
    transports = httpx._transports.default
    transports.create_ssl_context = functools.cache(transports.create_ssl_context)


def with_one_answer(extract: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `tf_stack.extract_stack` with a single answer: the present stack for all later calls."""
    stack = extract()
    return lambda *_, **__: stack


def without_debug_name(make: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `var_handle_op`, which uses one kernel for handles of one shape and type; it is unchanged in a graph."""
    from tensorflow.python.eager import context

    def handle(*arguments: Any, **options: Any) -> Any:
        if context.executing_eagerly():
            options["debug_name"] = ""
        return make(*arguments, **options)

    return handle
