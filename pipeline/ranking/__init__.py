"""`ctrpipe ranking`: measures how well a model ranks lists of candidates, and how much of the catalogue it shows."""
