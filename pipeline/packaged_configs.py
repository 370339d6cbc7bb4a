"""The configurations that come with ctrpipe: the folder configs/ of a checkout, or what a wheel has of it."""

import pathlib
import shutil

_ROOT = pathlib.Path(__file__).parents[1]


def configs_folder() -> pathlib.Path:
    """Returns the folder with the configurations; `sweeps/` in it has those of `ctrpipe sweep`."""
    packaged = _ROOT / "ctrpipe" / "configs"
    return packaged if packaged.is_dir() else _ROOT / "configs"


def config_names() -> list[str]:
    """Returns the configurations' paths in the folder, sorted, without those that others only extend (_base.yaml)."""
    return [name for name in _file_names() if not pathlib.Path(name).name.startswith("_")]


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
