"""`python -m ctrpipe` is the command `ctrpipe`."""

from ctrpipe.pipeline.cli import main

if __name__ == "__main__":
    main(prog_name="ctrpipe")
