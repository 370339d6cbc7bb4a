"""The files around the code agree with it: CHANGELOG.md, .pre-commit-config.yaml and the workflow of hosted CI."""

import importlib.metadata
import os
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).parents[1]


def test_the_changelog_begins_with_the_version_that_is_installed():
    version = re.match(
        r"\d+\.\d+\.\d+", importlib.metadata.version("ctrpipe")
    )  # of the next release, where it is not out
    newest = re.search(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert version and newest and newest[1] == version[0]


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


def test_hosted_ci_runs_what_is_run_here():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    jobs = workflow["jobs"].values()
    scripts = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert scripts == [".ci/run", ".ci/images"] and all(os.access(ROOT / script, os.X_OK) for script in scripts)
    assert {job["timeout-minutes"] for job in jobs} == {90}
    (python,) = {step["with"]["python-version"] for job in jobs for step in job["steps"] if "with" in step}
    assert python == "3.11" and f"python{python}" in (ROOT / "Makefile").read_text()


def test_every_night_hosted_ci_runs_what_a_change_s_run_leaves_out():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make flink spark", "make test-all"]
    (schedule,) = workflow[True]["schedule"]  # YAML reads the key `on` as a truth value
    assert re.fullmatch(r"\d+ \d+ \* \* \*", schedule["cron"])
    recipe = (ROOT / "Makefile").read_text().partition("\ntest-all:")[2].partition("\n\n")[0]
    assert recipe.splitlines()[1] == "\t$(pytest)"  # of all lanes
