"""`ctrpipe submit`."""

import pathlib
import sys

import click

from ctrpipe.common.exit_codes import BLOCKED, FAILED
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("package", type=PATH)
@click.option("--host", required=True, help="Kubeflow Pipelines' address, as in http://localhost:8888.")
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter's value; repeatable.")
@click.option("--recurring", metavar="CRON", help='Six fields, seconds first: "0 0 4 * * *" is every day at four.')
@click.option("--namespace", help="The profile's namespace, where Kubeflow has several users.")
@click.option("--experiment", help="Kubeflow's group of runs. Default: the pipeline's name.")
@click.option("--service-account", help="The account that the steps run as.")
@click.option("--token", envvar="KFP_TOKEN", help="Bearer token; better in the environment, as KFP_TOKEN.")
@click.option("--token-file", type=PATH, help="A file with the token, read again whenever it is needed.")
@click.option("--ca-cert", type=PATH, help="The authority of the host's certificate, PEM. Default: the public ones.")
@click.option(
    "--start-timeout",
    type=click.FloatRange(0),
    default=3600.0,
    help="Seconds that a step may wait for a place in the cluster. Default: 3600.",
)
@click.option("--no-wait", is_flag=True, help="Start the run and end.")
def submit(
    package: pathlib.Path,
    host: str,
    parameters: tuple[str, ...],
    recurring: str | None,
    namespace: str | None,
    experiment: str | None,
    service_account: str | None,
    token: str | None,
    token_file: pathlib.Path | None,
    ca_cert: pathlib.Path | None,
    start_timeout: float,
    no_wait: bool,
) -> None:
    """Run PACKAGE, a file that `ctrpipe compile` wrote, on Kubeflow Pipelines, and follow it to its end.

    Exit codes: 0 it succeeded, 1 a gate blocked the model, 2 it could not be started, or followed to its end, 3 a step
    failed. Ctrl-C ends the following, not the run.
    """
    # Kubeflow's client: 0.5 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.kubeflow.submit import Host, connect, follow, read_package, read_parameters, start

    pipeline = read_package(package)
    values = read_parameters(pipeline, parameters)
    server = Host(host, token, token_file, namespace, ca_cert)
    client = connect(server)
    started = start(client, server, pipeline, values, recurring, service_account, experiment)
    click.echo(f"{'Schedule' if recurring else 'Run'}: {started}")
    if recurring or no_wait:
        return
    state = follow(client, server, started, announce, start_timeout)
    click.echo(f"Run {started}: {state.lower()}")
    if state not in ("SUCCEEDED", "SKIPPED"):
        sys.exit(BLOCKED if state == "BLOCKED" else FAILED)
