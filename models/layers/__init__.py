"""Layers that the models are built from, one file each."""
