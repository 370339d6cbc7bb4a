"""`ctrpipe replay`: what a policy of retraining would have been worth, day by day, on a log of the past."""
