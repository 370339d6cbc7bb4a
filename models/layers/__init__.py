"""Layers that the models are built from: one public class per file."""
