"""`ctrpipe sweep`: trains many points with several seeds each, on one transformed log."""
