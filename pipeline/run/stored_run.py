"""A run whose output folder is a URL: it works in the folder's copy here, and writes to the store at its end.

TFX's database and the cache of a run need a disk, so they stay on this machine, where an interrupted run goes on.
"""

import contextlib
import json
import pathlib
from collections.abc import Iterator

from ctrpipe.common import stores
from ctrpipe.common.output_folder import path_in
from ctrpipe.common.progress import announce
from ctrpipe.common.store_folders import local_copy, one_writer, upload
from ctrpipe.pipeline.run.trained_model import KEPT_BY_VERSION, LINEAGE
from ctrpipe.serving.stored import fetch_newest, push_version

_FOLDERS = ("report_data", "dead_letter", KEPT_BY_VERSION)


def output_of_run(output: pathlib.Path | str, model_name: str) -> contextlib.AbstractContextManager[pathlib.Path]:
    """Returns a block that yields the folder to run in: the output itself, or for a URL see `stored_output`."""
    if stores.is_url(output):
        return stored_output(str(output), model_name)
    return contextlib.nullcontext(stores.local_path(str(output)))


@contextlib.contextmanager
def stored_output(url: str, model_name: str) -> Iterator[pathlib.Path]:
    """Yields the folder to run in, and writes the run's results to the store when the block succeeds.

    The newest version in the store is fetched before, for the gates to compare with. A version that the run pushed
    appears whole, and is there before the rest of the run.

    Args:
        url: The URL of the run's folder.
        model_name: The name of the run's model.

    Raises:
        StoreError: another run writes there, or the store refuses a request or does not answer.
    """
    folder, url = local_copy(url), url.rstrip("/")
    base = stores.join(url, "models", model_name)
    with one_writer(url):
        fetch_newest(base, folder / "models" / model_name)
        yield folder
        announce(f"Writing the run to {url}")
        metrics = json.loads((folder / "metrics.json").read_text())
        if metrics["model_version"]:
            push_version(folder / "models" / model_name / metrics["model_version"], base)
        upload(folder, url, _names(folder))


def _names(folder: pathlib.Path) -> list[str]:
    """Returns the files of a run that its readers need: results, report, malformed rows, and the trained model."""
    trained = path_in(folder, pathlib.Path(json.loads((folder / LINEAGE).read_text())["model"]))
    found = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    for below in (*(folder / name for name in _FOLDERS), trained):
        if below.is_relative_to(folder):
            found += [path for path in below.rglob("*") if path.is_file()]
    return [path.relative_to(folder).as_posix() for path in found]
