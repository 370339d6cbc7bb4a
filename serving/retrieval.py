"""Adds an exact index of items to an exported model with towers: the signature `serving_retrieve`.

The vectors are weights of the version and the products are its graph's, of TensorFlow's own operations: whatever serves
the model serves the index, and no version can meet another one's vectors.
"""

import pathlib
import shutil
from typing import Any

import keras_rs
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from common.libraries import load_text_operations
from serving.assets import GoldenRows, read_log_spec
from serving.export import USER_VECTORS, VECTORS, Tensors, arguments_of, name_inputs, predict_log
from serving.layout import ASSETS, SAVED_MODEL, Asset, asset_path

RETRIEVE = "serving_retrieve"
ITEMS, SCORES = "items", "scores"
Names = npt.NDArray[np.object_]
Vectors = npt.NDArray[np.float32]


class _Indexed(tf.Module):
    """A loaded version and its items: their names and vectors are variables, as a graph holds at most 2 GB."""

    def __init__(self, version: pathlib.Path, names: Names, vectors: Vectors, top: int):
        super().__init__()
        load_text_operations()
        self._loaded = tf.saved_model.load(str(version))
        self._names = tf.Variable(tf.constant(names, tf.string), trainable=False)
        search = keras_rs.layers.BruteForceRetrieval(vectors, k=top)
        self._vectors = search.candidate_embeddings.value
        self._search = search.call

    def retrieve(self, vectors: tf.Tensor) -> Tensors:
        """Returns the names and the products of the best items of each user's vector."""
        scores, places = self._search(vectors)
        return {ITEMS: tf.gather(self._names, places), SCORES: scores}

    def all_signatures(self) -> dict[str, Any]:
        """Returns the version's signatures and the index's."""
        user = self._loaded.signatures[USER_VECTORS]

        @tf.function(autograph=False)
        def serving_retrieve(**tensors: tf.Tensor) -> Tensors:
            return self.retrieve(user(**tensors)[VECTORS])

        columns = user.structured_input_signature[1]
        return {**self._loaded.signatures, RETRIEVE: serving_retrieve.get_concrete_function(**columns)}


def add_index(version: pathlib.Path, names: Names, vectors: Vectors, top: int, path: pathlib.Path) -> None:
    """Writes a copy of a version that also has `serving_retrieve`: a user's columns in, the best items out.

    It answers `items`, bytes [N, top], the best first, and `scores`, float32 [N, top], the products of the vectors. An
    index that the version has already is left out of the copy.

    Args:
        version: An exported version with `serving_user`.
        names: The items' names, bytes [M].
        vectors: Their vectors, float32 [M, vector_dim].
        top: How many items are answered; at most M.
        path: The folder to write.
    """
    indexed = _Indexed(version, names, vectors, top)
    tf.saved_model.save(indexed, str(path), signatures=indexed.all_signatures())
    spec = read_log_spec(version)
    name_inputs(path / SAVED_MODEL, {argument: name for name, argument in arguments_of(spec).items()})
    shutil.copytree(version / ASSETS, path / ASSETS)
    golden = GoldenRows.load(asset_path(version, Asset.GOLDEN))
    row = {name: values[:1] for name, values in golden.raw.items() if name not in spec.item_columns}
    _add_record(asset_path(path, Asset.WARMUP), predict_log(RETRIEVE, row).SerializeToString())


def _add_record(file: pathlib.Path, record: bytes) -> None:
    """Adds a request to those that a server replays before it takes a version."""
    former = list(tf.data.TFRecordDataset(str(file)).as_numpy_iterator())
    with tf.io.TFRecordWriter(str(file)) as writer:
        for one in [*former, record]:
            writer.write(one)
