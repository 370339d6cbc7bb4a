"""The graph of pipeline.graph on Kubeflow Pipelines: compiled, run step by step, submitted."""
