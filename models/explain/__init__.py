"""Numeric methods that explain a model or its data. They work on arrays only."""
