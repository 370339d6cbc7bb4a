"""`ctrpipe ranking`: how well a model orders lists of candidates, and how much of the catalogue it shows."""
