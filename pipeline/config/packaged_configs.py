"""The configurations that come with ctrpipe: the folder configs/ of the package, in a checkout a link."""

import pathlib
import shutil

_FOLDER = pathlib.Path(__file__).parents[2] / "configs"


def configs_folder() -> pathlib.Path:
    """Returns the folder with the configurations; `sweeps/` in it has those of `ctrpipe sweep`."""
    return _FOLDER.resolve()  # the path that a user knows, not a link to it


def config_names() -> list[str]:
    """Returns the configurations' paths in the folder, sorted, without those that others only extend (_base.yaml)."""
    return [name for name in _file_names() if not pathlib.Path(name).name.startswith("_")]


def find_config(path: pathlib.Path) -> pathlib.Path:
    """Returns a configuration's path; where there is no such file, that of the one so named that comes with ctrpipe.

    Example:
        >>> find_config(pathlib.Path("criteo/deepfm.yaml"))
        PosixPath('/.../ctrpipe/configs/criteo/deepfm.yaml')
    """
    packaged = configs_folder() / path
    return packaged if not path.exists() and packaged.is_file() else path


def copy_configs(output: pathlib.Path) -> None:
    """Copies all files into a folder; a file that is there already, edited perhaps, stays as it is."""
    for name in _file_names():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            shutil.copyfile(configs_folder() / name, path)


def _file_names() -> list[str]:
    folder = configs_folder()
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.yaml"))
