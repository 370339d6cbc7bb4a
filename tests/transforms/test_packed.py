"""Packed files: what was written comes back, in batches, in an order that only the seed decides."""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.features import packed_files as packed
from ctrpipe.transforms.features.packed_files import PackedReader, PackedWriter, packed_files, packed_rows


def rows(first: int, count: int, slots: int = 3) -> dict[str, np.ndarray]:
    """The label is the row's number. It identifies the row and determines all other values."""
    number = np.arange(first, first + count)
    return {
        "ids": (number[:, None] * 10 + np.arange(slots)).astype(np.int32),
        "dense": np.stack([number / 7, np.where(number % 2, np.nan, -number)], axis=1).astype(np.float32),
        "label": number[:, None].astype(np.float32),
    }


def write(path, *parts: dict[str, np.ndarray]) -> None:
    with PackedWriter(path) as writer:
        for part in parts:
            writer.write(part)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Ten rows a block, five blocks a window."""
    monkeypatch.setattr(packed, "BLOCK_ROWS", 10)
    monkeypatch.setattr(packed, "SHUFFLE_ROWS", 50)
    monkeypatch.setattr(packed, "READ_ROWS", 50)


@pytest.fixture
def files(tmp_path):
    """123 rows in three files, the last block of each shorter than the others."""
    folder = tmp_path / "split"
    folder.mkdir()
    write(folder / "part-2.parquet", rows(78, 45))
    write(folder / "part-0.parquet", rows(0, 7), rows(7, 0), rows(7, 26))
    write(folder / "part-1.parquet", rows(33, 45))
    return packed_files(folder)


def test_the_mean_of_the_labels_is_over_all_files(files):
    np.testing.assert_allclose(packed.label_means(files), [np.arange(123).mean()])


def test_damage_among_the_labels_names_the_file(files):
    content = bytearray(files[1].read_bytes())
    metadata = pyarrow.parquet.read_metadata(files[1])
    label = metadata.row_group(0).column(metadata.num_columns - 1)
    assert label.path_in_schema == "label"
    content[label.data_page_offset + label.total_compressed_size // 2] ^= 1
    files[1].write_bytes(content)
    with pytest.raises(InputError, match="part-1.parquet: cannot be read"):
        packed.label_means(files)


def numbers(batches) -> list[int]:
    return [int(number) for _, label in batches for number in label[:, 0]]


def assert_whole(batches) -> None:
    """Asserts that every row equals the written one."""
    for inputs, label in batches:
        for index, number in enumerate(label[:, 0].astype(int)):
            expected = rows(number, 1)
            np.testing.assert_array_equal(inputs["ids"][index], expected["ids"][0])
            np.testing.assert_array_equal(inputs["dense"][index], expected["dense"][0])


@pytest.mark.parametrize("size", [1, 8, 10, 64, 200])
def test_batches_of_the_size_asked_for_run_over_blocks_and_files(files, size):
    batches = list(PackedReader(files, size))
    assert [len(label) for _, label in batches] == [size] * (123 // size) + [123 % size] * (123 % size > 0)
    assert len(PackedReader(files, size)) == len(batches)
    assert numbers(batches) == list(range(123))
    inputs, label = batches[0]
    assert (inputs["ids"].dtype, inputs["dense"].dtype, label.dtype) == (np.int32, np.float32, np.float32)
    assert_whole(batches)


def test_rows_are_counted_without_being_read(files):
    damage(files[0], 0.3)
    assert packed_rows(files) == PackedReader(files, 8).rows == 123


@pytest.mark.parametrize("absent", ["ids", "dense"])
def test_a_log_without_fields_or_without_dense_features(tmp_path, absent):
    part = rows(0, 25)
    part[absent] = part[absent][:, :0]
    write(tmp_path / "part.parquet", part)
    ((inputs, _),) = PackedReader(packed_files(tmp_path), 25)
    (name,) = inputs
    assert name != absent
    np.testing.assert_array_equal(inputs[name], part[name])


def test_no_rows_make_no_file(tmp_path):
    write(tmp_path / "part.parquet", rows(0, 0))
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="the split has no rows"):
        PackedReader(packed_files(tmp_path), 8)


def test_a_writer_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(KeyboardInterrupt), PackedWriter(tmp_path / "part.parquet") as writer:
        writer.write(rows(0, 25))
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", [{"ids": np.zeros((2, 3))}, {"label": np.zeros(2, np.float32)}, {"price": None}])
def test_rows_of_another_type_shape_or_name_are_refused(tmp_path, change):
    wrong = {**rows(0, 2), **{name: rows(0, 2)["label"] if value is None else value for name, value in change.items()}}
    with pytest.raises(ValueError, match="packed rows should be"), PackedWriter(tmp_path / "part.parquet") as writer:
        writer.write(wrong)


def test_shuffled_rows_are_all_there_and_the_seed_alone_decides_their_order(files):
    shuffled = PackedReader(files, 8, shuffle_seed=5)
    first = list(shuffled)
    assert_whole(first)
    np.random.seed(0)
    order = numbers(first)
    assert order == numbers(shuffled) == numbers(PackedReader(files[::-1], 8, shuffle_seed=5))
    assert order == numbers(PackedReader(files, 50, shuffle_seed=5))
    assert sorted(order) == list(range(123)) != order
    assert order != numbers(PackedReader(files, 8, shuffle_seed=6))


def test_rows_of_all_files_meet_in_a_batch(files):
    """123 rows in three windows of 41 or so: each holds blocks of all the log, and its rows lie in no order."""
    order = np.array(numbers(PackedReader(files, 8, shuffle_seed=5)))
    for window in np.array_split(order, 3):
        assert window.max() - window.min() > 60
        assert np.abs(np.diff(window)).mean() > 15


def test_few_rows_are_shuffled_as_a_whole(files, monkeypatch):
    """Any row may come first: over many seeds the first rows are spread evenly over the log."""
    monkeypatch.setattr(packed, "SHUFFLE_ROWS", 200)
    first = [numbers(PackedReader(files, 8, shuffle_seed=seed, take=1))[0] for seed in range(200)]
    counts = np.histogram(first, bins=4, range=(0, 123))[0]
    assert counts.min() > 30  # 50 are expected, with a standard deviation of 6


def test_a_window_is_in_the_order_of_its_permutation(files, monkeypatch):
    monkeypatch.setattr(packed, "SHUFFLE_ROWS", 200)
    assert numbers(PackedReader(files, 8, shuffle_seed=5)) == np.random.default_rng([5, 1]).permutation(123).tolist()


@pytest.mark.parametrize("seed", [None, 3])
def test_the_rows_of_a_window_are_in_memory_once(tmp_path, monkeypatch, seed):
    """Arrow holds one block at a time beside the arrays of the window."""
    monkeypatch.setattr(packed, "BLOCK_ROWS", 1000)
    monkeypatch.setattr(packed, "SHUFFLE_ROWS", 40_000)
    monkeypatch.setattr(packed, "READ_ROWS", 40_000)
    write(tmp_path / "packed.parquet", rows(0, 40_000))
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        window = next(PackedReader([tmp_path / "packed.parquet"], 8, seed).windows())
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < sum(values.nbytes for values in window.values()) / 4


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(("skip", "take"), [(0, 4), (5, 3), (9, None), (13, 9), (40, 2)])
def test_a_part_of_the_batches_is_what_the_whole_has_there(files, seed, skip, take):
    batches = list(PackedReader(files, 8, seed))
    end = None if take is None else skip + take
    reader = PackedReader(files, 8, seed, skip, take)
    part = list(reader)
    assert [numbers([batch]) for batch in part] == [numbers([batch]) for batch in batches[skip:end]]
    assert reader.rows == len(numbers(part))


def test_what_is_skipped_is_not_read(files):
    damage(files[0], 0.3)
    assert numbers(PackedReader(files, 10, skip=9)) == list(range(90, 123))


def test_windows_are_read_side_by_side_and_come_in_their_order(files, monkeypatch):
    alone = numbers(PackedReader(files, 50, 1))
    side_by_side, read, met = threading.Barrier(2), PackedReader._read, []

    def both(reader, *given):
        if not met:  # the first two windows wait for one another
            side_by_side.wait(timeout=5)
            met.append(True)
        return read(reader, *given)

    monkeypatch.setattr(PackedReader, "_read", both)
    assert numbers(PackedReader(files, 50, 1)) == alone
    assert met


def test_memory_bounds_how_many_windows_are_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "cores", lambda: 16)
    for slots, windows in ((3, packed.MOST_AHEAD), (1000, packed.LEAST_AHEAD)):
        monkeypatch.setattr(packed, "SHUFFLE_ROWS", 200_000)
        write(tmp_path / f"{slots}.parquet", rows(0, 5, slots))
        assert PackedReader([tmp_path / f"{slots}.parquet"], 5)._ahead() == windows


def test_a_consumer_that_stops_early_leaves_no_thread(files):
    before = threading.active_count()
    batches = iter(PackedReader(files, 8, shuffle_seed=1))
    next(batches)
    assert threading.active_count() > before
    batches.close()
    assert threading.active_count() == before
    for _ in PackedReader(files, 8, shuffle_seed=1):
        break
    assert threading.active_count() == before


def damage(path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_changed_byte_is_found_and_the_file_named(tmp_path, seed):
    """Without the checksum, training would use the damaged id."""
    random = np.random.default_rng(0)
    file = tmp_path / "part.parquet"
    write(file, {**rows(0, 400), "ids": random.integers(0, 1 << 30, (400, 3), np.int32)})
    ids = pq.read_metadata(file).row_group(12).column(0)
    assert ids.path_in_schema.startswith("ids")
    damage(
        file, (ids.data_page_offset + 0.6 * ids.total_compressed_size) / file.stat().st_size
    )  # not in a page's header
    threads = threading.active_count()
    with pytest.raises(InputError, match=r"part\.parquet: cannot be read \(.*\); delete the run's output") as error:
        list(PackedReader(packed_files(tmp_path), 8, seed))
    assert "\n" not in str(error.value)
    assert threading.active_count() == threads


@pytest.mark.parametrize("keep", [0, 3, 0.5, 0.99])
def test_a_truncated_file_is_named(files, keep):
    content = files[1].read_bytes()
    files[1].write_bytes(content[: int(keep * len(content)) if keep < 1 else keep])
    with pytest.raises(InputError, match=r"part-1\.parquet: cannot be read"):
        PackedReader(files, 8)
    with pytest.raises(InputError, match=r"part-1\.parquet: cannot be read"):
        packed_rows(files)


def test_a_file_that_goes_while_others_are_read_is_named(files):
    reader = PackedReader(files, 8)
    files[2].unlink()
    with pytest.raises(InputError, match=r"part-2\.parquet: cannot be read"):
        list(reader)


def test_files_of_another_log_are_refused(files):
    other = files[0].with_name("part-9.parquet")
    write(other, rows(0, 5, slots=4))
    with pytest.raises(InputError, match=r"part-9\.parquet: its rows are packed differently from those of .*part-0"):
        PackedReader([*files, other], 8)


def test_another_parquet_file_is_refused(tmp_path):
    pa.parquet.write_table(pa.table({"label": [1.0]}), tmp_path / "part.parquet")
    with pytest.raises(InputError, match=r"part\.parquet: not a file of packed rows"):
        PackedReader(packed_files(tmp_path), 8)


def test_any_parquet_reader_finds_the_rows_in_blocks(files):
    """Little-endian numbers side by side, one binary value a row."""
    with pa.parquet.ParquetFile(files[2]) as file:
        assert [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)] == [10] * 4 + [5]
        ids = file.read()["ids"].to_pylist()
    assert [np.frombuffer(row, "<i4").tolist() for row in ids] == rows(78, 45)["ids"].tolist()
