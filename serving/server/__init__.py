"""A local stand-in for tensorflow_model_server's REST API."""

from serving.server.run import running_server, serve

__all__ = ["running_server", "serve"]
