"""A local stand-in for tensorflow_model_server."""

from serving.server.options import ServerOptions
from serving.server.run import Addresses, running_server, serve

__all__ = ["Addresses", "ServerOptions", "running_server", "serve"]
