"""The command line: a click group that imports each command on first use.

The command `do-this` is the function `do_this` in pipeline/commands/do_this.py. Its name, and the extra that it needs,
are in COMMANDS of common/extras.py. `ctrpipe --help` imports all command files, in 0.1 s. Slow imports are therefore
inside the functions, with a comment that gives the time they take.
"""

import importlib
import os
import select
import sys
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors come as exceptions
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click

from ctrpipe.common import foreign
from ctrpipe.common.address_space import COMMAND_GIB, require_address_space
from ctrpipe.common.errors import InputError, is_interrupt, without_secrets
from ctrpipe.common.exit_codes import INTERRUPTED, MISTAKE, NO_READER
from ctrpipe.common.extras import BASE, COMMANDS, RESUMED, require
from ctrpipe.common.failures import explain
from ctrpipe.common.interrupt import interrupts_delivered
from ctrpipe.common.lines import say
from ctrpipe.common.near import nearest_name
from ctrpipe.common.printable import printable
from ctrpipe.pipeline.commands.options import repeat_for_files

# The sections of `ctrpipe --help`, in the order in which a new user needs them.
SECTIONS = {
    "Start": ("demo", "init", "check", "configs", "models", "generate", "prepare"),
    "Train": ("run", "tune", "sweep", "replay", "report"),
    "Evaluate": ("compare", "explain", "drift", "ranking"),
    "Serve": ("serve", "predict", "score", "retrieve", "canary", "bench", "tune-serving"),
    "Kubeflow": ("compile", "submit"),
}
RENAMED = {"label": "canary"}  # commands of former versions, by their names then
# What other programs call a command.
USUAL = {"train": "run", "fit": "run", "validate": "check", "new": "init", "draft": "init", "evaluate": "report"}


class CommandGroup(click.Group):
    """Imports commands lazily, and turns all failures and Ctrl-C into one line and an exit code."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*COMMANDS, *super().list_commands(context)})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS and name not in self.commands:
            function = name.replace("-", "_")
            self.add_command(getattr(importlib.import_module(f"ctrpipe.pipeline.commands.{function}"), function), name)
        return super().get_command(context, name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(context)))
        for section, names in SECTIONS.items():
            with formatter.section(section):
                commands = [(name.ljust(width), self.get_command(context, name)) for name in names]
                formatter.write_dl([(name, command.get_short_help_str(90)) for name, command in commands if command])

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if now := RENAMED.get(arguments[0]):
            raise InputError(
                f"the command {arguments[0]} has another name now; write `ctrpipe {now}`, with the same options"
            )
        if self.get_command(context, arguments[0]) is None and not arguments[0].startswith("-"):
            meant = nearest_name(arguments[0], [*self.list_commands(context), *USUAL])
            near = f"; did you mean {USUAL.get(meant, meant)}?" if meant else "; `ctrpipe --help` lists them"
            raise click.UsageError(f"No such command '{arguments[0]}'{near}", context)
        name, command, rest = super().resolve_command(context, arguments)
        # Help and shell completion work without the packages of the extra.
        if not context.resilient_parsing and set(context.help_option_names).isdisjoint(rest):
            require(COMMANDS.get(str(name), BASE), f"`ctrpipe {name}`")
        return name, command, repeat_for_files(command, rest) if command else rest

    def invoke(self, context: click.Context) -> Any:
        try:
            require_address_space("ctrpipe", COMMAND_GIB)
            with interrupts_delivered():
                return super().invoke(context)
        except InputError as error:
            say(f"ctrpipe: {printable(without_secrets(str(error)))}", err=True, failed=True)
            context.exit(MISTAKE)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except SystemExit as exit:
            if text := foreign.failure(exit):  # a hook or a user's own model has tried to end the process
                say(f"ctrpipe: {printable(text)}", err=True, failed=True)
                context.exit(MISTAKE)
            # Rich exits with code 1 itself when the reader of a pipe is gone.
            context.exit(NO_READER if isinstance(exit.__context__, BrokenPipeError) else exit.code)  # type: ignore[arg-type]
        except (KeyboardInterrupt, Exception) as error:
            if not is_interrupt(error):
                context.exit(_report(error))
            again = "; repeat the command to continue from here" if context.invoked_subcommand in RESUMED else ""
            say(f"ctrpipe: interrupted{again}", err=True)
            context.exit(INTERRUPTED)


def _report(error: BaseException) -> int:
    """Prints the error message and returns the exit code."""
    if isinstance(error, BrokenPipeError) and not _is_read():
        return NO_READER
    text, code = explain(error)
    say(f"ctrpipe: {printable(without_secrets(text))}", err=True, failed=True)
    return code


def _is_read() -> bool:
    """Returns whether stdout has a reader. If not, redirects it to /dev/null, because Python flushes it at exit."""
    readers = select.poll()  # a flush says nothing where PYTHONUNBUFFERED is set, as in container images
    readers.register(sys.stdout, select.POLLOUT)
    if not any(event & select.POLLERR for _, event in readers.poll(0)):
        return True
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return False


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="ctrpipe")
def main() -> None:
    """From a raw impression log to a click-through-rate model served by TF Serving.

    Exit codes: 0 success, 1 a gate blocked the model or a log has drifted, 2 wrong usage or input, or the machine is
    out of disk or memory, 3 any other failure, 130 interrupted by Ctrl-C, 141 the reader of the output is gone.
    """
