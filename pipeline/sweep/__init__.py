"""`ctrpipe sweep`: many trainings on one transformed log, each point with several seeds."""
