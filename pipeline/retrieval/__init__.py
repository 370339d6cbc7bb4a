"""`ctrpipe retrieve`: stores a model's item vectors inside its version, and retrieves each user's best items."""
