"""Runs the notebooks of examples/ in a kernel, and saves their outputs in them.

    python -m tests.notebooks             # all of them, after a change to what they show
    python -m tests.notebooks first_model

The site shows the notebooks with the outputs that are committed, so that building it takes no training.
"""

import pathlib
import sys
import tempfile
from unittest import mock

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
METADATA = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
SECONDS = 600  # for a cell, and for the kernel to start, on a busy machine


def read(path: pathlib.Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def run(notebook: NotebookNode, folder: pathlib.Path) -> NotebookNode:
    """Runs a notebook in a folder, and returns it with the outputs of its cells.

    A cell with the tag `raises-exception` may fail, and another one that does so ends the run.
    """
    settings = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / ".ipython"), "JUPYTER_PREFER_ENV_PATH": "1"}
    place = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        notebook, timeout=SECONDS, startup_timeout=SECONDS, kernel_name=KERNEL["name"], resources=place
    )
    with mock.patch.dict("os.environ", settings):
        client.execute()
    return cleaned(notebook)


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Returns the notebook without parts that vary between runs or machines: ids, times and versions."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = NotebookNode({"tags": cell.metadata.tags} if "tags" in cell.metadata else {})
        for output in cell.get("outputs", []):
            output.pop("transient", None)
    return notebook


def main(names: list[str]) -> None:
    for path in NOTEBOOKS:
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(run(read(path), pathlib.Path(folder)), path)


if __name__ == "__main__":
    main(sys.argv[1:])
