"""Adds the notebooks of examples/ to the site as pages, with the outputs that are saved in them."""

import pathlib
import re
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

_ROOT = pathlib.Path(__file__).parents[1]
_PLACE = "notebooks"  # folder of the pages in the site
_LINK = re.compile(r"\]\((\w+)\.ipynb\)")  # to another notebook
_NOTEBOOK = re.compile(r"\]\((?:\.\./)+examples/(\w+)\.ipynb\)")  # from another page
_SCOPED_STYLE = re.compile(r"<style scoped>.*?</style>\s*", re.S)


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Returns the files of the site with a page per notebook, and the pictures of its outputs."""
    for path in sorted((_ROOT / "examples").glob("*.ipynb")):
        text, pictures = page(path)
        files.append(File.generated(config, f"{_PLACE}/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"{_PLACE}/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the text of a page with links to notebooks, which lead to files of the repository, to their pages."""
    return _NOTEBOOK.sub(rf"]({'../' * page.file.src_uri.count('/')}{_PLACE}/\1.md)", markdown)


def page(path: pathlib.Path) -> tuple[str, dict[str, bytes]]:
    """Returns a notebook as Markdown, and the pictures that it names, by file name.

    The tables of pandas get the look of the site's tables. Links lead to the pages of the site.
    """
    notebook = nbformat.read(path, as_version=4)
    text, resources = MarkdownExporter().from_notebook_node(notebook, {"unique_key": path.stem})
    text = _SCOPED_STYLE.sub("", text).replace('<table border="1" class="dataframe">', "<table>")
    text = text.replace("![png](", "![The picture that the cell shows](")
    text = _LINK.sub(r"](\1.md)", text).replace("](../docs/", "](../")
    return text, dict(resources.get("outputs", {}))
