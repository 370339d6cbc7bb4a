"""TFX components: thin wrappers around the stages' functions, for lineage and caching.

Their parameter `code_version` is a hash of the code that they import, so that changed code misses TFX's cache.
"""

SERVABLE = "Format-Serving"  # where TFX's components look for the SavedModel in a Model artifact
KEPT_MODEL = (
    "Format-Keras"  # where ctrpipe.models.base.saved keeps the trained model in a Model artifact, beside the SavedModel
)
