"""Clients of TF Serving over REST and gRPC.

GrpcClient is imported on first use, because it loads TensorFlow.
"""

from typing import TYPE_CHECKING, Any

from ctrpipe.serving.client.columns import Inputs
from ctrpipe.serving.client.label_split import LabelSplit
from ctrpipe.serving.client.model_client import Answer, ModelClient, VersionStatus
from ctrpipe.serving.client.rest_client import RestClient

if TYPE_CHECKING:
    from ctrpipe.serving.client.grpc_client import GrpcClient

__all__ = ["Answer", "GrpcClient", "Inputs", "LabelSplit", "ModelClient", "RestClient", "VersionStatus"]


def __getattr__(name: str) -> Any:
    if name != "GrpcClient":
        raise AttributeError(f"module 'ctrpipe.serving.client' has no attribute {name!r}")
    # Lazy: TensorFlow takes 4 s, and REST clients do not need it.
    from ctrpipe.serving.client.grpc_client import GrpcClient

    return GrpcClient
