"""The Python packages of the project, for all that has to name them.

pyproject.toml, kubeflow/Dockerfile and its .dockerignore cannot import it and name them again; a test compares.
"""

PACKAGES = ("common", "models", "transforms", "serving", "pipeline", "ctrpipe")
