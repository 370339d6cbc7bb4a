"""A log in a store gives the same rows, bytes and errors as its copy on a disk."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet
import pytest

from benchmarks.harness.store_servers import Rule, faulty
from ctrpipe.common import stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.config import check_config
from ctrpipe.pipeline.draft import recipe
from ctrpipe.pipeline.replay.days import find_days
from ctrpipe.transforms.log import files
from ctrpipe.transforms.log.described_files import describe_file
from ctrpipe.transforms.log.files import find_files, size_of
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.kinds.pretrained import Pretrained
from ctrpipe.transforms.log.pretrained_table import read_table, table_fingerprint
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.sample import LogSample, read_sample
from ctrpipe.transforms.log.split import SPLITS
from tests.small_config import SMALL, joined
from tests.stores import lead_to

pytestmark = pytest.mark.slow  # a server starts in seconds
ROWS = 2_000


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch):
    monkeypatch.setenv(stores.RETRY_SECONDS, "20")
    monkeypatch.setattr(files, "RANGE_BYTES", 8_000)
    monkeypatch.setattr(stores, "BLOCK_BYTES", 3_000)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A log in several formats."""
    folder = tmp_path_factory.mktemp("logs")
    lines = [f"{row % 3 == 0:d},{'phone' if row % 2 else 'pc'},q{row % 17},ad{row % 29}" for row in range(ROWS)]
    text = "\n".join(["click,device,query,ad", *lines]) + "\n"
    (folder / "log.csv").write_text(text)
    (folder / "log.csv.gz").write_bytes(gzip.compress(text.encode()))
    table = pa.csv.read_csv(folder / "log.csv")
    pa.parquet.write_table(table, folder / "log.parquet", row_group_size=300)
    pa.orc.write_table(table, folder / "log.orc")
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return folder


def spec_of(name):
    kind = name.removesuffix(".gz").rpartition(".")[2]
    values = joined(SMALL, {"data": {"format": kind}})
    if kind != "csv":
        del values["data"]["header"]
    return check_config(values, (), "config").log_spec


def ingested(spec, path, folder):
    for name in SPLITS:
        (folder / name).mkdir(parents=True)
    result = ingest(spec, [path], 1, {name: folder / name for name in SPLITS}, folder, Workers(processes=1))
    written = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*.parquet")}
    return {**written, "rows": result.rows, "positives": result.positives}


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.parquet", "log.jsonl", "log.orc"])
def test_the_store_and_the_disk_give_the_same_bytes(store, logs, tmp_path, name):
    url = f"{store.url}/day=1/{name}"
    stores.write_file(url, logs / name)
    spec = spec_of(name)
    on_disk, stored = (ingested(spec, str(path), tmp_path / side) for side, path in [("a", logs / name), ("b", url)])
    assert sum(stored["rows"].values()) == ROWS and stored == on_disk
    assert describe_file(url)["sha256"] == describe_file(str(logs / name))["sha256"]
    sample = read_sample(url)
    assert sample.columns == read_sample(str(logs / name)).columns | {"day": ["1"] * sample.rows}


@pytest.mark.parametrize("name", ["vectors.parquet", "vectors.npz"])
def test_pretrained_vectors_of_a_store_are_those_of_the_disk(s3, tmp_path, name):
    def table_of(path):
        described = Pretrained(path=str(path), length=2)
        return read_table(described, True), table_fingerprint(described.path)

    url, path = f"{s3.url}/{name}", tmp_path / name
    with pytest.raises(InputError, match=f"^{url}: the table of pretrained vectors cannot be read .No such file"):
        table_of(url)
    for scale in (1.0, 3.0):  # the second time the object has changed
        vectors = scale * np.arange(2_000, dtype=np.float32).reshape(1_000, 2)
        keys = [f"i{row}" for row in range(1_000)]
        if name == "vectors.npz":
            np.savez(path, key=np.array(keys), vector=vectors)
        else:
            pa.parquet.write_table(pa.table({"key": keys, "vector": list(vectors)}), path)
        stores.write_file(url, path)
        (found, fingerprint), (expected, of_disk) = table_of(url), table_of(path)
        assert fingerprint == of_disk and found.keys == expected.keys and found.keys.to_pylist()[7] == b"i7"
        np.testing.assert_array_equal(found.vectors, vectors)
        np.testing.assert_array_equal(expected.vectors, vectors)


def test_a_log_is_read_through_faults(store, logs, tmp_path, monkeypatch):
    stores.write_file(f"{store.url}/log.csv", logs / "log.csv")
    spec = spec_of("log.csv")
    expected = ingested(spec, str(logs / "log.csv"), tmp_path / "disk")
    for fault in ("slow_down", "cut"):
        with faulty(store.port, Rule(fault, share=0.1, part="GET")) as proxy:
            lead_to(proxy, monkeypatch)
            assert ingested(spec, f"{store.url}/log.csv", tmp_path / fault) == expected
            assert proxy.faults() > 2


def test_an_object_that_changes_while_it_is_read_is_noticed(store, logs):
    url = f"{store.url}/log.csv"
    stores.write_file(url, logs / "log.csv")
    spec = spec_of("log.csv")
    ranges = plan([url], spec)
    assert len(ranges) > 3
    changed = (logs / "log.csv").read_text().replace("phone", "ponhe")
    stores.write_bytes(url, changed.encode())
    assert size_of(url) == size_of(str(logs / "log.csv"))  # the size does not tell
    with pytest.raises(InputError, match=f"{url}: the file changed while it was read"):
        list(LogReader(spec).read_range(ranges[1]))


def test_files_are_found_by_patterns_and_days(store):
    for day in (2, 10):
        stores.write_bytes(f"{store.url}/logs/day=2026-11-{day:02}/part.csv", b"1")
    stores.write_bytes(f"{store.url}/logs/day=2026-11-10/_SUCCESS", b"")
    two, ten = (f"{store.url}/logs/day=2026-11-{day}/part.csv" for day in ("02", "10"))
    assert find_files([f"{store.url}/logs"]) == find_files([f"{store.url}/logs/*/*.csv"]) == [two, ten]
    assert find_files([ten, two]) == [ten, two]
    stores.write_bytes(f"{store.url}/logs/day=2026-11-10/_temporary/0/part.csv", b"1")
    assert find_files([f"{store.url}/logs"]) == [two, ten]
    with pytest.raises(
        InputError, match=f"{store.url}/logs/day=.: matches only folders, such as .*; name their files, as in"
    ):
        find_files([f"{store.url}/logs/day=*"])
    with pytest.raises(InputError, match="after day=2026-11-02 comes day=2026-11-10"):
        find_days([f"{store.url}/logs/day=*"])
    assert find_days([f"{store.url}/logs/day=2026-11-1*"])[0].files == (ten,)
    stores.write_bytes(f"{store.url}/logs/new.csv", b"1")
    with pytest.raises(InputError, match=f"^{store.url}/logs: a folder with new.csv beside day=.*; name its files"):
        find_files([f"{store.url}/logs/"])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/none.csv", "no such file; check the path"),
        ("/none-*.csv", "no file matches; check the path"),
        ("-none/x.csv", "no such bucket; check the name in the URL"),
        ("-none/*.csv", "no such bucket; check the name in the URL"),
        ("/folder", "a folder with the folder more in it; name its files"),
    ],
)
def test_what_is_not_there_is_one_line(store, path, says):
    stores.write_bytes(f"{store.url}/folder/x.csv", b"1")
    assert find_files([f"{store.url}/folder"]) == [f"{store.url}/folder/x.csv"]
    stores.write_bytes(f"{store.url}/folder/more/x.csv", b"1")
    with pytest.raises(InputError) as error:
        find_files([f"{store.url}{path}"])
    assert str(error.value).startswith(store.url) and says in str(error.value)


def test_a_glob_of_many_objects_is_a_listing_and_a_draft_asks_for_some_sizes(s3, monkeypatch):
    urls = [f"{s3.url}/logs/{number}.csv" for number in range(12)]
    for url in urls:
        stores.write_bytes(url, b"click,ad\n1,7\n0,8\n")
    stores.write_bytes(f"{s3.url}/logs/inner/x.csv", b"")
    with faulty(s3.port, Rule()) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        assert find_files([f"{s3.url}/logs/*.csv"]) == urls
        assert find_files([f"{s3.url}/logs/*"]) == urls
        assert len(proxy.requests()) < 12
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3.port}")
    asked = []
    monkeypatch.setattr(recipe, "_COUNTED_FILES", 4)
    monkeypatch.setattr(recipe, "text_size", lambda url: asked.append(url) or 10)
    sample = LogSample({"format": "csv"}, {"click": ["1"], "ad": ["7"]})
    assert recipe.count_rows(urls, sample) == 30 and sorted(asked) == [urls[0], urls[3], urls[6], urls[9]]
