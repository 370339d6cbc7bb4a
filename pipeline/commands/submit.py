"""The command `ctrpipe submit`."""

import pathlib
import sys

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import BLOCKED, FAILED
from ctrpipe.common.lines import say
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.commands.options import CONFIG, PATH
from ctrpipe.pipeline.kubeflow.cron import read_cron


@click.command()
@click.argument("package", type=CONFIG)
@click.option("--host", required=True, help="URL of Kubeflow Pipelines, e.g. http://localhost:8888.")
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Value of a parameter; repeatable.")
@click.option(
    "--recurring",
    metavar="CRON",
    help='Schedule, e.g. "0 4 * * *" for every day at four. A sixth field in front is for seconds.',
)
@click.option("--replace", is_flag=True, help="Replace the existing schedules of the pipeline.")
@click.option("--namespace", help="Namespace of the profile, if Kubeflow has several users.")
@click.option("--experiment", help="Kubeflow experiment. Default: the name of the pipeline.")
@click.option("--service-account", help="Service account of the steps. Default: kubeflow.service_account.")
@click.option("--token", envvar="KFP_TOKEN", help="Bearer token. Prefer the environment variable KFP_TOKEN.")
@click.option("--token-file", type=PATH, help="File with the token, read again whenever it is needed.")
@click.option("--ca-cert", type=PATH, help="CA certificate of the host, PEM. Default: the public CAs.")
@click.option(
    "--start-timeout",
    type=click.FloatRange(0),
    default=3600.0,
    help="Maximum seconds that the run, or a step, may be pending. Default: 3600.",
)
@click.option("--no-wait", is_flag=True, help="Exit after the run is started.")
def submit(
    package: pathlib.Path,
    host: str,
    parameters: tuple[str, ...],
    recurring: str | None,
    replace: bool,
    namespace: str | None,
    experiment: str | None,
    service_account: str | None,
    token: str | None,
    token_file: pathlib.Path | None,
    ca_cert: pathlib.Path | None,
    start_timeout: float,
    no_wait: bool,
) -> None:
    """Run a compiled pipeline on Kubeflow Pipelines.

    PACKAGE is a file from `ctrpipe compile`. Starts the run, prints how each step ends, and waits for the end.

    Exit codes: 0 the run succeeded, 1 a gate blocked the model, 2 the run could not be started or followed, 3 a step
    failed. Ctrl-C stops this command, not the run.
    """
    # Lazy: the Kubeflow client takes 0.5 s to import.
    from ctrpipe.pipeline.kubeflow.host import Host, connect
    from ctrpipe.pipeline.kubeflow.submit import follow, read_package, read_parameters, start

    if replace and not recurring:
        raise InputError("--replace: there is no schedule; give --recurring CRON with it")
    cron = read_cron(recurring) if recurring else None
    pipeline = read_package(package)
    values = read_parameters(pipeline, parameters)
    server = Host(host, token, token_file, namespace, ca_cert)
    client = connect(server)
    started = start(client, server, pipeline, values, cron, service_account, experiment, replace)
    if cron:
        say(f"Schedule: {started}, {cron} (seconds first; in the cluster's time zone, as a rule UTC)")
    else:
        say(f"Run: {started}")
    if cron or no_wait:
        return
    state = follow(client, server, started, pipeline, announce, start_timeout)
    say(f"Run {started}: {state.lower()}")
    if state not in ("SUCCEEDED", "SKIPPED"):
        sys.exit(BLOCKED if state == "BLOCKED" else FAILED)
