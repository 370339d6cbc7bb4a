"""The exit codes of all commands; 0 means done."""

BLOCKED = 1  # a gate or a comparison says no
MISTAKE = 2  # wrong usage or input, or the machine has no room; click's own code for wrong usage as well
FAILED = 3  # any other failure, such as a defect of ctrpipe
INTERRUPTED = 130  # what a shell reports for Ctrl-C
NO_READER = 141  # what a shell reports when the reader of a pipe has ended, as in `ctrpipe ... | head -1`
