"""Batches of packed files, for training and predictions."""

import pathlib
import threading
import time

import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.models import FeatureMap
from ctrpipe.models.base.feature_map import Text
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.data import count_rows, even_batch, packed_batches, packed_reader
from ctrpipe.pipeline.training.tensorflow_learner import make_learner
from ctrpipe.transforms.features import packed_files as packed
from ctrpipe.transforms.features.packed_files import PackedWriter

MAP = FeatureMap.from_sizes([("a", "categorical", 50, 1, "feature"), ("b", "multivalent", 9, 2, "feature")], ("price",))
FIELDS = [field for field in MAP.fields for _ in range(field.slots)]
ROWS = 500


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for name, rows in {"BLOCK_ROWS": 16, "SHUFFLE_ROWS": 100, "READ_ROWS": 100}.items():
        monkeypatch.setattr(packed, name, rows)


@pytest.fixture
def pattern(tmp_path) -> str:
    random = np.random.default_rng(0)
    for index in range(3):
        with PackedWriter(tmp_path / f"part-{index}.parquet") as writer:
            rows = ROWS // 3 + (index < ROWS % 3)
            ids = np.stack([field.offset + random.integers(0, field.size, rows) for field in FIELDS], axis=1)
            numbers = random.normal(size=(2, rows, 1)).astype(np.float32)
            writer.write(
                {"ids": ids.astype(np.int32), "dense": numbers[0], "label": (numbers[1] > 0).astype(np.float32)}
            )
    return f"{tmp_path}/*"


def same(found, expected) -> None:
    for (inputs, label), (wanted, wanted_label) in zip(found, expected, strict=True):
        assert list(inputs) == ["ids", "dense"]
        for name in inputs:
            np.testing.assert_array_equal(inputs[name], wanted[name])
        np.testing.assert_array_equal(label, wanted_label)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(("skip", "take"), [(0, None), (5, 4), (60, 9)])
def test_iterating_again_gives_the_same_batches(pattern, seed, skip, take):
    batches = packed_batches([pattern], MAP, 8, seed, skip, take)
    assert [len(label) for _, label in batches] == [8] * {0: 62, 5: 4, 60: 2}[skip] + [4] * (take != 4)
    same(batches, batches)
    same(batches, packed_reader([pattern], MAP, 8, seed, skip, take))


def test_batches_have_the_types_of_the_packed_tensors(pattern):
    inputs, label = next(iter(packed_batches([pattern], MAP, 8)))
    assert {name: (values.dtype, values.shape) for name, values in {**inputs, "label": label}.items()} == {
        "ids": (np.int32, (8, 3)),
        "dense": (np.float32, (8, 1)),
        "label": (np.float32, (8, 1)),
    }


def test_several_patterns_are_one_log(pattern, tmp_path):
    patterns = [f"{tmp_path}/part-[12]*", f"{tmp_path}/part-0*"]
    same(packed_reader(patterns, MAP, 64), packed_reader([pattern], MAP, 64))
    assert count_rows(patterns) == ROWS
    assert count_rows([pattern] * 2) == 2 * ROWS


@pytest.mark.parametrize(
    ("rows", "most", "expected"),
    [(42_000, 1024, 1000), (1024, 1024, 1024), (1025, 1024, 513), (5, 1024, 5), (10, 3, 3), (7, 1, 1)],
)
def test_an_epochs_rows_are_dealt_evenly_to_as_few_batches_as_can_be(rows, most, expected):
    assert even_batch(rows, most) == expected
    batches = -(-rows // expected)
    assert batches == -(-rows // most) and rows - expected * (batches - 1) > expected - batches


def test_no_file_is_a_mistake_of_one_line(tmp_path):
    for read in (
        lambda: count_rows([f"{tmp_path}/*"]),
        lambda: packed_reader([f"{tmp_path}/*"], MAP, 8),
    ):
        with pytest.raises(InputError, match="the split has no rows"):
            read()


def test_rows_of_another_feature_map_are_refused(pattern):
    other = FeatureMap.from_sizes([("a", "categorical", 50, 1, "feature")], ("price",))
    with pytest.raises(InputError, match=r"part-0.parquet: a row has .*'ids': 3.*'ids': 1.*; transform the log again"):
        packed_reader([pattern], other, 8)


def test_damage_found_while_training_is_a_mistake_of_one_line(pattern, tmp_path):
    path = tmp_path / "part-1.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)
    learner = make_learner(Model(name="lr"), Training(distribution="one_device"), MAP, 1)
    for work in (learner.fit, learner.predict):
        with pytest.raises(InputError, match=r"^\S*part-1.parquet: cannot be read \(.*\); delete .* run again$"):
            work(packed_reader([pattern], MAP, 8, 1))


def test_batches_that_are_not_read_to_their_end_leave_no_thread(pattern):
    def readers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith(packed.THREAD)]

    batches = iter(packed_reader([pattern], MAP, 8, 1))
    next(batches)
    assert readers()
    del batches
    until = time.monotonic() + 10
    while readers():
        assert time.monotonic() < until
        time.sleep(0.01)


# Batches by length ------------------------------------------------------------------------------------------------


def with_texts(path: pathlib.Path, lengths: np.ndarray, width: int) -> FeatureMap:
    """Rows whose first token is their number, of texts of these lengths."""
    tokens = np.where(np.arange(width) < lengths[:, None], 9, 0).astype(np.int32)
    tokens[:, 0] = 10 + np.arange(len(lengths))
    with PackedWriter(path) as writer:
        writer.write({"tokens": tokens, "segments": tokens * 0, "label": tokens[:, :1].astype(np.float32)})
    return FeatureMap((), text=Text(width, 10 + len(lengths)))


def test_texts_of_about_the_same_length_share_a_batch_and_padding_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "SHUFFLE_ROWS", 2000)
    lengths = np.random.default_rng(0).integers(1, 65, 1005)
    fields = with_texts(tmp_path / "a.parquet", lengths, 64)
    batches = list(packed_batches([f"{tmp_path}/a.parquet"], fields, 10, 1, by_length=True))
    found = [inputs["tokens"] for inputs, _ in batches]
    rows = [tokens[:, 0] - 10 for tokens in found]
    assert [len(part) for part in rows] == [10] * 100 + [5]
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(1005))
    widths = [tokens.shape[1] for tokens in found]
    assert widths == [16 * -(-int(lengths[part].max()) // 16) for part in rows]
    assert sum(widths) < 0.7 * 64 * len(widths)  # a third of all tokens was padding
    assert widths[:50] != sorted(widths[:50])  # the batches themselves come as they come
    for (inputs, label), tokens in zip(batches, found, strict=True):
        assert inputs["segments"].shape == tokens.shape
        np.testing.assert_array_equal(label[:, 0], tokens[:, 0])


def test_an_epoch_by_length_goes_on_in_the_middle(tmp_path):
    fields = with_texts(tmp_path / "a.parquet", np.random.default_rng(0).integers(1, 33, 205), 32)
    parts = [
        packed_batches([f"{tmp_path}/a.parquet"], fields, 10, 3, skip, take, by_length=True)
        for skip, take in ((0, None), (0, 7), (7, None))
    ]
    whole, *halves = ([label for _, label in part] for part in parts)
    np.testing.assert_array_equal(np.concatenate(whole), np.concatenate([*halves[0], *halves[1]]))
