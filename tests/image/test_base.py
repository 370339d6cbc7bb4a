"""A base image on which the packages cannot be installed."""

import os
import pathlib
import subprocess

from tests.image.containers import ENGINE, SERVING, engine, needs

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = needs(SERVING)
OLD = "import os\nos.confstr = lambda name: 'glibc 2.27'\n"


def test_a_base_without_glibc_2_28_is_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(OLD)
    (tmp_path / "Dockerfile").write_text(
        f"FROM {SERVING}\nUSER 0\nCOPY sitecustomize.py /opt/old/\nENV PYTHONPATH=/opt/old\n"
    )
    name = "localhost/ctrpipe-old-base:test"
    assert engine("build", "-t", name, tmp_path).code == 0
    try:
        command = ["make", "image", f"BASE={name}", f"ENGINE={pathlib.Path(str(ENGINE)).name}", "TAG=refused"]
        built = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300)
    finally:
        engine("rmi", "--force", name)
    said = [line for line in (built.stdout + built.stderr).splitlines() if line.startswith("the base image has glibc")]
    assert built.returncode == 2
    assert said == ["the base image has glibc 2.27, the packages want glibc 2.28 or newer; choose another BASE"]


def test_without_an_engine_make_image_is_one_line(tmp_path):
    ended = subprocess.run(["make", "image", "ENGINE="], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "neither podman nor docker is installed; install one of them" in ended.stdout
