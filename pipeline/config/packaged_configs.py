"""The configurations packaged with ctrpipe: the package's folder configs/, which is a link in a checkout."""

import pathlib
import shutil

from ctrpipe.common.near import nearest_name

_ALIKE = 0.85  # similarity of two names: any two paths have .yaml in common
_FOLDER = pathlib.Path(__file__).parents[2] / "configs"


def configs_folder() -> pathlib.Path:
    """Returns the folder of the configurations. Its subfolder `sweeps/` is for `ctrpipe sweep`."""
    return _FOLDER.resolve()  # the path that a user knows, not a link to it


def config_names() -> list[str]:
    """Returns the configurations' relative paths, sorted, without base files that others extend (_base.yaml)."""
    return [name for name in _file_names() if not pathlib.Path(name).name.startswith("_")]


def find_config(path: pathlib.Path) -> pathlib.Path:
    """Returns a configuration's path: the file itself if it exists, otherwise the packaged configuration of that
    name, which may begin with `configs/`, as the files are named in the documents and in a checkout.

    Example:
        >>> find_config(pathlib.Path("criteo/deepfm.yaml"))
        PosixPath('/.../ctrpipe/configs/criteo/deepfm.yaml')
    """
    return path if path.exists() else packaged_config(path) or path


def packaged_config(path: pathlib.Path) -> pathlib.Path | None:
    """Returns the packaged configuration of a name such as `criteo/deepfm.yaml` or `configs/criteo/deepfm.yaml`."""
    name = path.relative_to(_FOLDER.name) if path.parts[:1] == (_FOLDER.name,) else path
    packaged = configs_folder() / name
    return packaged if packaged.is_file() else None


def config_hint(path: pathlib.Path) -> str:
    """Returns advice for a missing configuration: the nearest packaged name, or to check the path."""
    near = nearest_name(str(path).removeprefix(f"{_FOLDER.name}/"), config_names(), _ALIKE)
    return f"; did you mean {near}?" if near else "; check the path, or see `ctrpipe configs`"


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
