"""The configurations packaged with ctrpipe: the package's folder configs/, which is a link in a checkout."""

import pathlib
import shutil

_FOLDER = pathlib.Path(__file__).parents[2] / "configs"


def configs_folder() -> pathlib.Path:
    """Returns the folder of the configurations. Its subfolder `sweeps/` is for `ctrpipe sweep`."""
    return _FOLDER.resolve()  # the path that a user knows, not a link to it


def config_names() -> list[str]:
    """Returns the configurations' relative paths, sorted. Files that others only extend (_base.yaml) are left out."""
    return [name for name in _file_names() if not pathlib.Path(name).name.startswith("_")]


def find_config(path: pathlib.Path) -> pathlib.Path:
    """Returns a configuration's path: the file itself if it exists, otherwise the packaged configuration of that
    name.

    Example:
        >>> find_config(pathlib.Path("criteo/deepfm.yaml"))
        PosixPath('/.../ctrpipe/configs/criteo/deepfm.yaml')
    """
    packaged = configs_folder() / path
    return packaged if not path.exists() and packaged.is_file() else path


def copy_configs(output: pathlib.Path) -> None:
    """Copies all configurations into a folder. Existing files are not overwritten."""
    for name in _file_names():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            shutil.copyfile(configs_folder() / name, path)


def _file_names() -> list[str]:
    folder = configs_folder()
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.yaml"))
