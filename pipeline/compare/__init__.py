"""Models beside each other on the same rows: differences, and whether they are more than chance."""
