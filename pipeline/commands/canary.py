"""The command `ctrpipe canary`."""

import contextlib
import pathlib
import urllib.parse
from typing import TYPE_CHECKING

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.pipeline.commands.options import PATH, PATH_OR_URL

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow_serving.config.model_server_config_pb2 import ModelConfig, ModelServerConfig

    from ctrpipe.serving.client import ModelClient


@click.command()
@click.argument("model")
@click.argument("assignments", nargs=-1, metavar="[LABEL=VERSION]...")
@click.option(
    "--model_config_file", type=PATH_OR_URL, default=None, help="The model config file of the server, or its URL."
)
@click.option("--inference_service", type=PATH, default=None, help="Or the manifest of KServe's InferenceService.")
@click.option(
    "--share",
    type=click.IntRange(0, 100),
    default=None,
    help="With --inference_service: the canary's percentage.",
)
@click.option("--remove", multiple=True, metavar="LABEL", help="Remove a label; repeatable.")
@click.option("--rollback", is_flag=True, help="Undo the last change of this model.")
@click.option("--grpc", default=None, metavar="HOST:PORT", help="gRPC address: check versions, reload the config.")
@click.option("--url", default=None, metavar="http://HOST:PORT", help="REST address: check versions only.")
@click.option("--wait", default=60.0, show_default=True, help="Seconds to wait for the server.")
def canary(
    model: str,
    assignments: tuple[str, ...],
    model_config_file: pathlib.Path | str | None,
    inference_service: pathlib.Path | None,
    share: int | None,
    remove: tuple[str, ...],
    rollback: bool,
    grpc: str | None,
    url: str | None,
    wait: float,
) -> None:
    """Show or move the version labels of a served model.

    Clients use a label of MODEL, such as stable or canary, to select a version.

    \b
    Show the labels; load 13 and then move canary to it; undo the last change:
      ctrpipe canary ctr --model_config_file models.config
      ctrpipe canary ctr stable=12 canary=13 --model_config_file ... --grpc ...
      ctrpipe canary ctr --rollback --model_config_file ... --grpc ...

    A label moves only after its version is AVAILABLE on the server. From then on, the server keeps all versions with a
    current or previous label, and loads a newly pushed version only when a label names it.

    Without --grpc, the server must poll the file itself (--model_config_file_poll_wait_seconds).

    \b
    With KServe, before `kubectl apply -f service.yaml`; version 13 gets 10%:
      ctrpipe canary ctr stable=12 --inference_service service.yaml
      ctrpipe canary ctr canary=13 --share 10 --inference_service service.yaml
    """
    if rollback and (assignments or remove or share is not None):
        raise InputError("--rollback takes no labels: it undoes the last change")
    if inference_service and (grpc or url):
        raise InputError("--grpc and --url: KServe itself waits for a version; leave them out")
    if share is not None and not inference_service:
        raise InputError("--share: only with --inference_service; otherwise clients divide requests themselves")
    moved = _parse_assignments(assignments)
    if inference_service and not model_config_file:
        _roll_out(inference_service, model, moved, remove, share, rollback)
        return
    if inference_service or not model_config_file:
        raise InputError("give either --model_config_file or --inference_service")
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
            say(f"--rollback: {_in_words(previous)}")


def _roll_out(
    file: pathlib.Path, model: str, moved: dict[str, int], remove: tuple[str, ...], share: int | None, rollback: bool
) -> None:
    """Shows or changes the versions in the manifest of an InferenceService."""
    from ctrpipe.serving.client.inference_service import InferenceService  # lazy: YAML takes 0.1 s

    service = InferenceService(file, model)
    if rollback:
        rollout = service.roll_back()
    elif moved or remove or share is not None:
        rollout = service.move(moved, remove, share)
    else:
        rollout = service.current()
    if rollout:
        for name, version in sorted(rollout.labels.items()):
            click.echo(f"{name}\t{version}\t{rollout.share_of(name)}%")
    else:
        say("no labels: the newest version is served")
    if previous := service.previous():
        labels = (
            f"{name}={version} ({previous.share_of(name)}%)" if name == "canary" else f"{name}={version}"
            for name, version in sorted(previous.labels.items())
        )
        say(f"--rollback: {' '.join(labels)}")
    if rollback or moved or remove:
        click.echo(f"kubectl apply -f {file}")


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
    """Returns a client, and a function that reloads the server's config over gRPC; None for each if not available."""
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
        say("no labels")
    say(f"policy: {_policy(config)}")


def _policy(config: "ModelConfig") -> str:
    policy = config.model_version_policy
    if policy.HasField("specific"):
        return f"specific versions {', '.join(map(str, policy.specific.versions))}"
    return "all versions" if policy.HasField("all") else f"the latest {max(policy.latest.num_versions, 1)}"


def _in_words(config: "ModelConfig") -> str:
    labels = " ".join(f"{name}={version}" for name, version in sorted(config.version_labels.items()))
    return f"{labels or 'no labels'}, {_policy(config)}"
