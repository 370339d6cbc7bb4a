"""Who may change what is served with HandleReloadConfigRequest: a SavedModel is code, and the port asks nobody's name.

TensorFlow Serving lets any client load any folder. Here an answer from another machine needs a flag, and new folders
lie below those that a flag names.
"""

import ipaddress
import pathlib
from collections.abc import Collection

from tensorflow_serving.config import model_server_config_pb2

from serving.server.errors import ServingError
from serving.server.model_config import base_path
from serving.server.options import ServerOptions


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
        """Lets a config pass whose folders are served already or lie below the roots; links are followed.

        On a port of this machine alone every folder may be loaded unless there are roots.

        Raises:
            ServingError: PERMISSION_DENIED.
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
