"""TFX components of our own: thin wrappers that give the stage functions lineage and caching."""
