"""A run whose output is a URL: it works in a local folder, and uploads the result at its end.

TFX's database and the cache need a local disk. They stay on this machine, where an interrupted run resumes. A run on
another machine starts from the newest version in the store.
"""

import contextlib
import json
import pathlib
import shutil
from collections.abc import Iterator

from ctrpipe.common import stores
from ctrpipe.common.files import atomic_path
from ctrpipe.common.output_folder import path_in
from ctrpipe.common.progress import announce
from ctrpipe.common.store_folders import (
    download,
    fetch_below,
    local_copy,
    one_writer,
    read_manifest,
    upload,
    work_folder,
)
from ctrpipe.pipeline.report.report import write_report
from ctrpipe.pipeline.run.trained_model import KEPT_BY_VERSION, LINEAGE, keep_by_version
from ctrpipe.serving.layout import newest_version
from ctrpipe.serving.stored import fetch_newest, push_version

_DEAD_LETTERS = "dead_letter"
_FOLDERS = ("report_data", _DEAD_LETTERS)
_HANDED_ON = "tfx/handed_on"  # folder in the store with files that a cluster's first step writes for the others


def output_of_run(output: pathlib.Path | str, model_name: str) -> contextlib.AbstractContextManager[pathlib.Path]:
    """Returns a context manager that yields the folder to run in: the output itself, or for a URL `stored_output`."""
    if stores.is_url(output):
        return stored_output(str(output), model_name)
    return contextlib.nullcontext(stores.local_path(str(output)))


@contextlib.contextmanager
def stored_output(url: str, model_name: str) -> Iterator[pathlib.Path]:
    """Yields the folder to run in, and writes the run's results to the store when the block succeeds.

    A pushed version appears in the store as a whole, before the rest of the run.

    Args:
        url: The URL of the run's folder.
        model_name: The name of the run's model.

    Raises:
        StoreError: another run writes there, or the store refuses a request or does not answer.
    """
    with one_writer(url):
        folder = with_newest(url, model_name)
        yield folder
        announce(f"Writing the run to {url}")
        trained = path_in(folder, pathlib.Path(json.loads((folder / LINEAGE).read_text())["model"]))
        if pushed := json.loads((folder / "metrics.json").read_text())["model_version"]:
            version = folder / "models" / model_name / pushed
            push_version(version, models_of(url, model_name))
            keep_by_version(trained, folder, version)
        upload_run(folder, url, trained)


def models_of(url: str, model_name: str) -> str:
    """Returns the URL of the versions that a run with this URL pushes."""
    return stores.join(url, "models", model_name)


def with_newest(url: str, model_name: str) -> pathlib.Path:
    """Downloads the newest version in the store, for the gates and for a warm start. Returns the folder to run in."""
    folder = work_folder(url)
    versions = folder / "models" / model_name
    fetch_newest(models_of(url, model_name), versions)
    if newest := newest_version(versions):
        fetch_below(stores.join(url, KEPT_BY_VERSION, newest.name), folder / KEPT_BY_VERSION / newest.name)
    return folder


def write_stored_report(url: str) -> str:
    """Rewrites the report of a finished run in a store, and returns its URL.

    Raises:
        StoreError: there is no complete run, another process writes there, or the store refuses a request or does not
            answer.
        InputError: see `write_report`.
    """
    url = url.rstrip("/")
    with one_writer(url):
        copy = local_copy(url)
        try:
            download(url, copy)
        except FileNotFoundError as error:
            raise stores.StoreError(f"{url}: no finished run here; name the --output of a `ctrpipe run`") from error
        names = {*read_manifest(url), write_report(copy).relative_to(copy).as_posix()}
        upload(copy, url, names)
    return stores.join(url, "report.html")


def push_newest(url: str, model_name: str) -> None:
    """Writes the newest version in the folder of `with_newest` to the store; does nothing if there is none."""
    newest = newest_version(work_folder(url) / "models" / model_name)
    if newest is not None:
        push_version(newest, models_of(url, model_name))


def hand_on(url: str) -> None:
    """Uploads the folder of `with_newest` without models, for steps on other machines.

    It contains what a run writes before its steps: the schema, the states of the log's files, and files made from the
    log.
    """
    folder = work_folder(url)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and name.parts[0] not in ("models", KEPT_BY_VERSION) and not name.name.startswith("."):
            stores.write_file(stores.join(url, _HANDED_ON, *name.parts), path)


def fetch_handed_on(url: str, settings: str) -> None:
    """Downloads those files of `hand_on` that a step's settings name, into the folder of `with_newest`."""
    root, folder = stores.join(url, _HANDED_ON), work_folder(url)
    for each, _ in stores.objects_below(root):
        path = folder / each.removeprefix(f"{root}/")
        if str(path) in settings and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as unfinished, unfinished.open("wb") as target, stores.open_read(each, 0) as source:
                shutil.copyfileobj(source, target, stores.BLOCK_BYTES)


def write_dead_letters(url: str) -> None:
    """Uploads the malformed rows in the folder of `with_newest`."""
    folder = work_folder(url)
    for path in sorted((folder / _DEAD_LETTERS).rglob("*")):
        if path.is_file():
            stores.write_file(stores.join(url, *path.relative_to(folder).parts), path)


def upload_run(folder: pathlib.Path, url: str, trained: pathlib.Path | None = None) -> None:
    """Uploads what the readers of a run need: results, report, malformed rows, and the trained model.

    Args:
        folder: The run's folder.
        url: The URL of the run's folder.
        trained: The artifact of the trained model, if it is in the folder.
    """
    paths = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    newest = newest_version(folder / KEPT_BY_VERSION)
    for below in (*(folder / name for name in _FOLDERS), newest, trained):
        if below is not None and below.is_relative_to(folder):
            paths += [path for path in below.rglob("*") if path.is_file()]
    upload(folder, url, [path.relative_to(folder).as_posix() for path in paths])
