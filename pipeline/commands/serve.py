"""The command `ctrpipe serve`."""

import click

from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.serving.server.options import parse_flags, set_environment, with_found_folder


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def serve(flags: tuple[str, ...]) -> None:
    """Serve models locally, with the flags of TF Serving.

    Supports REST, gRPC, versions, labels and batching.
    """
    options = with_found_folder(parse_flags(flags))
    set_environment(options)
    load_tensorflow()
    # Lazy: TensorFlow takes 3 s to import, and reads the environment at import, after set_environment.
    from ctrpipe.serving.server import Addresses
    from ctrpipe.serving.server import serve as serve_models

    def ready(addresses: Addresses) -> None:
        what = options.model_config_file or options.model_name
        where = [f"REST at {addresses.rest}", f"gRPC at {addresses.grpc}"]
        shown = [text for text, address in zip(where, (addresses.rest, addresses.grpc), strict=True) if address]
        say(f"Serving {what}: {', '.join(shown)}", err=True)

    serve_models(options, ready)
