"""Compares models on the same rows: their differences, and whether these are significant."""
