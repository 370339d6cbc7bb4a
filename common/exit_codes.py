"""The exit codes of all commands; 0 means done."""

BLOCKED = 1  # a gate or a comparison says no
MISTAKE = 2  # wrong usage or input, or the machine has no room; click's own code for wrong usage as well
FAILED = 3  # neither the user's fault nor a gate's
INTERRUPTED = 130  # what a shell reports for Ctrl-C
NO_READER = 141  # and what it reports where the reader of the output has gone, as in `ctrpipe ... | head -1`
