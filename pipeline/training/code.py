"""The code that trained weights depend on.

A module of its own: a name of a module counts as an import in `code_version.imported`, so that every stage that imports
this one would depend on training.
"""

# Training, warm start, and the stages that make the training rows.
TRAINING = (
    "ctrpipe.pipeline.training.train",
    "ctrpipe.pipeline.training.parent",
    "ctrpipe.pipeline.components.log_example_gen",
    "ctrpipe.pipeline.components.log_transform",
)
