"""`ctrpipe replay`: measures retraining policies day by day on a past log."""
