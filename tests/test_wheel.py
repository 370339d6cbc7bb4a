"""The wheel, in a folder and an environment that know nothing of the checkout."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pyarrow.parquet as pq
import pytest

from ctrpipe.common.packages import PARTS
from tests.e2e.small_run import call
from tools.dist import build

ROOT = pathlib.Path(__file__).parents[1]
# The first rows of the log as a client sends them to a server of the model; then the whole log is scored.
ASKS = """
import json
import pathlib
import ctrpipe
from ctrpipe.serving.server import ServerOptions, running_server

if __name__ == "__main__":
    lines = pathlib.Path("log.tsv").read_text().splitlines()[:5]
    with running_server(ServerOptions(pathlib.Path("run/models/ctr").resolve(), "ctr")) as addresses:
        with ctrpipe.load(f"{addresses.rest}/v1/models/ctr") as model:
            rows = [line.split("\\t")[1:] for line in lines]
            names = [*(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
            columns = {
                name: [(float(row[n]) if row[n] else float("nan")) if n < 13 else row[n] for row in rows]
                for n, name in enumerate(names)
            }
            print(json.dumps([float(value) for value in model.predict(columns)["ctr"]]))
    ctrpipe.score("run/models/ctr", "log.tsv", "scores")
"""
VERSION = "8.7.6"
UV = pathlib.Path(sys.executable).with_name("uv")
DEPENDENCIES = sysconfig.get_paths()["purelib"]


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> pathlib.Path:
    """The interpreter of an environment with the built wheel, and the libraries of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, sources.split("\0")):  # not the checkout, whose build/ may hold what is no longer there
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name, follow_symlinks=False)
    # There is no repository to read the version from.
    wheel = build("wheel", folder / "source", folder, SETUPTOOLS_SCM_PRETEND_VERSION_FOR_CTRPIPE=VERSION)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    # pip would take 5 s, most of them to compile modules of which few are imported.
    install = [UV, "-q", "pip", "install", "--offline", "--no-deps", "--python", python, wheel]
    subprocess.run(install, check=True)
    [packages] = (folder / "venv").glob("lib/*/site-packages")
    (packages / "libraries.pth").write_text(f"{DEPENDENCIES}\n")  # its own .pth files, the checkout's too, are not read
    return python


@pytest.fixture
def ctrpipe(python, tmp_path):
    """Runs a command of the environment in a folder with files of a user's own, named as the wheel's parts are."""
    for part in PARTS:
        (tmp_path / part).mkdir()
        (tmp_path / part / "__init__.py").write_text(f"OWN = 'my {part}'\n")
    (tmp_path / "common" / "__init__.py").rename(tmp_path / "common.py")
    (tmp_path / "common").rmdir()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(command: str, *arguments) -> str:
        command = [python.with_name(command), *map(str, arguments)]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.mark.slow
def test_the_wheel_takes_one_name(python, ctrpipe, tmp_path):
    [packages] = python.parents[1].glob("lib/*/site-packages")
    names = {path.name for path in packages.iterdir()} - {"libraries.pth"}
    assert names == {"ctrpipe", f"ctrpipe-{VERSION}.dist-info"}
    inside = {path.name for path in (packages / "ctrpipe").iterdir()}
    assert {*PARTS, "configs", "overrides.txt", "py.typed"} <= inside and not (packages / "ctrpipe" / "tests").exists()
    (tmp_path / "own.py").write_text("import common, models, ctrpipe; print(common.OWN, models.OWN, ctrpipe.__file__)")
    said = ctrpipe("python", "own.py")
    assert said.startswith(f"my common my models {python.parents[1]}") and f"{ROOT}/" not in said
    assert call("generate", "--rows", 200, "--output", tmp_path / "log.tsv")[0] == 0
    ctrpipe("ctrpipe", "configs", "--output", "configs")
    assert "0 errors" in ctrpipe("ctrpipe", "check", "configs/criteo/lr.yaml", "--data", "log.tsv")


@pytest.mark.large(like="tests/test_wheel.py::test_the_wheel_takes_one_name")
@pytest.mark.slow
def test_the_wheel_trains_on_jax_serves_and_scores_beside_files_of_the_same_names(python, ctrpipe, tmp_path):
    ctrpipe("ctrpipe", "generate", "--rows", 2000, "--output", "log.tsv")
    ctrpipe("ctrpipe", "configs", "--output", "configs")
    small = ("--set=training.epochs=1", "--set=gates={rig: null}", "--set=training.backend=jax")
    ctrpipe("ctrpipe", "run", "configs/criteo/lr.yaml", "--data", "log.tsv", "--output", "run", *small)
    history = json.loads((tmp_path / "run" / "report_data" / "history.json").read_text())
    assert history["backend"] == "jax"
    (tmp_path / "asks.py").write_text(ASKS)
    served = json.loads(ctrpipe("python", "asks.py").splitlines()[0])
    [scores] = (tmp_path / "scores").glob("*.parquet")
    column = pq.read_table(scores)["ctr"].to_pylist()
    assert len(column) == 2000 and served == pytest.approx(column[:5], abs=1e-6)


@pytest.mark.large(like="tests/test_wheel.py::test_the_wheel_takes_one_name")
@pytest.mark.slow
def test_the_wheel_has_what_its_commands_read(ctrpipe, tmp_path):
    def command(*arguments) -> str:
        return ctrpipe("ctrpipe", *arguments)

    assert command("--version") == f"ctrpipe, version {VERSION}\n"
    assert "attention_net" in command("models")
    names = {str(path.relative_to(ROOT / "configs")) for path in (ROOT / "configs").rglob("*.yaml")}
    assert set(command("configs").split()) == {name for name in names if "/_" not in name}
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo.yaml").write_text("edited")
    command("configs", "--output", "configs")
    copied = {str(path.relative_to(tmp_path / "configs")) for path in (tmp_path / "configs").rglob("*.yaml")}
    assert copied == names and (tmp_path / "configs" / "demo.yaml").read_text() == "edited"
    command(
        "compile",
        "configs/criteo/deepfm.yaml",
        "--output",
        "deepfm.yaml",
        *(f"--set=kubeflow.{key}" for key in ("image=a/b:1", "volumes={ctr-data: /data}")),
        "--set=data.paths=[/data/a.tsv]",
    )
    command("generate", "--rows", 500, "--output", "log.tsv")
    assert "click probability" in command("demo", "--rows", 15_000)
    assert (tmp_path / "demo" / "report.html").exists()
