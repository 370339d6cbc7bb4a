"""The models to serve: reads, checks and interprets ModelServerConfig (contract V2, V6)."""

import logging
import os
import pathlib
from collections.abc import Collection

from tensorflow_serving.config import model_server_config_pb2

from ctrpipe.common.store_folders import local_copy
from ctrpipe.common.stores import UnreachableError, is_url, local_path
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.versions import Policy
from ctrpipe.serving.stored import split_version
from ctrpipe.serving.text_proto import read_text_proto

log = logging.getLogger(__name__)
PLATFORM = "tensorflow"


def read_model_config(file: pathlib.Path | str) -> model_server_config_pb2.ModelServerConfig:
    """Reads --model_config_file. For a URL whose store does not answer, reads the last copy of it, if there is one.

    Raises InputError like `read_text_proto`.
    """
    config = model_server_config_pb2.ModelServerConfig()
    try:
        read_text_proto(file, config)
    except UnreachableError as error:
        copy = local_copy(str(file))
        if not copy.exists():
            raise
        log.warning("The store is away: the model config file is read as it was copied before: %s", error)
        read_text_proto(copy, config)
    return config


def single_model(name: str, base_path: pathlib.Path | str) -> model_server_config_pb2.ModelServerConfig:
    """Returns the config of a single model.

    For a folder of versions, the policy is the default one. A version's own folder serves that version only.

    Raises InputError like `split_version`.
    """
    config = model_server_config_pb2.ModelServerConfig()
    folder, number = split_version(base_path)
    base = str(folder) if is_url(folder) else str(pathlib.Path(folder).absolute())
    model = config.model_config_list.config.add(name=name, base_path=base, model_platform=PLATFORM)
    if number is not None:
        model.model_version_policy.specific.versions.append(number)
    return config


def check_list(config: model_server_config_pb2.ModelServerConfig) -> None:
    """Checks the names and the folders of a config as TF Serving does (server_core.cc, ValidateModelConfigList).

    Raises:
        ServingError: a model is listed twice or has a relative base path, or the config is not a list of models.
    """
    if config.WhichOneof("config") == "custom_model_config":
        raise bad_request("ModelServer does not yet support custom model config.")
    seen = set()
    for model in config.model_config_list.config:
        if model.name in seen:
            raise bad_request(f"Illegal to list model {model.name} multiple times in config list")
        seen.add(model.name)
    for model in config.model_config_list.config:
        if not model.base_path.startswith(("/", "file://")) and not is_url(model.base_path):
            raise bad_request(
                f"Expected model {model.name} to have an absolute path or URI; got base_path()={model.base_path}"
            )


def check_changes(
    old: model_server_config_pb2.ModelServerConfig, new: model_server_config_pb2.ModelServerConfig
) -> None:
    """Compares a config with the previous one, which may have been refused (V6).

    Raises:
        ServingError: a model's platform changes, or is invalid in either config.
    """
    before = {model.name: _platform(model) for model in old.model_config_list.config}
    for model in new.model_config_list.config:
        if model.name not in before:
            continue
        platform = _platform(model)
        if platform != before[model.name]:
            raise bad_request(
                f"Illegal to change a model's platform. For model {model.name} platform was {before[model.name]} and "
                f"new platform requested is {platform}"
            )


def check_platforms(config: model_server_config_pb2.ModelServerConfig) -> None:
    """Checks that every model is TensorFlow's. Raises ServingError."""
    for model in config.model_config_list.config:
        platform = _platform(model)
        if platform != PLATFORM:
            raise bad_request(f"Model {model.name} requests unsupported platform {platform}")


def check_folders(config: model_server_config_pb2.ModelServerConfig, served: Collection[pathlib.Path]) -> None:
    """Refuses a config with a missing folder, because no model's new versions are polled while a folder is missing.

    `served` are the folders of already served models, which may be missing for a while.

    Raises:
        ServingError: a model's folder does not exist.
    """
    for model in config.model_config_list.config:
        path = base_path(model)
        if path not in served and not is_url(model.base_path) and not os.path.isdir(path):
            raise ServingError("NOT_FOUND", f"Could not find base path {path} for servable {model.name}")


def check_logging(config: model_server_config_pb2.ModelServerConfig) -> None:
    """Refuses a config with a request log, because tensorflow_model_server is built without one (V14).

    Raises:
        ServingError: a model has a logging_config.
    """
    if any(model.HasField("logging_config") for model in config.model_config_list.config):
        raise bad_request("No request-logger-creator provided.")


def _platform(model: model_server_config_pb2.ModelConfig) -> str:
    """Returns the platform from `model_platform`, or from the deprecated `model_type`."""
    if model.model_type and model.model_platform:
        raise bad_request(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and ModelServerConfig::model_platform, "
            f"model name is {model.name}"
        )
    if not model.model_type and not model.model_platform:
        raise bad_request(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor ModelServerConfig::model_platform, "
            f"model name is {model.name}"
        )
    if model.model_type not in (0, model_server_config_pb2.TENSORFLOW):
        raise bad_request(f"ModelServerConfig::model_type choice {model.model_type} not supported.")
    return model.model_platform or PLATFORM


def base_path(model: model_server_config_pb2.ModelConfig) -> pathlib.Path:
    """Returns the folder of a model's versions, given as a path, as file:///path, or as a store's URL.

    For a URL, returns the folder of the local copies.
    """
    return local_copy(model.base_path) if is_url(model.base_path) else local_path(model.base_path)


def policy(model: model_server_config_pb2.ModelConfig) -> Policy:
    """Returns the policy that selects the served versions of a model; the default is the latest version.

    Raises:
        ServingError: the policy `specific` names no version. TF Serving waits for one without end.
    """
    choice = model.model_version_policy
    kind = choice.WhichOneof("policy_choice")
    if kind == "all":
        return Policy(all=True)
    if kind == "specific":
        if not choice.specific.versions:
            raise ServingError("INVALID_ARGUMENT", f"Model {model.name}: policy specific names no version")
        return Policy(specific=frozenset(choice.specific.versions))
    return Policy(latest=choice.latest.num_versions or 1)
