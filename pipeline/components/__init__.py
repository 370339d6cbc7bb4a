"""TFX components: thin wrappers around the functions of the stages, for lineage and caching.

Their parameter `code_version` is a hash of the code that they import. Changed code therefore misses TFX's cache.
"""

SERVABLE = "Format-Serving"  # where TFX's components look for the SavedModel in a Model artifact
KEPT_MODEL = "Format-Keras"  # where models.base.saved stores the trained model, next to the SavedModel
