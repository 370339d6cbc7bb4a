"""Entry point of `python -m ctrpipe`, the same as the command `ctrpipe`."""

from ctrpipe.pipeline.cli import main

if __name__ == "__main__":
    main(prog_name="ctrpipe")
