"""The graph of ctrpipe.pipeline.graph on Kubeflow Pipelines: compile it, run its steps, submit it."""
