"""`ctrpipe tune`: searches for a model's best hyperparameters within a budget, on one transformed log."""
