"""Images of the deploy files have digests, or one command pins them."""

import collections
import importlib.util
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DIGEST = "sha256:" + "ab" * 32
# No registry could be reached to look their digests up; serving/deploy/README.md and kubeflow/README.md say how to.
TAGS_ALONE = [
    "apache/beam_flink1.20_job_server:2.77.0",
    "apache/beam_python3.11_sdk:2.77.0",
    "flink:1.20",
    "tensorflow/serving:2.21.0",
]


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("pin_images", ROOT / "tools" / "pin_images.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_other_image_is_named_without_a_digest(tool):
    assert set(tool.unpinned(ROOT)) <= set(TAGS_ALONE)
    for page in ("serving/deploy/README.md", "kubeflow/README.md"):
        assert "python tools/pin_images.py" in (ROOT / page).read_text()


def test_every_image_of_the_files_is_seen(tool):
    """Each line that names an image names one that is known here, one of our own, a variable or a stage."""
    seen = collections.Counter()
    for path in tool.files(ROOT):
        for line in path.read_text().splitlines():
            words = line.replace("- ", "").split()
            if words and words[0] in ("image:", "FROM"):
                seen[words[0]] += 1
                is_named = tool._NAMES.match(line) or words[1].startswith(("$", '"$'))
                assert is_named or words[1] in ("installer", "ctrpipe", "scratch", "pipeline-packages"), (path, line)
    assert min(seen["image:"], seen["FROM"]) > 2


def test_the_digests_are_written_behind_the_tags(tool, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "serving" / "deploy"
    folder.mkdir(parents=True)
    (folder / "one.yaml").write_text(
        "  image: a/b:1\n# a/b:1 in words\n  - image: a/b:1.2\n  image: registry.example/x:1\n"
    )
    (tmp_path / "kubeflow").mkdir()
    (tmp_path / "kubeflow" / "Dockerfile").write_text(
        f"ARG BASE=python:3@{DIGEST}\nARG BEAM=a/b:1\nFROM ${{BASE}} AS x\n"
    )
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$3" = inspect ] && echo {DIGEST}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert tool.unpinned(tmp_path) == ["a/b:1", "a/b:1.2"]
    tool.pin(tmp_path)
    assert tool.unpinned(tmp_path) == []
    assert (folder / "one.yaml").read_text() == (
        f"  image: a/b:1@{DIGEST}\n# a/b:1 in words\n  - image: a/b:1.2@{DIGEST}\n  image: registry.example/x:1\n"
    )
    assert f"ARG BEAM=a/b:1@{DIGEST}\n" in (tmp_path / "kubeflow" / "Dockerfile").read_text()
    assert capsys.readouterr().out.splitlines() == [f"a/b:1@{DIGEST}", f"a/b:1.2@{DIGEST}"]
    program.write_text("#!/bin/sh\necho none\n")
    (folder / "one.yaml").write_text("  image: a/b:1\n")
    with pytest.raises(SystemExit, match="printed no digest: none"):
        tool.pin(tmp_path)


def test_the_command_says_what_is_left(tool):
    asked = subprocess.run(["python3", ROOT / "tools" / "pin_images.py", "--check"], capture_output=True, text=True)
    left = tool.unpinned(ROOT)
    assert (asked.returncode, asked.stdout.splitlines()) == (int(bool(left)), left or ["all images have digests"])
