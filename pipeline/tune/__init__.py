"""`ctrpipe tune`: a search for a model's best settings within a budget, on one transformed log."""
