"""`ctrpipe serve`."""

import pathlib

import click

from pipeline.commands.options import PATH


@click.command()
@click.option("--model_base_path", type=PATH, required=True, help="Folder of the versions: DIR/models/<name>.")
@click.option("--model_name", default="default", show_default=True, help="The name in the URL.")
@click.option("--rest_api_port", type=int, required=True, help="Port of the REST API.")
@click.option("--rest_api_host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--file_system_poll_wait_seconds", type=float, default=1.0, show_default=True, help="New versions.")
@click.option("--rest_api_timeout_in_ms", type=int, default=30000, show_default=True, help="Limit of one request.")
def serve(
    model_base_path: pathlib.Path,
    model_name: str,
    rest_api_port: int,
    rest_api_host: str,
    file_system_poll_wait_seconds: float,
    rest_api_timeout_in_ms: int,
) -> None:
    """Serve a model locally, with TF Serving's REST API: predict, status, metadata."""
    from pipeline.quiet import load_tensorflow

    load_tensorflow()
    from serving.server import Addresses, ServerOptions
    from serving.server import serve as serve_models

    def ready(addresses: Addresses) -> None:
        click.echo(f"Serving {model_name} at {addresses.rest}/v1/models/{model_name}", err=True)

    options = ServerOptions(
        model_base_path=model_base_path,
        model_name=model_name,
        rest_api_port=rest_api_port,
        host=rest_api_host,
        file_system_poll_wait_seconds=file_system_poll_wait_seconds,
        rest_api_timeout_in_ms=rest_api_timeout_in_ms,
    )
    serve_models(options, ready)
