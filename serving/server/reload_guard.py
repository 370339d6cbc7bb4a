"""Decides which HandleReloadConfigRequest is allowed: a SavedModel is code, and the port has no authentication.

TensorFlow Serving lets any client load any folder. Here requests from other machines need a flag, and another flag
names the folders below which new ones may lie.
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
        options: Where the server listens, --allow_reload_from_network and --allowed_model_roots.
    """

    def __init__(self, options: ServerOptions):
        self._is_local = not options.port or is_loopback(options.host)
        self._from_network = options.allow_reload_from_network
        self._roots = [pathlib.Path(root).resolve() for root in options.allowed_model_roots.split(",") if root]

    def check(self, config: model_server_config_pb2.ModelServerConfig, served: Collection[pathlib.Path]) -> None:
        """Checks that the folders of a config are served already or lie below the roots; symbolic links are followed.

        Where only this machine reaches the port, and there are no roots, every folder may be loaded.

        Raises:
            ServingError: PERMISSION_DENIED, a folder or the request itself is not allowed.
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
    """Returns whether only this machine reaches what listens on the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, of which only the resolver knows
        return False


def _denied(message: str) -> ServingError:
    return ServingError("PERMISSION_DENIED", message)
