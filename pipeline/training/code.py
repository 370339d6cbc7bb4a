"""The code that trained weights depend on.

The names are in a separate module. `code_version.imported` counts the name of a module in a text as an import, so every
module that imports this one depends on training.
"""

# Training, warm start, and the stages that make the training rows.
TRAINING = (
    "ctrpipe.pipeline.training.train",
    "ctrpipe.pipeline.training.parent",
    "ctrpipe.pipeline.components.log_example_gen",
    "ctrpipe.pipeline.components.log_transform",
)
