"""Clients of TF Serving, over REST and gRPC. GrpcClient has its own import: it loads TensorFlow."""

from serving.client.columns import Inputs
from serving.client.label_split import LabelSplit
from serving.client.model_client import Answer, ModelClient, VersionStatus
from serving.client.rest_client import RestClient

__all__ = ["Answer", "Inputs", "LabelSplit", "ModelClient", "RestClient", "VersionStatus"]
