"""The data sets of the leaderboard: files and their checks, configurations of the models, published figures."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Literal

import h5py
import numpy as np
import pydantic
import yaml

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import atomic_path, link_or_copy, write_json
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import RunConfig, as_settings, load_config, read_yaml
from ctrpipe.transforms.generate.generator import generate
from ctrpipe.transforms.log.files import open_text
from ctrpipe.transforms.log.section import Section

FOLDER = pathlib.Path(__file__).parents[1] / "sets"
Split = Literal["train", "validation", "test"]
Part = Literal["log", "train", "validation", "test"]


class Generated(Section):
    """A log that `ctrpipe generate` writes: its format, rows and seed."""

    format: str
    rows: int = pydantic.Field(ge=1)
    seed: int = 1


class Published(Section):
    """The figures of a model elsewhere, on the set's test rows."""

    auc: float
    log_loss: float
    gauc: float | None = None


class LeaderboardSet(Section):
    """A data set of the leaderboard.

    Attributes:
        name: The set's name.
        source: Where its files come from.
        files: The names of the files by split, or under `log` the files of a log that the configurations split. Where
            validation and test have the same files, as in some published settings, the page says so.
        tables: By column, the HDF5 file of its pretrained vectors, with the data sets `key` and `value`.
        generate: The log to generate in place of files.
        rows: The published number of each split's rows.
        test_clicks: The published number of the test rows' clicks.
        md5: The published checksum of each file.
        configs: The models' configurations: packaged ones, or files in this one's folder. A model is named by its file.
        set: Keys of all of them, with their values.
        published_source: Where the published figures stand.
        published: The published figures of each model.
    """

    name: str = pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    source: str = ""
    files: dict[Part, list[str]] = {}
    tables: dict[str, str] = {}
    generate: Generated | None = None
    rows: dict[Split, int] = {}
    test_clicks: int | None = None
    md5: dict[str, str] = {}
    configs: list[str] = pydantic.Field(min_length=1)
    set: dict[str, object] = {}
    published_source: str = ""
    published: dict[str, Published] = {}

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "LeaderboardSet":
        of_log, of_splits = "log" in self.files, sorted(set(self.files) - {"log"})
        if (self.generate is not None) == bool(self.files):
            raise ValueError("give files or generate, one of them")
        if self.files and of_log == bool(of_splits):
            raise ValueError("files: give log, or train, validation and test")
        if of_splits and len(of_splits) < 3:
            raise ValueError("files: of train, validation and test one is missing")
        names = [pathlib.Path(one).stem for one in self.configs]
        if len(set(names)) < len(names):
            raise ValueError("configs: two files have the same name")
        if unknown := sorted(set(self.published) - set(names)):
            raise ValueError(f"published: there is no configuration of {', '.join(unknown)}")
        return self

    @property
    def chooses_by_test(self) -> bool:
        """Whether the rows to choose by are the test rows."""
        return "test" in self.files and self.files["validation"] == self.files["test"]


def known_sets() -> list[str]:
    """Returns the names of the sets that have a file here."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_set(name: str) -> tuple[LeaderboardSet, pathlib.Path]:
    """Returns a set by its name or by its own file, and the folder that its configurations are relative to.

    Raises:
        InputError: there is no such set, or its file has a mistake.
    """
    path = pathlib.Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = FOLDER / f"{name}.yaml"
        if not path.is_file():
            raise InputError(f"--set {name}: no such set; give {', '.join(known_sets())} or a file of your own")
    try:
        return LeaderboardSet.model_validate(read_yaml(path.read_text())), path.parent
    except OSError as error:
        raise InputError(f"--set {path}: cannot read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise InputError(f"--set {path}: is no valid YAML; see benchmarks/sets for examples") from error
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        text = first["msg"].removeprefix("Value error, ")
        raise InputError(
            f"--set {path}: {f'{key}: ' if key else ''}{text}; see benchmarks/sets for examples"
        ) from error


def find_files(
    chosen: LeaderboardSet, data: pathlib.Path | None, folder: pathlib.Path
) -> dict[Part, list[pathlib.Path]]:
    """Returns the set's files, by split or under `log`; a generated log is written if it is not there.

    Raises:
        InputError: a file is missing.
    """
    if chosen.generate:
        log = folder / f"log_{chosen.generate.rows}.tsv"
        if not log.exists():
            announce(f"{chosen.name}: generates {chosen.generate.rows:,} rows")
            with atomic_path(log) as unfinished:
                written = generate(chosen.generate.format, chosen.generate.rows, chosen.generate.seed, unfinished)
                written.truth_path.rename(truth_of(log))
        return {"log": [log]}
    if data is None:
        raise InputError(f"--data: give the folder with {', '.join(_names(chosen))} of {chosen.source or chosen.name}")
    by_part: dict[Part, list[pathlib.Path]] = {}
    for part, names in chosen.files.items():
        by_part[part] = [data if data.is_file() and names == [data.name] else data / name for name in names]
        if missing := [path for path in by_part[part] if not path.is_file()]:
            raise InputError(f"--data {data}: has no {missing[0].name}; the files are those of {chosen.source}")
    if chosen.chooses_by_test:  # a run takes each file for one split only
        by_part["validation"] = [
            _again(path, folder / "validation" / str(place)) for place, path in enumerate(by_part["test"])
        ]
    return by_part


def _again(path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Returns the place of a file's second link or copy in a folder, which is made once."""
    target = folder / path.name
    if not _is_made_of(target, path):
        folder.mkdir(parents=True, exist_ok=True)
        link_or_copy(path, target)
        if not target.samefile(path):
            _date_as(target, path)
    return target


def _is_made_of(target: pathlib.Path, source: pathlib.Path) -> bool:
    """Returns whether a file was made of the source as it is now, whose time it then has.

    A file that replaces the source may be older, as one of an archive is.
    """
    return target.exists() and target.stat().st_mtime_ns == source.stat().st_mtime_ns


def _date_as(target: pathlib.Path, source: pathlib.Path) -> None:
    state = source.stat()
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))


def find_tables(chosen: LeaderboardSet, data: pathlib.Path | None, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns each column's file of pretrained vectors, converted once from HDF5 to the .npz file that a run reads.

    Raises:
        InputError: a file is missing, or has no vectors.
    """
    tables = {}
    for column, name in chosen.tables.items():
        source = (data or folder) / name
        if not source.is_file():
            raise InputError(f"--data {data}: has no {name}; the files are those of {chosen.source}")
        tables[column] = (folder / name).with_suffix(".npz")
        if not _is_made_of(tables[column], source):
            announce(f"{name}: is converted")
            with atomic_path(tables[column]) as unfinished, open(unfinished, "wb") as target:
                np.savez(target, **_arrays_of(source))
            _date_as(tables[column], source)
    return tables


def _arrays_of(source: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the data sets `key` and `value` of an HDF5 file. Raises InputError if it has none."""
    try:
        with h5py.File(source) as file:
            return {name: file[name][:] for name in ("key", "value")}
    except (OSError, KeyError) as error:
        reason = one_line(error, 200)
        raise InputError(f"{source}: no vectors in HDF5 by key and value ({reason}); fetch it again") from error


def truth_of(log: pathlib.Path) -> pathlib.Path:
    """Returns the file with the true probabilities of a generated log."""
    return log.with_name(log.name + ".truth.parquet")


def check_files(chosen: LeaderboardSet, files: Mapping[Part, list[pathlib.Path]], kept: pathlib.Path) -> None:
    """Checks that the files have the published checksums, each file once: `kept` remembers them.

    Raises:
        InputError: a file is not the published one.
    """
    known = json.loads(kept.read_text()) if kept.exists() else {}
    for path in (path for paths in files.values() for path in paths if path.name in chosen.md5):
        state = path.stat()
        identity = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"
        if identity not in known:
            announce(f"{path.name}: computes the checksum")
            with open(path, "rb") as file:
                known[identity] = hashlib.file_digest(file, "md5").hexdigest()
            write_json(kept, known)
        if known[identity] != chosen.md5[path.name]:
            raise InputError(
                f"{path}: not the published file of {chosen.name}, its md5 is {known[identity]}, not "
                f"{chosen.md5[path.name]}; fetch it again, or give --sample to train on other rows"
            )


def first_rows(
    files: Mapping[Part, list[pathlib.Path]], rows: int, header: bool, folder: pathlib.Path
) -> dict[Part, list[pathlib.Path]]:
    """Writes the first rows of each text file into a folder, once, and returns the new files.

    Args:
        files: The files by split, plain or compressed text with a row a line.
        rows: The number of rows of each file.
        header: Whether the first line of each file is a header.
        folder: The folder.
    """
    by_part: dict[Part, list[pathlib.Path]] = {}
    for part, paths in files.items():
        places = (folder / f"first_{rows}" / part / str(place) for place in range(len(paths)))
        by_part[part] = [place / path.name.removesuffix(".gz") for place, path in zip(places, paths, strict=True)]
        for path, target in zip(paths, by_part[part], strict=True):
            if _is_made_of(target, path):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_text(str(path)) as text, atomic_path(target) as unfinished, open(unfinished, "wb") as file:
                file.writelines(line for _, line in zip(range(rows + header), text, strict=False))
            _date_as(target, path)
    return by_part


@dataclasses.dataclass(frozen=True)
class Contender:
    """A model of the leaderboard: its name, its configuration's file, and settings that override its keys."""

    name: str
    path: pathlib.Path
    settings: tuple[str, ...]

    def config(self) -> RunConfig:
        """Returns the configuration. Raises InputError if it has a mistake."""
        return load_config(self.path, self.settings)


def contenders(
    chosen: LeaderboardSet,
    beside: pathlib.Path,
    files: Mapping[Part, list[pathlib.Path]],
    keys: Sequence[str] = (),
    tables: Mapping[str, pathlib.Path] | None = None,
) -> dict[str, Contender]:
    """Returns the set's models by name, with the set's files and settings, and with further settings KEY=VALUE.

    Args:
        chosen: The set.
        beside: The folder that the configurations are relative to.
        files: The files by split, or under `log`.
        keys: Further settings.
        tables: The file of pretrained vectors by column, in place of the configurations' own.

    Raises:
        InputError: a column with a file of vectors has no `pretrained` in a configuration.
    """
    settings = (*as_settings(chosen.set), *keys, *as_settings(_places(files)))
    by_name = {}
    for one in chosen.configs:
        own = beside / one
        name = pathlib.Path(one).stem
        path = own if own.is_file() else pathlib.Path(one)
        by_name[name] = Contender(name, path, (*_with_tables(path, tables or {}), *settings))
    return by_name


def _with_tables(path: pathlib.Path, tables: Mapping[str, pathlib.Path]) -> tuple[str, ...]:
    """Returns the setting of a configuration's features that places the files of pretrained vectors."""
    if not tables:
        return ()
    features = [one.model_dump(mode="json", exclude_unset=True) for one in load_config(path).features]
    with_vectors = {column: one["pretrained"] for one in features if "pretrained" in one for column in one["columns"]}
    for column, table in tables.items():
        if column not in with_vectors:
            raise InputError(f"{path}: {column} has no pretrained vectors, which the set's tables has; add pretrained")
        with_vectors[column]["path"] = str(table.resolve())
    return as_settings({"features": features})


def _places(files: Mapping[Part, list[pathlib.Path]]) -> dict[str, object]:
    """Returns the keys of a configuration that place the files."""
    paths = {part: [str(path.resolve()) for path in of_part] for part, of_part in files.items()}
    if "log" in paths:
        return {"data.paths": paths["log"]}
    held = {"validation": paths["validation"], "test": paths["test"]}
    return {"data.paths": paths["train"], "data.split": {"by": "files", "files": held}}


def _names(chosen: LeaderboardSet) -> list[str]:
    return [name for names in chosen.files.values() for name in names]
