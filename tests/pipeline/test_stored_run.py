"""Runs whose folder is in a store, step by step on disks of their own."""

import shutil

from ctrpipe.common import stores
from ctrpipe.common.store_folders import CACHE, work_folder
from ctrpipe.pipeline.run.stored_run import fetch_handed_on, hand_on, write_dead_letters


def test_what_the_first_step_writes_is_on_the_disk_of_one_that_names_it(s3, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    url = f"{s3.url}/runs/mine"
    folder = work_folder(url)
    for name in ("tfx/states.json", "tfx/schema/1/schema.pbtxt", "joined/log.tsv", "models/ctr/1/saved_model.pb"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    hand_on(url)
    shutil.rmtree(tmp_path)
    fetch_handed_on(url, f'{{"source": "{folder}/tfx/schema/1/schema.pbtxt", "files": ["{folder}/joined/log.tsv"]}}')
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {"tfx/schema/1/schema.pbtxt", "joined/log.tsv"}
    assert (folder / "joined/log.tsv").read_text() == "joined/log.tsv"


def test_malformed_rows_are_in_the_store(s3, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    url = f"{s3.url}/runs/mine"
    letters = work_folder(url) / "dead_letter"
    letters.mkdir(parents=True)
    (letters / "rejects.jsonl").write_text("{}")
    write_dead_letters(url)
    assert stores.read_bytes(f"{url}/dead_letter/rejects.jsonl") == b"{}"
