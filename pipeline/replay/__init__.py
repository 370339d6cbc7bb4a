"""`ctrpipe replay`: measures what a retraining policy would have gained, day by day, on a past log."""
