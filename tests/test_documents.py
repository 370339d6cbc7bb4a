"""Every command that README.md and docs/ show works: it is run on small logs, or parsed where it cannot be run here.

A fenced block of `sh` is run as it stands, page after page, in one folder. An HTML comment before a block may say
`<!-- not run: why -->`, or `<!-- setup: commands -->`, which come before the block and which a reader does not see.
"""

import contextlib
import multiprocessing
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import click
import httpx
import pytest
import yaml
from _pytest.mark import ParameterSet

from ctrpipe.common import exit_codes
from ctrpipe.common.packages import PARTS
from ctrpipe.models.base.registry import available
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config import check_config, load_config, read_yaml
from ctrpipe.pipeline.sweep.plan import make_plan
from tests import quick_work
from tests.contract.servers import free_port
from tests.e2e.small_run import call
from tests.small_config import SMALL as SMALL_CONFIG
from tests.small_config import joined
from tests.warm_processes import start_warm

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- (?P<kind>not run|setup): (?P<note>.*?) -->\n)?^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^ *```$",
    re.M | re.S,
)
# A page's own settings would train for minutes: these train a few steps, and let no gate stop what comes after.
SMALL = "--set training.epochs=1 --set 'gates={rig: null}' --set evaluation.baseline=null"
LINEAR = " --set 'model={name: lr}'"  # test_draft.py trains the model of a draft


def blocks(page: str, language: str) -> list[tuple[str, str, str]]:
    """The page's blocks of a language: each as its comment's kind and text, and its own text."""
    found = BLOCK.finditer((ROOT / page).read_text())
    return [(b["kind"] or "", b["note"] or "", b["text"]) for b in found if b["language"] == language]


def commands(text: str) -> list[list[str]]:
    """The words of each command line of a block, without comments and without variables set before it."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def in_shell(script: str, folder: pathlib.Path) -> None:
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def in_one_process(process: ProcessPoolExecutor, command: str) -> None:
    """Runs a `ctrpipe` in the process that runs them all, and has imported what they need.

    A model that a gate blocks, or a log unlike another, is no failure of a document.
    """
    _, name, *arguments = shlex.split(command, comments=True)
    code, output = process.submit(call, name, *arguments).result()
    assert code in ((0, 1) if name in ("run", "drift") else (0,)), f"{command}\n{output}"
    assert "Traceback" not in output, output


@contextlib.contextmanager
def served(command: str, folder: pathlib.Path) -> Iterator[None]:
    """Runs a `ctrpipe serve` in the background until the block's end."""
    port = re.search(r"--rest_api_port[= ](\d+)", command)
    assert port, f"{command}: a served block names --rest_api_port"
    own_ports = [*shlex.split(command)[1:], f"--port={free_port()}"]  # of gRPC; other tests serve beside
    process = start_warm(*own_ports, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not _answers(f"http://127.0.0.1:{port[1]}/v1/models/ctr"):
            assert process.poll() is None and time.monotonic() < deadline, f"{command}: no answer"
            time.sleep(0.2)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("documents")


@pytest.fixture(scope="module")
def process(empty_folder) -> Iterator[ProcessPoolExecutor]:
    """Runs commands in the folder; not this process, which would keep the memory of all of them."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawned, initializer=_begin, initargs=(empty_folder,)) as found:
        yield found


def _begin(folder: pathlib.Path) -> None:
    os.chdir(folder)
    quick_work.leave_out()


@pytest.fixture(scope="module")
def folder(empty_folder, process) -> pathlib.Path:
    """Where all pages' commands run: a folder outside the checkout with small logs. `configs/` is the package's."""
    in_one_process(process, "ctrpipe generate --rows 3000 --output train.tsv")
    in_one_process(process, "ctrpipe generate --rows 200 --seed 7 --output test.tsv")
    return empty_folder


@pytest.fixture(scope="module")
def with_runs(folder, process) -> pathlib.Path:
    """The folder with two runs to compare, for pages whose commands name them."""
    for model, name in {"attention_net": "mine", "lr": "other"}.items():
        run = f"ctrpipe run configs/criteo/{model}.yaml --data train.tsv --output runs/{name} {SMALL}"
        in_one_process(process, run)
    return folder


def runnable() -> list[ParameterSet]:
    """The pages whose commands run: in `make test` the README, in `make test-all` all of them."""
    pages = [page for page in PAGES if any(kind != "not run" for kind, _, _ in blocks(page, "sh"))]
    return [pytest.param(page, marks=[] if page == "README.md" else [pytest.mark.large]) for page in pages]


@pytest.fixture
def clean_folder(page, folder, request) -> Iterator[pathlib.Path]:
    """The folder, from which the page's own results go afterwards: several pages show the same command."""
    if any(run in note + text for _, note, text in blocks(page, "sh") for run in ("runs/mine", "runs/other")):
        request.getfixturevalue("with_runs")
    before = set(folder.iterdir())
    yield folder
    for path in set(folder.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable())
def test_the_commands_of_a_page_run(page, clean_folder, process):
    has_curl, left_out = shutil.which("curl"), []
    for kind, note, text in blocks(page, "sh"):
        if kind == "not run":
            continue
        if kind == "setup":
            in_shell(note, clean_folder)
        port = str(free_port())  # other tests serve at the same time
        with contextlib.ExitStack() as servers:
            for line in text.replace("\\\n", " ").replace("8501", port).splitlines():
                command = line.split("  #")[0].strip()
                if command.startswith("ctrpipe serve"):
                    servers.enter_context(served(command, clean_folder))
                elif command.startswith("ctrpipe ") and " > " not in command:
                    command = command.replace("--rows 20000 ", "--rows 3000 ")  # enough to check, train and serve
                    trains = re.match(r"ctrpipe (run|sweep) ", command)
                    small = f"{command} {SMALL}{LINEAR if page == 'README.md' else ''}"
                    in_one_process(process, small if trains else command)
                elif command.startswith("curl ") and not has_curl:
                    left_out.append(command)
                elif command and not command.startswith(("#", "export PATH")):
                    in_shell(command, clean_folder)
    if left_out:
        pytest.skip(f"all else ran; without curl these did not: {left_out}")


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_shown_exist_with_these_options(page):
    for _, _, text in blocks(page, "sh"):
        for words in commands(text):
            while words and ("=" in words[0] or words[0] in ("env", "export")):
                words = words[1:]
            if words[:1] == ["ctrpipe"]:
                _parse(words[1:])
            elif words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), words


def _parse(arguments: list[str]) -> None:
    """Fails where a command or one of its options does not exist."""
    group: click.Command = main
    settings = main.context_settings  # a command keeps the names of its option of help from where it is asked first
    while isinstance(group, click.Group):
        name, *arguments = arguments
        command = group.get_command(click.Context(group, **settings), name)
        assert command, f"ctrpipe {name}: no such command"
        group = command
    context = click.Context(group, **settings, ignore_unknown_options=False, resilient_parsing=True)
    if group.name != "serve":  # takes TF Serving's flags, which its own tests parse
        group.make_parser(context).parse_args([word for word in arguments if not word.startswith("$")])


# One names commands of earlier versions, and one adds a command.
OWN_COMMANDS = ("docs/troubleshooting.md", "docs/how-to/add-a-command.md")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OWN_COMMANDS])
def test_commands_within_a_sentence_exist(page):
    group = click.Context(main)
    named = set(re.findall(r"`ctrpipe ([a-z][a-z-]*)", (ROOT / page).read_text()))
    assert [name for name in named if not main.get_command(group, name)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")])
def test_configurations_that_are_shown_are_valid(page, tmp_path):
    for number, (_, _, text) in enumerate(blocks(page, "yaml")):
        values = read_yaml(text)
        if {"points", "extends"} & values.keys():  # they name a file of configs/
            shutil.copytree(ROOT / "configs", tmp_path / "configs", dirs_exist_ok=True)
        if "extends" in values:
            path = tmp_path / f"shown-{number}.yaml"
            path.write_text(text)
            load_config(path)
        elif "points" in values:
            path = tmp_path / "configs" / "sweeps" / f"shown-{number}.yaml"
            path.write_text(text)
            assert len(make_plan(path).points) >= len(values["points"])
        else:
            is_whole = {"name", "data", "features", "model"} <= set(values)
            check_config(values if is_whole else joined(SMALL_CONFIG, values), (), page)


# Pages that a generator prints, or that quote a log's values, and the page of results.
RESULTS = "docs/measured.md"
GENERATED = ("docs/configuration.md", "docs/troubleshooting.md")
BESIDE_THE_FILES = ["kubeflow/README.md", "serving/deploy/README.md"]
OF_USE = [page for page in PAGES if page not in (RESULTS, *GENERATED)] + BESIDE_THE_FILES


def prose(page: str) -> str:
    """A page without its blocks of code, code spans, comments and the targets of its links."""
    text = re.sub(r"^ *```.*?^ *```$|<!--.*?-->|`[^`\n]*`", "", (ROOT / page).read_text(), flags=re.M | re.S)
    return re.sub(r"\]\([^)]*\)", "]", text)


@pytest.mark.parametrize("page", OF_USE)
def test_dates_and_bars_are_in_the_page_of_results_alone(page):
    assert re.findall(r"\b20\d\d-\d\d\b.*|: (?:met|missed)\b.*|[Nn]ot tried.*", prose(page)) == []


@pytest.mark.parametrize("page", OF_USE)
def test_no_page_says_that_something_is_not_there_yet(page):
    """Such a sentence goes stale unnoticed: one said that equations had no code, although a module had it."""
    assert re.findall(r".*\b(?:no code for|not yet|them yet|one yet)\b.*", prose(page)) == []


PATHS = re.compile(
    rf"`((?:{'|'.join((*PARTS, 'benchmarks', 'studies', 'tests', 'tools', 'kubeflow', 'docs'))})/[\w./-]+)`"
)
MADE_BY_THE_PAGE = {
    "models/fwfm.py",
    "configs/criteo/fwfm.yaml",
    "models/ctr",
}  # the guide to add a model; a run's folder


@pytest.mark.parametrize("page", PAGES)
def test_paths_and_modules_that_pages_name_exist(page):
    text = (ROOT / page).read_text()
    paths = {path.rstrip("/") for path in PATHS.findall(text)} - MADE_BY_THE_PAGE
    modules = {
        name.rstrip(".") for name in re.findall(r"python -m ((?:benchmarks|studies|tests|ctrpipe)\.[\w.]+)", text)
    }
    files = {name: ROOT / name.replace(".", "/") for name in modules}
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [name for name, path in files.items() if not path.with_suffix(".py").exists() and not path.is_dir()] == []


def test_numbers_of_models_are_those_of_the_registry():
    shown = {path: path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs" / "images").glob("*.svg")]}
    numbers = {path.name: re.findall(r"\b(\d+) models\b", text) for path, text in shown.items()}
    assert numbers == dict.fromkeys(numbers, [str(len(available()))])


def test_the_formats_of_generate_are_in_the_page_of_log_formats():
    command = main.get_command(click.Context(main), "generate")
    assert command
    [formats] = [option.type.choices for option in command.params if isinstance(option.type, click.Choice)]
    section = (ROOT / "docs" / "log-formats.md").read_text().partition("## Generated logs")[2]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == list(formats)


def test_the_exit_codes_are_those_of_the_code():
    text = (ROOT / "docs" / "run-folder.md").read_text()
    codes = {value for value in vars(exit_codes).values() if isinstance(value, int)}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.M)} == {0, *codes}


def test_pages_that_the_code_names_are_there():
    named = {}
    for folder in (*PARTS, "benchmarks", "studies", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name not in ("test_changed.py", "scann_server.py"):  # they name pages of other projects
                for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|yaml)", path.read_text()):
                    named[page] = path.relative_to(ROOT).as_posix()
    assert {page: by for page, by in named.items() if not (ROOT / page).exists()} == {} != named
    said = [path for folder in PARTS for path in (ROOT / folder).rglob("*.py") if "see the README" in path.read_text()]
    assert said == []  # a message names the page


def test_the_page_of_results_begins_with_twelve_figures_and_their_commands():
    first = (ROOT / RESULTS).read_text().partition("\n## ")[0]
    rows = re.findall(r"^\| .* \|$", first, re.M)[1:]
    assert len(rows) == 12
    assert all(re.search(r"\| \[`(?:python -m|ctrpipe) [^`]+`\]\(#[\w-]+\) \|$", row) for row in rows)


def test_pages_that_show_the_demos_table_show_the_same():
    tables = [re.findall(r"^ +8,000 test rows\n.*?┘\n", (ROOT / page).read_text(), re.M | re.S) for page in PAGES]
    shown = [table for found in tables for table in found]
    assert len(shown) >= 2 and len(set(shown)) == 1


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_a_paragraph_that_says_what_it_is_about(page):
    text = re.sub(r"<!--.*?-->\n", "", (ROOT / page).read_text(), flags=re.S)
    title, first, *_ = (part for part in text.split("\n\n") if part.strip())
    assert title.startswith("# ") and re.match(r"[A-Za-z`\[]", first.strip()), first
    assert first.rstrip().endswith((".", ":", "?")), first


def test_a_first_look_is_short():
    lines = {page: len((ROOT / page).read_text().splitlines()) for page in PAGES}
    assert lines["README.md"] <= 100 and lines["docs/tutorials/your-own-log.md"] <= 80


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED])
def test_code_fits_the_column_of_the_site(page):
    """A line of 104 characters or more is cut at 1,400 pixels. Commands and requests wrap."""
    shown = [b for b in BLOCK.finditer((ROOT / page).read_text()) if b["language"] not in ("sh", "json")]
    lines = [line[len(block["indent"]) :] for block in shown for line in block["text"].splitlines()]
    assert [line for line in lines if len(line) > 100 and not line.startswith("| `fwfm`")] == []  # a row of a table


def is_built(site: pathlib.Path) -> bool:
    """Whether `make docs`, a part of `make lint`, has built the site of the documents as they are."""
    index = site / "index.html"
    sources = [
        ROOT / "mkdocs.yml",
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*"),
        *(ROOT / "examples").glob("*.ipynb"),
    ]
    return index.exists() and all(source.stat().st_mtime < index.stat().st_mtime for source in sources)


def build_site(site: pathlib.Path, *options) -> None:
    command = [pathlib.Path(sys.executable).with_name("mkdocs"), "build", "--site-dir", site, *options]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert built.returncode == 0, built.stderr


def check_offline(site: pathlib.Path, at_least: int) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= at_least and (site / "search" / "search_index.js").exists()
    loaded = r'(?:src="|<link[^>]+(?:stylesheet|icon|preload)[^>]+href=")(https?:[^"]+)'
    assert {page.name: re.findall(loaded, page.read_text()) for page in pages} == {page.name: [] for page in pages}


@pytest.mark.slow
def test_pages_need_no_network(tmp_path):
    """The whole site where `make docs` has built it. Otherwise two pages with its settings, theme and hooks."""
    if is_built(site := ROOT / "build" / "site"):
        check_offline(site, len(PAGES))
    else:
        build_two_pages(site := tmp_path / "site", tmp_path / "mkdocs.yml")
        check_offline(site, 3)  # with the page of a missing address
    assert "javascripts/iframe-worker.js" in (site / "python.html").read_text()
    assert (site / "javascripts" / "iframe-worker.js").exists()


def build_two_pages(site: pathlib.Path, file: pathlib.Path) -> None:
    """Builds a page in the folder of the documents and one in a folder below it, with the settings in a file."""
    shown = ("python.md", "how-to/scoring.md")
    kept = [f"!/{name}" for name in (*shown, "stylesheets/site.css", "javascripts/iframe-worker.js")]
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    settings |= {"docs_dir": str(ROOT / "docs"), "nav": list(shown), "hooks": [str(ROOT / "docs" / "site_links.py")]}
    settings |= {"exclude_docs": "\n".join(["*.*", *kept]), "validation": {"links": {"not_found": "info"}}}
    file.write_text(yaml.safe_dump(settings))
    build_site(site, "--config-file", file)


@pytest.mark.large(like="tests/test_documents.py::test_pages_need_no_network")
def test_the_site_needs_no_network(tmp_path):
    """`make lint` builds it too, strictly."""
    build_site(tmp_path, "--strict")
    check_offline(tmp_path, len(PAGES))
