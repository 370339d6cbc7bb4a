"""A version whose vocabulary is damaged is not loaded."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.serving.layout import Asset, asset_path, make_assets_folder, write_checksums
from ctrpipe.serving.loader import Servable


class _Words(tf.Module):
    """Looks up words in a vocabulary file."""

    def __init__(self, file: pathlib.Path):
        super().__init__()
        indexer = tf.lookup.TextFileIndex
        table = tf.lookup.TextFileInitializer(str(file), tf.string, indexer.WHOLE_LINE, tf.int64, indexer.LINE_NUMBER)
        self._table = tf.lookup.StaticHashTable(table, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def find(self, word: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"id": self._table.lookup(word)}


@pytest.fixture
def version(tmp_path):
    (tmp_path / "words.txt").write_text("red\ndress\nhat\n")
    module = _Words(tmp_path / "words.txt")
    tf.saved_model.save(module, str(tmp_path / "1"), signatures={"serving_default": module.find})
    make_assets_folder(tmp_path / "1")
    return tmp_path / "1"


def answer(version: pathlib.Path) -> list[int]:
    servable = Servable(version, threads=1)
    try:
        return servable.run("serving_default", {"word": np.array([b"hat", b"red"], object)})["id"].tolist()
    finally:
        servable.close()


def test_a_damaged_or_missing_vocabulary_is_one_line(version):
    write_checksums(version)
    assert answer(version) == [2, 0]
    (vocabulary,) = (version / "assets").iterdir()
    vocabulary.write_text("red\nhat\ndress\n")  # as long as before
    with pytest.raises(InputError, match=r"words.txt: differs from what was exported; push the model again"):
        Servable(version)
    vocabulary.unlink()
    with pytest.raises(InputError, match=r"words.txt: cannot be read \(No such file or directory\); push"):
        Servable(version)


def test_a_version_without_weights_is_not_loaded(version):
    """A copy that has come as far as the graph; TensorFlow would load it."""
    write_checksums(version)
    (version / "variables").rename(version / "weights")
    with pytest.raises(InputError, match=r"variables/variables.index: is missing; push the model again"):
        Servable(version)
    (version / "weights").rename(version / "variables")
    assert answer(version) == [2, 0]


@pytest.mark.timeout(30)
def test_what_never_ends_is_not_loaded(version):
    write_checksums(version)
    (vocabulary,) = (version / "assets").iterdir()
    os.truncate(vocabulary, 1 << 40)  # it is not read
    with pytest.raises(InputError, match=r"words.txt: differs from what was exported; push the model again"):
        Servable(version)
    for file in (vocabulary, version / "saved_model.pb"):
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(InputError, match=f"{file.name}: a named pipe, which may never end"):
            Servable(version)


def test_checksums_without_sizes_are_compared(version):
    write_checksums(version)
    file = asset_path(version, Asset.CHECKSUMS)
    file.write_text(json.dumps({"sha256": json.loads(file.read_text())["sha256"]}))
    assert answer(version) == [2, 0]
    (vocabulary,) = (version / "assets").iterdir()
    vocabulary.write_text("red\n")
    with pytest.raises(InputError, match=r"words.txt: differs from what was exported"):
        Servable(version)


@pytest.mark.parametrize("contents", ["", "{", "[]", "{}", '{"sha256": 1}'])
def test_damaged_checksums_are_one_line(version, contents):
    asset_path(version, Asset.CHECKSUMS).write_text(contents)
    with pytest.raises(InputError, match=r"checksums.json: damaged; push the model again"):
        Servable(version)


def test_checksums_behind_a_link_to_nowhere_are_not_overlooked(version):
    asset_path(version, Asset.CHECKSUMS).symlink_to("absent")
    with pytest.raises(InputError, match=r"checksums.json: cannot be read \(No such file or directory\); push"):
        Servable(version)


def test_a_version_without_checksums_is_loaded(version):
    (vocabulary,) = (version / "assets").iterdir()
    vocabulary.write_text("red\nhat\ndress\n")
    assert answer(version) == [1, 0]
