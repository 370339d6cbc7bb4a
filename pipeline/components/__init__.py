"""TFX components of our own: thin wrappers that give the stages lineage and caching.

Each takes a `code_version`, the hash of what it imports, which makes changed code another cache entry.
"""

SERVABLE = "Format-Serving"  # where TFX's components look for the SavedModel in a Model artifact
