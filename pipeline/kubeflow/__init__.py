"""The graph of ctrpipe.pipeline.graph on Kubeflow Pipelines: compiled, run step by step, submitted."""
