"""The files around the code agree with it: CHANGELOG.md, .pre-commit-config.yaml and the workflow of hosted CI."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[1]


def version_of(folder: pathlib.Path, **variables: str) -> str:
    """The version that setup.py gives what lies in a folder."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "setup.py", "--version"]
    said = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return said.stdout.split()[-1]


@pytest.fixture
def checkout(tmp_path):
    """A repository with what setup.py reads, and git in it, told who commits."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text("## [3.2.0] - unreleased, 2030-01-02\n\n## [3.1.0] - 2030-01-01\n")
    (tmp_path / ".gitignore").write_text("*.egg-info\n")

    def git(*arguments: str) -> None:
        settings = ("user.name=a", "user.email=a@b.example", "commit.gpgsign=false", "tag.gpgsign=false")
        given = [part for setting in settings for part in ("-c", setting)]
        subprocess.run(["git", *given, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    return tmp_path, git


def test_the_version_is_the_tags_and_after_it_the_next_ones(checkout):
    folder, git = checkout
    git("tag", "v3.2.0")
    assert version_of(folder) == "3.2.0"
    git("commit", "-q", "--allow-empty", "-m", "two")
    assert re.fullmatch(r"3\.2\.1\.dev1\+g[0-9a-f]+", version_of(folder))


def test_without_a_tag_the_changelogs_newest_stands_for_it(checkout):
    folder, _ = checkout
    assert re.fullmatch(r"3\.2\.0\.dev1\+g[0-9a-f]+", version_of(folder))
    shutil.rmtree(folder / ".git")
    assert version_of(folder) == "3.2.0.dev0"
    (folder / "CHANGELOG.md").unlink()
    assert version_of(folder) == "0+unknown"
    assert version_of(folder, SETUPTOOLS_SCM_PRETEND_VERSION_FOR_CTRPIPE="7.8") == "7.8"


def test_the_changelog_keeps_its_form():
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    kinds = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    versions = [line for line in lines if line.startswith("## ")]
    assert versions and all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - .*\d{4}-\d{2}-\d{2}", line) for line in versions)


def test_a_commit_is_checked_by_what_make_lint_runs():
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\nlint:")[2].partition("\n\n")[0]
    linters = {tuple(line.split()[:2]) for line in re.findall(r"\$\(BIN\)/(.*)", recipe)}
    assert ("ruff", "check") in linters and ("mypy",) in linters
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {tuple(hook["entry"].removeprefix(".venv/bin/").split()[:2]) for hook in repository["hooks"]}
    assert repository["repo"] == "local" and hooks == linters
    installed = {entry.name for entry in importlib.metadata.entry_points(group="console_scripts")} | {"ruff"}
    assert {hook[0] for hook in hooks} <= installed


def workflow(name: str) -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


def test_hosted_ci_runs_what_is_run_here_on_the_oldest_and_the_newest_python():
    jobs = workflow("ci.yml")["jobs"]
    scripts = [step["run"] for job in jobs.values() for step in job["steps"] if step.get("run", "").startswith(".ci/")]
    assert scripts == [".ci/run", ".ci/images"] and all(os.access(ROOT / script, os.X_OK) for script in scripts)
    assert {job["timeout-minutes"] for job in jobs.values()} == {90}
    systems = {entry["image"]: entry["python"] for entry in jobs["ci"]["strategy"]["matrix"]["include"]}
    assert systems == {"python:3.11-bookworm": "3.11", "python:3.13-trixie": "3.13"}


def test_a_release_is_built_as_here_and_published_without_a_password():
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    jobs = workflow("release.yml")["jobs"]
    assert "make dist" in [step.get("run") for step in jobs["build"]["steps"]]
    publish = jobs["publish"]
    assert publish["needs"] == "build" and publish["environment"] == "pypi"
    assert publish["permissions"] == {"id-token": "write"}
    assert "password" not in re.sub("#.*", "", text) and "secrets." not in text and "attestations: false" not in text
    assert any(step.get("uses", "").startswith("pypa/gh-action-pypi-publish@") for step in publish["steps"])
    checkout = next(step for step in jobs["build"]["steps"] if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["fetch-depth"] == 0  # the version is read from the tags


def test_every_night_hosted_ci_runs_what_a_change_s_run_leaves_out():
    nightly = workflow("nightly.yml")
    (job,) = nightly["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make flink spark", "make test-all"]
    (schedule,) = nightly[True]["schedule"]  # YAML reads the key `on` as a truth value
    assert re.fullmatch(r"\d+ \d+ \* \* \*", schedule["cron"])
    recipe = (ROOT / "Makefile").read_text().partition("\ntest-all:")[2].partition("\n\n")[0]
    assert recipe.splitlines()[1] == "\t$(pytest)"  # of all lanes
