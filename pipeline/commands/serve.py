"""`ctrpipe serve`."""

import click

from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.serving.server.options import parse_flags, set_environment


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def serve(flags: tuple[str, ...]) -> None:
    """Serve models locally as TF Serving does, with its flags: REST, gRPC, versions, labels, batching."""
    options = parse_flags(flags)
    set_environment(options)
    load_tensorflow()
    # TensorFlow: 3 s that a wrong flag does without; it reads the environment as it is loaded.
    from ctrpipe.serving.server import Addresses
    from ctrpipe.serving.server import serve as serve_models

    def ready(addresses: Addresses) -> None:
        what = options.model_config_file or options.model_name
        where = [f"REST at {addresses.rest}", f"gRPC at {addresses.grpc}"]
        shown = [text for text, address in zip(where, (addresses.rest, addresses.grpc), strict=True) if address]
        click.echo(f"Serving {what}: {', '.join(shown)}", err=True)

    serve_models(options, ready)
