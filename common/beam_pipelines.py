"""Run Beam pipelines in a notebook as in a program."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def as_in_a_program() -> Iterator[None]:
    """Makes Beam create and run the pipelines of the block as in a program, also in a notebook and in IPython.

    In a notebook, Beam imports its interactive runner to name each step after the cell. This import fails with pandas
    3, which would end every run before its gates. Beam also leaves its temporary folders behind.
    """
    # Lazy: takes 1.6 s of CPU time, and is imported by what makes a pipeline.
    import apache_beam.pipeline
    from apache_beam.utils import interactive_utils

    modules = (interactive_utils, apache_beam.pipeline)
    asked = [module.is_in_ipython for module in modules]
    for module in modules:
        module.is_in_ipython = bool  # bool() is False
    try:
        yield
    finally:
        for module, function in zip(modules, asked, strict=True):
            module.is_in_ipython = function
