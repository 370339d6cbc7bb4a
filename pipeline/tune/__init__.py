"""`ctrpipe tune`: searches a model's best hyperparameters within a budget, on one transformed log."""
