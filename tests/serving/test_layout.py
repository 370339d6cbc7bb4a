"""The paths of versions and their files, and the golden rows inside a version."""

import json
import os
import pathlib

import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.stores import local_path
from ctrpipe.pipeline.run.trained_model import find_model
from ctrpipe.serving.assets import GoldenRows, read_log_spec
from ctrpipe.serving.layout import (
    Asset,
    asset_path,
    base_path_of,
    find_version,
    make_assets_folder,
    model_files,
    newest_version,
    run_of,
    versions,
)
from ctrpipe.serving.server.options import parse_flags


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/a/b", "/a/b"),
        ("a/b", "a/b"),
        ("file:///a/b", "/a/b"),
        ("file://host/a/b", "/a/b"),
        ("file:///a%20b", "/a%20b"),  # TensorFlow decodes nothing
        ("file://", "/"),
        ("file:///", "/"),
    ],
)
def test_a_path_may_be_a_uri_of_a_file(text, path):
    assert str(local_path(text)) == path
    assert str(parse_flags([f"--model_base_path={text}"]).model_base_path) == path


def make(base, *names):
    for name in names:
        (base / name).mkdir(parents=True)
        (base / name / "saved_model.pb").touch()
    return base


def test_versions_are_folders_named_by_integers_in_the_order_of_their_numbers(tmp_path):
    base = make(tmp_path / "ctr", "10", "9", "v11", ".12")
    (base / "13").touch()
    assert [path.name for path in versions(base)] == ["9", "10"]
    assert newest_version(base) == base / "10" == find_version(base) == find_version(base / "10")


def test_a_folder_without_a_version_is_one_line(tmp_path):
    assert versions(tmp_path / "absent") == [] and newest_version(tmp_path) is None
    with pytest.raises(InputError, match="no model version here"):
        find_version(tmp_path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "name",
    [
        *("saved_model.pb", "fingerprint.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"),
        *("assets/words.txt", "assets/more/words.txt"),
        *(f"assets.extra/{asset}" for asset in (Asset.LOG_SPEC, Asset.WARMUP, Asset.CHECKSUMS, Asset.GOLDEN)),
    ],
)
def test_a_file_of_a_version_that_never_ends_is_one_line(tmp_path, name):
    version = make(tmp_path / "run" / "models" / "ctr", "1") / "1"
    (version / name).parent.mkdir(parents=True, exist_ok=True)
    (version / name).unlink(missing_ok=True)
    os.mkfifo(version / name)
    for model in (version, version.parent):
        with pytest.raises(InputError, match=f"1/{name}: a named pipe, which may never end; put a file in its place"):
            find_version(model)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["metrics.json", "report_data/lineage.json"])
def test_a_file_of_a_run_that_never_ends_is_one_line(tmp_path, name):
    run = tmp_path / "run"
    (run / "report_data").mkdir(parents=True)
    (run / "metrics.json").write_text(json.dumps({"model_version": "1"}))
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    version = make(run / "models" / "ctr", "1") / "1"
    for find, model in ((run_of, run), (run_of, version), (find_model, run)):
        with pytest.raises(InputError, match=f"run/{name}: a named pipe, which may never end"):
            find(model)


def test_a_graph_is_as_large_as_a_message_may_be(tmp_path):
    version = make(tmp_path, "1") / "1"
    (version / "variables").mkdir()
    with open(version / "variables" / "variables.data-00000-of-00001", "wb") as file:
        file.truncate(1 << 40)
    assert find_version(version) == version
    os.truncate(version / "saved_model.pb", 1 << 31)
    with pytest.raises(InputError, match="saved_model.pb: 2,147,483,648 bytes, and 2,147,483,647 is the most"):
        find_version(version)


def test_a_run_stands_for_the_model_that_it_pushed(tmp_path):
    run = tmp_path / "run"
    base = make(run / "models" / "ctr", "3", "12")
    assert base_path_of(run) == run  # not a finished run
    (run / "metrics.json").touch()
    assert base_path_of(run) == base_path_of(base) == base and find_version(run) == base / "12"
    assert base_path_of(base / "3") == base / "3"
    (run / "models" / "nothing").mkdir()
    assert base_path_of(run) == base
    make(run / "models" / "other", "1")
    with pytest.raises(InputError, match=r"run: this run pushed models of several names, ctr, other; give .*run/"):
        find_version(run)
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "metrics.json").touch()
    with pytest.raises(InputError, match="blocked: this run pushed no model; its report says which gate"):
        find_version(blocked)


def test_tf_serving_finds_the_file_that_it_knows(tmp_path):
    assert asset_path(tmp_path, Asset.WARMUP) == tmp_path / "assets.extra" / "tf_serving_warmup_requests"


def test_a_version_is_its_graph_its_weights_and_what_travels_with_it(tmp_path):
    version = make(tmp_path, "1") / "1"
    make_assets_folder(version)
    asset_path(version, Asset.LOG_SPEC).write_text("{")
    (version / "variables").mkdir()
    (version / "variables" / "variables.index").touch()
    (version / "variables" / "variables.data-00000-of-00001").touch()
    names = ["saved_model.pb", "variables.data-00000-of-00001", "variables.index", "log_spec.json"]
    assert [path.name for path in model_files(version)] == names
    with pytest.raises(InputError, match="damaged; push the model again"):
        read_log_spec(version)
    asset_path(version, Asset.LOG_SPEC).unlink()
    with pytest.raises(InputError, match="cannot be read"):
        read_log_spec(version)


@pytest.mark.parametrize("candidates", [None, np.float32([[0.25], [0.5]])])
def test_golden_rows_come_back_as_they_were(tmp_path, candidates):
    raw = {"price": np.float32([1.5, np.nan]), "site": np.array([b"\xc3\xa9", b""], object)}
    golden = GoldenRows(raw, {"ids": np.int32([[1, 2], [3, 4]])}, np.float32([[0.125], [0.75]]), candidates, 0.05)
    golden.save(tmp_path / "golden.npz")
    read = GoldenRows.load(tmp_path / "golden.npz")
    assert {name: values.dtype for name, values in read.raw.items()} == {"price": np.float32, "site": object}
    np.testing.assert_array_equal(read.raw["price"], raw["price"])
    assert read.raw["site"].tolist() == [b"\xc3\xa9", b""] and read.tolerance == 0.05
    np.testing.assert_array_equal(read.packed["ids"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(read.probabilities, golden.probabilities)
    assert read.candidates is None if candidates is None else (read.candidates == candidates).all()


@pytest.mark.parametrize("place", [-20, 200], ids=["directory", "numbers"])
def test_damaged_golden_rows_are_a_value_error(tmp_path, place):
    path = tmp_path / "golden.npz"
    GoldenRows({"price": np.zeros(99, np.float32)}, {}, np.zeros((99, 1), np.float32), None, 0.05).save(path)
    contents = bytearray(path.read_bytes())
    contents[place] ^= 0xFF
    path.write_bytes(contents)
    with pytest.raises(ValueError, match=f"^{path}: damaged"):
        GoldenRows.load(path)


def test_the_run_of_what_it_pushed(tmp_path, monkeypatch):
    run = tmp_path / "runs" / "a"
    version = run / "models" / "ctr" / "7"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    assert run_of(version) == version and run_of(run) == run  # without results it is no run
    (run / "metrics.json").write_text(json.dumps({"model_version": "7"}))
    assert run_of(version) == run_of(version.parent) == run_of(run) == run
    monkeypatch.chdir(tmp_path)
    assert run_of(pathlib.Path("runs/a/models/ctr/7")) == pathlib.Path("runs/a")
    monkeypatch.chdir(version)
    assert run_of(pathlib.Path(".")).resolve() == run.resolve()
    monkeypatch.chdir(tmp_path)
    for other in (tmp_path / "absent", run / "models", tmp_path / "runs"):
        assert run_of(other) == other
    (run / "metrics.json").write_text(json.dumps({"model_version": "8"}))
    assert run_of(version.parent) == run
    with pytest.raises(InputError, match="are of version 8; name that one"):
        run_of(version)
    (run / "metrics.json").write_text("{")
    assert run_of(version) == run
