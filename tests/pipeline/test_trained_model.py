"""The Keras models of pushed versions that a run's folder keeps, where its artifacts are in an object store."""

import pathlib

from ctrpipe.models.base.saved import DESCRIPTION, WEIGHTS
from ctrpipe.pipeline.components import KEPT_MODEL
from ctrpipe.pipeline.run.trained_model import KEPT_BY_VERSION, find_model, keep_by_version
from ctrpipe.serving.layout import SAVED_MODEL


def pushed(output: pathlib.Path, version: str) -> pathlib.Path:
    folder = output / "models" / "ctr" / version
    folder.mkdir(parents=True)
    (folder / SAVED_MODEL).touch()
    return folder


def artifact(folder: pathlib.Path, weights: str) -> pathlib.Path:
    (folder / KEPT_MODEL).mkdir(parents=True)
    (folder / KEPT_MODEL / DESCRIPTION).touch()
    (folder / KEPT_MODEL / WEIGHTS).write_text(weights)
    return folder


def test_a_versions_model_is_found_when_the_artifact_is_gone(tmp_path: pathlib.Path) -> None:
    version, bucket = pushed(tmp_path / "run", "7"), artifact(tmp_path / "bucket", "of 7")
    assert find_model(version).kept() is None
    keep_by_version(bucket, tmp_path / "run", version)
    bucket.rename(tmp_path / "elsewhere")
    for named in (version, version.parent):
        kept = find_model(named).kept()
        assert kept is not None and (kept / WEIGHTS).read_text() == "of 7"


def test_a_version_that_was_not_pushed_again_keeps_its_model_and_one_that_is_gone_loses_it(
    tmp_path: pathlib.Path,
) -> None:
    run = tmp_path / "run"
    for name in ("7", "8"):
        keep_by_version(artifact(tmp_path / name, f"of {name}"), run, pushed(run, name))
    keep_by_version(artifact(tmp_path / "again", "again"), run, run / "models" / "ctr" / "8")
    assert (run / KEPT_BY_VERSION / "8" / WEIGHTS).read_text() == "of 8"
    (run / "models" / "ctr" / "7" / SAVED_MODEL).unlink()
    (run / "models" / "ctr" / "7").rmdir()
    keep_by_version(artifact(tmp_path / "9", "of 9"), run, pushed(run, "9"))
    assert sorted(path.name for path in (run / KEPT_BY_VERSION).iterdir()) == ["8", "9"]
