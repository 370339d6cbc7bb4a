"""The graph of ctrpipe.pipeline.run.graph on Kubeflow Pipelines: compile it, run its steps, submit it."""
