"""The notebooks of examples/ run in a kernel, and what is saved in them is what they show."""

import base64
import re
import runpy

import nbformat
import pytest

from tests import notebooks
from tests.notebooks import NOTEBOOKS, read

EXPECTED = {"first_model", "compare_models", "histories"}
PLACE = re.compile(r"(?<![\w.:/<])/(?:root|home|tmp|work|usr|var|opt|Users)/")


def shown(notebook) -> list[tuple[int, str, tuple[str, ...]]]:
    """What each output is: the cell, the type of output, and its forms."""
    return [
        (number, output.output_type, tuple(sorted(output.get("data", {}))))
        for number, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", [])
    ]


def texts(notebook) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    parts = [output.get("text", "") for output in outputs]
    parts += ["\n".join(output.get("traceback", [])) for output in outputs]
    parts += [text for output in outputs for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return "\n".join(parts)


def test_the_notebooks_are_there():
    assert {path.stem for path in NOTEBOOKS} == EXPECTED


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_saved_is_whole_and_tells_nothing_of_the_machine(path):
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert notebook.metadata == notebooks.METADATA
    assert PLACE.findall(texts(notebook)) == []
    for cell in code:
        errors = [output for output in cell.outputs if output.output_type == "error"]
        assert len(errors) == ("raises-exception" in cell.metadata.get("tags", []))
        assert all(len(output.traceback) == 1 and output.ename == "InputError" for output in errors)
        assert not [output for output in cell.outputs if output.output_type == "stream" and output.name == "stderr"]
    assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_code_fits_the_column_of_the_site(path):
    """A longer line is cut at 1,400 pixels, as in the pages: see test_documents.py."""
    lines = [line for cell in read(path).cells if cell.cell_type == "code" for line in cell.source.splitlines()]
    assert lines and [line for line in lines if len(line) > 100] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_site_has_a_page_of_it_with_its_pictures(path):
    text, pictures = runpy.run_path(str(notebooks.ROOT / "docs" / "site_notebooks.py"))["page"](path)
    images = [
        output
        for cell in read(path).cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert re.findall(r"!\[The picture that the cell shows\]\((.*?)\)", text) == list(pictures)
    assert list(pictures.values()) == [base64.b64decode(image.data["image/png"]) for image in images] != []
    assert text.startswith("# ") and "```python" in text
    assert not re.search(r"<style|class=\"dataframe\"|\.ipynb\)|\]\(\.\./docs/", text)
    assert f"{path.stem}.md" in (notebooks.ROOT / "mkdocs.yml").read_text()


def test_a_kernel_shows_a_bar_a_table_and_a_mistake_as_one_line(tmp_path):
    cells = [
        "import pandas, ctrpipe\nfrom ctrpipe.bar import with_bar\nfrom ctrpipe.common.progress import announce",
        "@with_bar\ndef train():\n    for n in range(3): announce(f'step {n}', steps=(n, 3))\n    return 1\ntrain()",
        "ctrpipe.init(pandas.DataFrame({'click': [0, 1] * 50, 'device': list('abcde') * 20}))",
        "ctrpipe.init([])",
    ]
    given = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    given.cells[-1].metadata.tags = ["raises-exception"]
    _, bar, table, mistake = (cell.outputs for cell in notebooks.run(given, tmp_path).cells)
    assert [output.output_type for output in bar] == ["display_data", "execute_result"]
    assert "ctrpipe.train: done in" in bar[0].data["text/html"] and "step 2" in bar[0].data["text/plain"]
    assert "<pre style='white-space: pre-wrap'>" in bar[0].data["text/html"]  # long lines fit a phone
    assert [output.output_type for output in table] == ["execute_result"]
    assert "<td>device</td><td>categorical</td>" in table[0].data["text/html"]
    [error] = mistake
    assert error.traceback == [
        "InputError: data: an empty list; give at least one file, or check the pattern that found none"
    ]


# Minutes on a busy machine; what they call has tests in tests/ctrpipe.
@pytest.mark.large(like="tests/test_notebooks.py::test_a_kernel_shows_a_bar_a_table_and_a_mistake_as_one_line")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_saved_in_it(path, tmp_path):
    saved = read(path)
    assert shown(notebooks.run(read(path), tmp_path)) == shown(saved)
