"""The exit codes of all commands; 0 means done."""

BLOCKED = 1  # a gate or a comparison says no
MISTAKE = 2  # wrong usage or input; click's own code for wrong usage as well
INTERRUPTED = 130  # what a shell reports for Ctrl-C
