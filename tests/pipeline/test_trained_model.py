"""The Keras models of pushed versions that a run's folder keeps, where its artifacts are in an object store."""

import contextlib
import json
import pathlib
import sqlite3

import pytest
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from ctrpipe.common.errors import InputError
from ctrpipe.common.output_folder import METADATA
from ctrpipe.models.base.saved import DESCRIPTION, WEIGHTS
from ctrpipe.pipeline.components import KEPT_MODEL, SERVABLE
from ctrpipe.pipeline.run.artifacts import Artifacts
from ctrpipe.pipeline.run.moved import record_new_place
from ctrpipe.pipeline.run.trained_model import KEPT_BY_VERSION, LINEAGE, find_model, keep_by_version
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


TRAINED = pathlib.Path("tfx", "artifacts", "Trainer", "model", "7")


def finished_run(output: pathlib.Path, weights: str, model: pathlib.Path) -> None:
    """A finished run whose lineage names the folder of its model."""
    (output / LINEAGE).parent.mkdir(parents=True)
    (output / LINEAGE).write_text(json.dumps({"model": str(model)}))
    (output / "metrics.json").write_text("{}")
    (artifact(model, weights) / SERVABLE).mkdir()


def weights_of(run: pathlib.Path) -> str:
    kept = find_model(run).kept()
    assert kept is not None
    return (kept / WEIGHTS).read_text()


@pytest.mark.parametrize("where", ["a", "tfx/artifacts/a"])
def test_a_moved_run_has_its_own_model_whoever_works_where_it_was(where: str, tmp_path: pathlib.Path) -> None:
    place, moved = tmp_path / where, tmp_path / "moved"
    finished_run(place, "the first", place / TRAINED)
    place.rename(moved)
    assert weights_of(moved) == "the first"
    finished_run(place, "the second", place / TRAINED)
    assert weights_of(moved) == "the first" and weights_of(place) == "the second"
    (moved / TRAINED).rename(tmp_path / "removed")
    with pytest.raises(InputError, match="no longer at .*moved"):
        find_model(moved)


def test_a_run_of_a_cluster_has_its_model_where_the_cluster_put_it(tmp_path: pathlib.Path) -> None:
    finished_run(tmp_path / "run", "of the cluster", tmp_path / "bucket" / "models" / "7")
    (tmp_path / "run" / "models" / "7").mkdir(parents=True)  # of the same name, and no artifact
    assert weights_of(tmp_path / "run") == "of the cluster"


def record(output: pathlib.Path, uri: pathlib.Path) -> None:
    """Writes a finished execution of the node Trainer, with one model, into a run's database."""
    (output / METADATA).parent.mkdir(parents=True)
    connection = mlmd.ConnectionConfig()
    connection.sqlite.filename_uri = str(output / METADATA)
    connection.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
    store = metadata_store.MetadataStore(connection)
    kind = store.put_artifact_type(mlmd.ArtifactType(name="Model"))
    step = store.put_execution_type(mlmd.ExecutionType(name="Trainer"))
    node = store.put_context_type(mlmd.ContextType(name="node"))
    event = mlmd.Event(type=mlmd.Event.OUTPUT, path={"steps": [{"key": "model"}, {"index": 0}]})
    store.put_execution(
        mlmd.Execution(type_id=step, last_known_state=mlmd.Execution.COMPLETE),
        [(mlmd.Artifact(type_id=kind, uri=str(uri)), event)],
        [mlmd.Context(type_id=node, name="ctr.Trainer")],
    )


def test_the_artifacts_of_a_moved_run_are_its_own(tmp_path: pathlib.Path) -> None:
    record(tmp_path / "a", tmp_path / "a" / TRAINED)
    (tmp_path / "a").rename(tmp_path / "moved")
    assert Artifacts(tmp_path / "moved" / METADATA, "ctr").folder("Trainer", "model") == tmp_path / "moved" / TRAINED
    record_new_place(tmp_path / "moved")
    with contextlib.closing(sqlite3.connect(tmp_path / "moved" / METADATA)) as database:
        assert database.execute("SELECT uri FROM Artifact").fetchall() == [(str(tmp_path / "moved" / TRAINED),)]
    record(tmp_path / "b", tmp_path / "bucket" / "7")
    assert Artifacts(tmp_path / "b" / METADATA, "ctr").folder("Trainer", "model") == tmp_path / "bucket" / "7"


def test_a_database_without_the_node_is_no_defect(tmp_path: pathlib.Path) -> None:
    (tmp_path / METADATA).parent.mkdir()
    (tmp_path / METADATA).touch()
    with pytest.raises(LookupError, match="knows no Trainer of ctr"):
        Artifacts(tmp_path / METADATA, "ctr").folder("Trainer", "model")


def test_a_version_is_its_runs_until_the_run_has_other_results(tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    finished_run(run, "of 8", run / TRAINED)
    earlier, version = pushed(run, "7"), pushed(run, "8")
    (run / "metrics.json").write_text(json.dumps({"model_version": "8"}))
    for named in (version, version.parent):
        assert find_model(named) == find_model(run) and find_model(named).run == run
    assert find_model(earlier).run is None and find_model(earlier).version == earlier
    (run / "metrics.json").write_text(json.dumps({"model_version": None}))  # a later run was blocked
    assert find_model(version).run is None and find_model(version).version == version
    (run / "metrics.json").write_text(json.dumps({"model_version": "8"}))
    (run / TRAINED).rename(tmp_path / "removed")
    assert find_model(version).run is None and find_model(version).version == version
