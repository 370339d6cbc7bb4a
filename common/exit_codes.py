"""The exit codes of all commands. 0 means success."""

BLOCKED = 1  # a gate blocked the model, a log has drifted, or a score is not a finite number
MISTAKE = 2  # wrong usage (also click's code) or input, or the machine is out of disk or memory
FAILED = 3  # any other failure, such as a bug in ctrpipe
INTERRUPTED = 130  # what a shell reports after Ctrl-C
NO_READER = 141  # what a shell reports after SIGPIPE, as in `ctrpipe ... | head -1`
