"""The command line."""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors come as exceptions
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click

from common.errors import InputError, causes
from common.exit_codes import INTERRUPTED, MISTAKE
from common.interrupt import interrupts_kept
from pipeline.commands.bench import bench
from pipeline.commands.compare import compare
from pipeline.commands.compile import compile
from pipeline.commands.demo import demo
from pipeline.commands.drift import drift
from pipeline.commands.generate import generate
from pipeline.commands.label import label
from pipeline.commands.models import models
from pipeline.commands.predict import predict
from pipeline.commands.prepare import prepare
from pipeline.commands.report import report
from pipeline.commands.run import run
from pipeline.commands.score import score
from pipeline.commands.serve import serve
from pipeline.commands.submit import submit
from pipeline.commands.sweep import sweep
from pipeline.commands.tune_serving import tune_serving

RESUMED = ("demo", "run", "score", "sweep")


class _Group(click.Group):
    """Turns a user's mistake into one line and exit code 2, and Ctrl-C into one line, in every command."""

    def invoke(self, context: click.Context):
        try:
            with interrupts_kept():
                return super().invoke(context)
        except InputError as error:
            click.echo(f"ctrpipe: {_printable(str(error))}", err=True)
            context.exit(MISTAKE)
        except (KeyboardInterrupt, Exception) as error:
            if not _is_interrupt(error):
                raise
            again = "; the same command again goes on from here" if context.invoked_subcommand in RESUMED else ""
            click.echo(f"ctrpipe: interrupted{again}", err=True)
            context.exit(INTERRUPTED)


def _printable(text: str) -> str:
    """The text as one line that does nothing to a terminal: a message may quote what a broken file contains."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _is_interrupt(error: BaseException) -> bool:
    """Ctrl-C, or what Beam makes of it: a RuntimeError that it caused."""
    return any(isinstance(cause, KeyboardInterrupt) for cause in causes(error))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="ctrpipe")
def main() -> None:
    """From a raw impression log to a click-through rate served by TF Serving.

    Exit codes: 0 done, 1 a gate blocked the model or a log is unlike another, 2 wrong usage or input, 130 interrupted
    by Ctrl-C.
    """


for command in (
    prepare,
    run,
    score,
    serve,
    predict,
    label,
    generate,
    report,
    drift,
    sweep,
    compare,
    models,
    tune_serving,
    demo,
    bench,
    compile,
    submit,
):
    main.add_command(command)
