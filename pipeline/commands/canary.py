"""The command `ctrpipe canary`."""

import contextlib
import pathlib
import urllib.parse
from typing import TYPE_CHECKING

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow_serving.config.model_server_config_pb2 import ModelConfig, ModelServerConfig

    from ctrpipe.serving.client import ModelClient


@click.command()
@click.argument("model")
@click.argument("assignments", nargs=-1, metavar="[LABEL=VERSION]...")
@click.option("--model_config_file", type=PATH, required=True, help="The model config file of the server.")
@click.option("--remove", multiple=True, metavar="LABEL", help="Remove a label; repeatable.")
@click.option("--rollback", is_flag=True, help="Undo the last change of this model.")
@click.option("--grpc", default=None, metavar="HOST:PORT", help="gRPC address: check versions, reload the config.")
@click.option("--url", default=None, metavar="http://HOST:PORT", help="REST address: check versions only.")
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for the server.")
def canary(
    model: str,
    assignments: tuple[str, ...],
    model_config_file: pathlib.Path,
    remove: tuple[str, ...],
    rollback: bool,
    grpc: str | None,
    url: str | None,
    wait: float,
) -> None:
    """Show or move the version labels of a served model.

    Clients use a label of MODEL, such as stable or canary, to select a version.

    \b
      ctrpipe canary ctr --model_config_file models.config                         show the labels
      ctrpipe canary ctr stable=12 canary=13 --model_config_file ... --grpc ...    load 13, then move canary to it
      ctrpipe canary ctr --rollback --model_config_file ... --grpc ...             undo the last change

    A label moves only after its version is AVAILABLE on the server. From then on, the server keeps all versions with a
    current or previous label, and loads a newly pushed version only when a label names it.

    Without --grpc, the server must poll the file itself (--model_config_file_poll_wait_seconds).
    """
    if rollback and (assignments or remove):
        raise InputError("--rollback takes no labels: it undoes the last change")
    moved = _parse_assignments(assignments)
    with contextlib.ExitStack() as stack:
        client, reload = _server(model, grpc, url, stack)
        # Lazy: takes 0.3 s. If TensorFlow is loaded, it must be loaded before this.
        from ctrpipe.serving.client.labels import ServedLabels

        labels = ServedLabels(model_config_file, model, client, reload, wait)
        if rollback:
            config = labels.roll_back()
        elif moved or remove:
            config = labels.move(moved, remove)
        else:
            config = labels.current()
        previous = labels.previous()
        _show(config, client)
        if previous is not None:
            click.echo(f"--rollback: {_in_words(previous)}")


def _parse_assignments(assignments: tuple[str, ...]) -> dict[str, int]:
    moved: dict[str, int] = {}
    for text in assignments:
        name, _, version = text.partition("=")
        if not version.isdecimal() or int(version) >= 2**63 or name in moved:
            raise InputError(f"'{text}': write each label once, as LABEL=VERSION: canary=13")
        moved[name] = int(version)
    return moved


def _server(
    model: str, grpc: str | None, url: str | None, stack: contextlib.ExitStack
) -> "tuple[ModelClient | None, Callable[[ModelServerConfig], None] | None]":
    """Returns a client, and a function that reloads the server's config (gRPC only); None without."""
    if grpc and url:
        raise InputError("Give --grpc HOST:PORT or --url http://HOST:PORT, not both")
    if grpc:
        load_tensorflow()
        from ctrpipe.serving.client.grpc_client import GrpcClient  # lazy: TensorFlow takes 3 s, REST does not need it

        client = stack.enter_context(GrpcClient(grpc, model))
        return client, client.reload
    if url:
        from ctrpipe.serving.client import RestClient  # lazy: 0.3 s

        path = f"/v1/models/{urllib.parse.quote(model, safe='')}"
        return stack.enter_context(RestClient(url.rstrip("/").removesuffix(path) + path)), None
    return None, None


def _show(config: "ModelConfig", client: "ModelClient | None") -> None:
    states = {one.version: one.state for one in client.status()} if client else {}
    for name, version in sorted(config.version_labels.items()):
        state = f"\t{states.get(version, 'not known')}" if client else ""
        click.echo(f"{name}\t{version}{state}")
    if not config.version_labels:
        click.echo("no labels")
    click.echo(f"policy: {_policy(config)}")


def _policy(config: "ModelConfig") -> str:
    policy = config.model_version_policy
    if policy.HasField("specific"):
        return f"specific versions {', '.join(map(str, policy.specific.versions))}"
    return "all versions" if policy.HasField("all") else f"the latest {max(policy.latest.num_versions, 1)}"


def _in_words(config: "ModelConfig") -> str:
    labels = " ".join(f"{name}={version}" for name, version in sorted(config.version_labels.items()))
    return f"{labels or 'no labels'}, {_policy(config)}"
