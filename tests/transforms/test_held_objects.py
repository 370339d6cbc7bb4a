"""A command requests each small object of a log once, however often it reads it, and notices if one changes."""

import os
import pathlib

import pytest

from benchmarks.harness.store_servers import Rule, faulty
from ctrpipe.common import stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.common.store_names import CACHE
from ctrpipe.pipeline.config import check_config
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.transforms.log import held_objects as held
from ctrpipe.transforms.log.described_files import describe_files, states_of
from ctrpipe.transforms.log.files import find_files, open_stored, state_of
from ctrpipe.transforms.log.footers import footers
from ctrpipe.transforms.log.held_objects import HELD, held_objects
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.split import SPLITS
from tests.small_config import SMALL, joined
from tests.stores import lead_to

pytestmark = pytest.mark.slow  # a server starts in seconds
FILES, ROWS = 40, 50
CSV = joined(SMALL, {"data": {"format": "csv"}})


@pytest.fixture
def folders(tmp_path):
    for name in SPLITS:
        (tmp_path / name).mkdir()
    return {name: tmp_path / name for name in SPLITS}


@pytest.fixture
def log(store, monkeypatch, tmp_path):
    """The URL of a log of small files."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    for number in range(FILES):
        lines = [f"{(row + number) % 3 == 0:d},pc,q{row % 17},ad{row % 29}" for row in range(ROWS)]
        stores.write_bytes(f"{store.url}/logs/{number}.csv", "\n".join(["click,device,query,ad", *lines, ""]).encode())
    return f"{store.url}/logs/*.csv"


def test_each_file_of_a_log_takes_three_requests(store, log, folders, tmp_path, monkeypatch):
    config = check_config(CSV, (), "config")
    with faulty(store.port, Rule()) as proxy:
        lead_to(proxy, monkeypatch)
        with held_objects([log]):
            paths = find_files([log])
            data = describe_files(paths)
            assert list(footers(config.data, paths)) == []
            states = states_of(data)
            result = ingest(config.log_spec, paths, 1, folders, tmp_path, Workers(processes=1), states=states)
            assert sum(result.rows.values()) == FILES * ROWS
        assert len(proxy.requests()) <= 3 * FILES + 10
        proxy.follow(Rule())
        assert check_log(config, [log]).rows == FILES * ROWS
        assert len(proxy.requests()) <= 3 * FILES + 10
    assert HELD not in os.environ and not list((tmp_path / "cache").rglob("*.json"))


def test_an_object_that_changes_after_it_was_fetched_is_noticed(s3, log, folders, tmp_path):
    spec = check_config(CSV, (), "config").log_spec
    with held_objects([log]):
        paths = find_files([log])
        [first, *_] = ranges = LogReader(spec).ranges(paths[3])
        before = open_stored(paths[3]).read()
        stores.write_bytes(paths[3], before.replace(b"pc", b"tv"))
        assert state_of(paths[3]) == first.state and open_stored(paths[3]).read() == before
        assert sum(len(batch.lines) for part in ranges for batch in LogReader(spec).read_range(part)) == ROWS
        with pytest.raises(InputError, match=f"^{paths[3]}: the file changed while it was read"):
            ingest(spec, paths, 1, folders, tmp_path, Workers(processes=1))
    assert open_stored(paths[3]).read() != before


def test_large_objects_and_those_on_a_full_disk_are_not_held(s3, monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    stores.write_bytes(f"{s3.url}/small", b"12")
    stores.write_bytes(f"{s3.url}/large", b"123")
    with held_objects([s3.url], most=2):
        assert held.held_object(f"{s3.url}/small").path.read_bytes() == b"12"
        assert held.held_object(f"{s3.url}/large") is None and open_stored(f"{s3.url}/large").read() == b"123"
        with pytest.raises(FileNotFoundError):
            held.held_object(f"{s3.url}/none")
    monkeypatch.setattr(held, "_FREE_SHARE", 2.0)
    with held_objects([s3.url]):
        assert held.held_object(f"{s3.url}/small") is None and open_stored(f"{s3.url}/small").read() == b"12"
    with held_objects(["log.csv"]):
        assert HELD not in os.environ
    nowhere = pathlib.Path(tmp_path / "file")
    nowhere.write_text("")
    monkeypatch.setenv(CACHE, str(nowhere / "cache"))
    with held_objects([s3.url]):
        assert held.held_object(f"{s3.url}/small") is None
