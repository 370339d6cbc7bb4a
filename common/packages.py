"""The names of the project's Python packages.

pyproject.toml, kubeflow/Dockerfile and its .dockerignore cannot import this list and repeat it; a test compares them.
"""

PACKAGES = ("common", "models", "transforms", "serving", "pipeline", "ctrpipe")
