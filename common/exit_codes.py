"""The exit codes of every command; 0 is done."""

BLOCKED = 1  # a gate or a comparison says no
MISTAKE = 2  # wrong usage or input; click's own code for wrong usage as well
INTERRUPTED = 130  # what a shell reports for Ctrl-C
