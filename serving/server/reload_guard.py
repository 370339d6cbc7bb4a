"""Authorises HandleReloadConfigRequest: a SavedModel is code, and the port has no authentication.

TensorFlow Serving lets any client load any folder. This server needs a flag to allow requests from other machines.
Another flag lists the folders that may contain new models.
"""

import ipaddress
import pathlib
from collections.abc import Collection

from tensorflow_serving.config import model_server_config_pb2

from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.model_config import base_path
from ctrpipe.serving.server.options import ServerOptions


class ReloadGuard:
    """Refuses reloads that the options do not allow.

    Args:
        options: The server's address, --allow_reload_from_network and --allowed_model_roots.
    """

    def __init__(self, options: ServerOptions):
        self._is_local = not options.port or is_loopback(options.host)
        self._from_network = options.allow_reload_from_network
        self._roots = [pathlib.Path(root).resolve() for root in options.allowed_model_roots.split(",") if root]

    def check(self, config: model_server_config_pb2.ModelServerConfig, served: Collection[pathlib.Path]) -> None:
        """Checks that each folder of a config is already served or lies below a root.

        Symbolic links are followed. If only this machine reaches the port and there are no roots, any folder may be
        loaded.

        Raises:
            ServingError: PERMISSION_DENIED, because a folder or the request itself is not allowed.
        """
        if not self._is_local and not self._from_network:
            raise _denied(
                "HandleReloadConfigRequest is off, as other machines reach this port; "
                "--allow_reload_from_network turns it on"
            )
        if self._is_local and not self._roots:
            return
        known = {path.resolve() for path in served}
        for model in config.model_config_list.config:
            path = base_path(model).resolve()
            if path not in known and not any(path.is_relative_to(root) for root in self._roots):
                raise _denied(
                    f"Model {model.name}: {model.base_path} is neither served nor below a folder of "
                    "--allowed_model_roots"
                )


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach a server that listens on the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name, which only the resolver can translate
        return False


def _denied(message: str) -> ServingError:
    return ServingError("PERMISSION_DENIED", message)
