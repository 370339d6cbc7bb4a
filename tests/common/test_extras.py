"""Which extra a command and a feature need, and that pyproject.toml has the same extras."""

import re
import sys
import tomllib
from importlib import metadata

import click
import pytest

from ctrpipe.common import extras
from ctrpipe.common.errors import InputError
from ctrpipe.common.extras import BASE, COMMANDS, MODULES, OVERRIDES, extra_of, install, missing, require
from ctrpipe.common.wheels import installer
from ctrpipe.pipeline.cli import main
from tests.e2e.small_run import ROOT, call, one_line

OLD_GLIBC = "with Python 3.13 TFX needs glibc 2.39, and this system has glibc 2.36; use Python 3.11"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Modules of packages that an extra's own packages bring: kfp's client and Optuna's database.
BROUGHT = {"kfp_server_api", "sqlalchemy"}
# What an extra asks for that ctrpipe's code imports by no name of its own.
NO_EXTRA_OF_A_COMMAND = {"all", "gpu", "tfrs"}


@pytest.fixture(autouse=True)
def _wheels_of_everything(monkeypatch):
    """A system for which pip finds all wheels, wherever the tests run."""
    monkeypatch.setattr(extras, "unfit", lambda: "")
    monkeypatch.setattr(extras, "needs_overrides", lambda: False)
    monkeypatch.setattr(extras, "installer", lambda: "pip")


def packages(extra: str) -> set[str]:
    """The names of the packages that an extra asks for, also by another extra of ctrpipe's."""
    found: set[str] = set()
    for asked in PROJECT["optional-dependencies"][extra]:
        name, own = re.match(r"([\w-]+)(?:\[(.*?)\])?", asked).groups()
        found |= set().union(*map(packages, own.split(","))) if name == "ctrpipe" else {name.replace("_", "-")}
    return found


def base_packages() -> set[str]:
    return {re.match(r"[\w-]+", asked)[0] for asked in PROJECT["dependencies"]}


def test_every_extra_of_the_table_has_the_packages_of_the_metadata():
    assert set(MODULES) == set(PROJECT["optional-dependencies"]) - NO_EXTRA_OF_A_COMMAND
    owners = metadata.packages_distributions()
    for extra, modules in MODULES.items():
        names = {module: {name.lower().replace("_", "-") for name in owners.get(module, [])} for module in modules}
        asked = packages(extra)
        assert all(names[module] & asked or not names[module] for module in set(modules) - BROUGHT), extra
        if extra not in ("hub", "mlflow", "wandb"):  # not installed where the tests run
            # `tfx` is a module of the package ml-pipelines-sdk too
            assert {name for name in asked if not any(name in found for found in names.values())} == set(), extra
    assert packages("all") == set().union(*map(packages, MODULES))


def test_the_base_asks_for_nothing_of_an_extra():
    heavy = "tfx tensorflow-transform tensorflow-data-validation tensorflow-model-analysis apache-beam kfp jax lightgbm"
    heavy += " optuna tfx-bsl ml-metadata pandas scikit-learn tensorflow-text huggingface-hub"
    asked = set().union(*map(packages, MODULES))
    assert base_packages() & asked == set() and set(heavy.split()) <= asked


def test_no_range_is_open_above_and_no_address_of_an_index_stands_there():
    settings = [line.partition("#")[0] for line in (ROOT / "pyproject.toml").read_text().splitlines()]
    assert not any("index" in line or "://" in line for line in settings)
    asked = [*PROJECT["dependencies"], *(each for extra in PROJECT["optional-dependencies"].values() for each in extra)]
    unbounded = {each for each in asked if "<" not in each and not each.startswith("ctrpipe[")}
    assert unbounded == {"certifi"}  # its versions are dates


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_its_extra_says_in_one_line_which_to_install_and_shows_its_help(command, monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda module: False)
    extra = COMMANDS[command]
    assert call(command, "--help")[0] == call(command, "-h")[0] == 0
    if extra == BASE:
        assert "pip install" not in call(command, "--no-such-option")[1]
    else:
        said = f"ctrpipe: `ctrpipe {command}` needs the extra {extra} (tfx is not installed); pip install "
        code, output = call(command, "x")
        one_line(code, output, said + f"'ctrpipe[{extra}]'")


def test_words_are_completed_without_an_extra(monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda module: False)
    context = click.Context(main, resilient_parsing=True)
    assert main.resolve_command(context, ["run", "--da"])[0] == "run"


def test_a_package_is_looked_for_without_being_imported(monkeypatch):
    assert missing("pipeline") == missing("tune") == missing(BASE) == ""
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert missing("pipeline") == missing("kubeflow") == "lightgbm"
    with pytest.raises(InputError) as caught:
        require("pipeline", "this", "do that")
    line = "this needs the extra pipeline (lightgbm is not installed); pip install 'ctrpipe[pipeline]', or do that"
    assert str(caught.value) == line
    require(BASE, "that")


def test_a_module_belongs_to_the_smallest_extra_that_has_it():
    found = {module: extra_of(module) for module in ("tfx", "kfp", "optuna", "jax", "safetensors", "numpy")}
    assert found == {
        **{"tfx": "pipeline", "kfp": "kubeflow", "optuna": "tune", "jax": "jax"},
        **{"safetensors": "text", "numpy": BASE},
    }


def test_where_pip_finds_no_wheels_the_line_says_what_does_or_which_python_has_them(monkeypatch):
    monkeypatch.setattr(extras, "needs_overrides", lambda: True)
    assert re.fullmatch(r"pip install uv && python -m uv pip install --override \S+ 'ctrpipe\[tune\]'", install("tune"))
    assert install("jax") == "pip install 'ctrpipe[jax]'"
    assert OVERRIDES.read_text() == (ROOT / "overrides.txt").read_text()
    monkeypatch.setattr(extras, "unfit", lambda: OLD_GLIBC)
    assert install("pipeline") == OLD_GLIBC


@pytest.mark.parametrize(
    ("tool", "plain", "overriding"),
    [
        ("uvx", "uvx --from WHAT ctrpipe", "uvx --overrides FILE --from WHAT ctrpipe"),
        ("uv tool", "uv tool install WHAT", "uv tool install --overrides FILE WHAT"),
        ("pipx", "pipx install --force WHAT", "pipx run uv tool install --force --overrides FILE WHAT"),
    ],
)
def test_an_environment_of_a_tool_is_made_anew_by_that_tool(monkeypatch, tool, plain, overriding):
    monkeypatch.setattr(extras, "installer", lambda: tool)
    assert install("tune") == plain.replace("WHAT", "'ctrpipe[tune]'")
    monkeypatch.setattr(extras, "needs_overrides", lambda: True)
    assert install("tune") == overriding.replace("WHAT", "'ctrpipe[tune]'").replace("FILE", str(OVERRIDES))
    assert install("jax") == plain.replace("WHAT", "'ctrpipe[jax]'")


@pytest.mark.parametrize(
    ("folder", "file", "tool"),
    [
        ("venv", "pyvenv.cfg", "pip"),
        ("pipx/venvs/ctrpipe", "pipx_metadata.json", "pipx"),
        ("uv/tools/ctrpipe", "uv-receipt.toml", "uv tool"),
        ("uv/archive-v0/abc", "pyvenv.cfg", "uvx"),
    ],
)
def test_the_tool_that_made_an_environment_is_known_by_its_folder(monkeypatch, tmp_path, folder, file, tool):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / folder))
    assert installer() == tool
