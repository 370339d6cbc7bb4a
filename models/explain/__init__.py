"""Numeric methods that explain a model or its data, on arrays alone."""
