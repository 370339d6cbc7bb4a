"""The graph of ctrpipe.pipeline.run.graph on Kubeflow Pipelines: compiled, run step by step, submitted."""
