"""The wheel, in a folder and an environment that know nothing of the checkout."""

import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).parents[1]
DEPENDENCIES = sysconfig.get_paths()["purelib"]


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> pathlib.Path:
    """The interpreter of an environment with the built wheel, and the libraries of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, sources.split("\0")):  # not the checkout, whose build/ may hold what is no longer there
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "source" / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    build = ["wheel", ".", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder]
    subprocess.run([*pip, *build], cwd=folder / "source", check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    [wheel] = folder.glob("ctrpipe-*.whl")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    [packages] = (folder / "venv").glob("lib/*/site-packages")
    (packages / "libraries.pth").write_text(f"{DEPENDENCIES}\n")  # its own .pth files, the checkout's too, are not read
    return python


@pytest.mark.slow
def test_the_wheel_runs_outside_the_checkout(python, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def ctrpipe(*arguments) -> str:
        command = [python.with_name("ctrpipe"), *map(str, arguments)]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    where = [python, "-c", "import ctrpipe, pipeline; print(ctrpipe.__file__, pipeline.__file__)"]
    files = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert files.count(str(python.parents[1])) == 2 and str(ROOT) not in files
    assert ctrpipe("--version") == "ctrpipe, version 0.2.0\n"
    assert "attention_net" in ctrpipe("models")
    names = {str(path.relative_to(ROOT / "configs")) for path in (ROOT / "configs").rglob("*.yaml")}
    assert set(ctrpipe("configs").split()) == {name for name in names if "/_" not in name}
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo.yaml").write_text("edited")
    ctrpipe("configs", "--output", "configs")
    copied = {str(path.relative_to(tmp_path / "configs")) for path in (tmp_path / "configs").rglob("*.yaml")}
    assert copied == names and (tmp_path / "configs" / "demo.yaml").read_text() == "edited"
    ctrpipe(
        "compile",
        "configs/criteo/deepfm.yaml",
        "--output",
        "deepfm.yaml",
        *(f"--set=kubeflow.{key}" for key in ("image=a/b:1", "volumes={ctr-data: /data}")),
        "--set=data.paths=[/data/a.tsv]",
    )
    ctrpipe("generate", "--rows", 500, "--output", "log.tsv")
    assert "click probability" in ctrpipe("demo", "--rows", 15_000)
    assert (tmp_path / "demo" / "report.html").exists()
