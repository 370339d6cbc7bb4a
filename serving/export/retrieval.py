"""Adds retrieval of items to an exported two-tower model.

The signature `serving_retrieve` is exact; `serving_retrieve_approximate` reads only a part of the items. The item
vectors are weights of the version, and its graph computes the dot products with TensorFlow's own operations. Any server
of the model therefore serves the index, and user and item vectors always come from the same version.
"""

import dataclasses
import functools
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from ctrpipe.common.libraries import load_text_operations
from ctrpipe.serving.assets import GoldenRows, read_log_spec
from ctrpipe.serving.export.export import USER_VECTORS, VECTORS, Tensors, arguments_of, name_inputs, predict_log
from ctrpipe.serving.layout import ASSETS, SAVED_MODEL, Asset, asset_path, write_checksums

RETRIEVE, APPROXIMATE = "serving_retrieve", "serving_retrieve_approximate"
ITEMS, SCORES = "items", "scores"
Names = npt.NDArray[np.object_]
Vectors = npt.NDArray[np.float32]
Search = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
BLOCK = 32  # items in a block; blocks are compared by their largest dot product
# Users are searched in groups whose dot products, or gathered vectors, take about so many bytes: a request of many
# users takes no more memory than one group.
GROUP_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True)
class Cells:
    """A partition of the item vectors into cells, for an inverted file index.

    A search reads only the vectors of a few cells.

    Attributes:
        centers: The centers of the cells, float32 [C, vector_dim].
        of_vector: The cell of each item, int32 [M].
        probes: The number of cells that a search reads: those with the largest dot products of center and user vector.

    References:
        Jégou et al., "Product Quantization for Nearest Neighbor Search", 2011, section IV; without quantization.
    """

    centers: Vectors
    of_vector: npt.NDArray[np.int32]
    probes: int


def _in_groups(search: Search, users: tf.Tensor, floats: int, top: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Runs `search` on users [N, vector_dim] in groups, and returns all results.

    Args:
        search: Finds the scores and places of a group of users.
        users: The user vectors.
        floats: Number of floats that the search computes per user.
        top: Number of items found per user.
    """
    size = max(1, GROUP_BYTES // (4 * floats))
    groups = (tf.shape(users)[0] + size - 1) // size
    shape = tf.TensorShape([None, top])
    arrays = [tf.TensorArray(kind, groups, infer_shape=False, element_shape=shape) for kind in (tf.float32, tf.int32)]

    def search_next(group: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        answers = search(users[group * size : (group + 1) * size])
        return group + 1, *(array.write(group, answer) for array, answer in zip(arrays, answers, strict=True))

    _, *arrays = tf.while_loop(lambda group, *_: group < groups, search_next, (0, *arrays), parallel_iterations=1)
    scores, places = (array.concat() for array in arrays)
    return scores, places


class ExactSearch:
    """Finds the items with the largest dot products, among all vectors.

    The `top` largest products lie in the `top` blocks with the largest maxima. Searching these blocks takes a fraction
    of the time of TensorFlow's top_k over all products. That top_k would take half of the search.

    Args:
        vectors: The item vectors, float32 [M, vector_dim].
        top: The number of items to return; at most M.
    """

    def __init__(self, vectors: tf.Variable, top: int):
        self.top = top
        self._vectors = vectors
        self._blocks = vectors.shape[0] // BLOCK

    def __call__(self, users: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns scores, float32 [N, top], and vector indices, int32 [N, top], for users [N, vector_dim]."""
        search = functools.partial(self._search, tf.convert_to_tensor(self._vectors))
        return _in_groups(search, users, self._vectors.shape[0], self.top)

    def _search(self, vectors: tf.Tensor, users: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if self._blocks <= self.top:
            scores, places = tf.math.top_k(tf.matmul(users, vectors, transpose_b=True), self.top)
            return scores, places
        end = self._blocks * BLOCK
        products = tf.reshape(tf.matmul(users, vectors[:end], transpose_b=True), [-1, self._blocks, BLOCK])
        _, blocks = tf.math.top_k(tf.reduce_max(products, axis=2), self.top)
        within = tf.reshape(tf.gather(products, blocks, batch_dims=1), [-1, self.top * BLOCK])
        places = tf.reshape(blocks[:, :, None] * BLOCK + tf.range(BLOCK), [-1, self.top * BLOCK])
        behind = tf.matmul(users, vectors[end:], transpose_b=True)  # the last vectors, which do not fill a block
        behind_places = tf.zeros_like(behind, tf.int32) + tf.range(end, vectors.shape[0])
        scores, best = tf.math.top_k(tf.concat([within, behind], axis=1), self.top)
        return scores, tf.gather(tf.concat([places, behind_places], axis=1), best, batch_dims=1)


class CellSearch(tf.Module):
    """Finds the items with the largest dot products, among the cells nearest to the user.

    If the probed cells contain fewer than `top` items, further cells are read. A result always has `top` items.

    Args:
        vectors: The item vectors, float32 [M, vector_dim], ordered by cell.
        cells: The partition into cells.
        top: The number of items to return; at most M.
    """

    def __init__(self, vectors: tf.Variable, cells: Cells, top: int):
        super().__init__()
        sizes = np.bincount(cells.of_vector, minlength=len(cells.centers))
        enough = int(np.searchsorted(np.cumsum(np.sort(sizes)), top)) + 1  # any `enough` cells have `top` items
        self.probes, self.top, self._most = cells.probes, top, max(cells.probes, enough)
        read = np.sort(sizes)[::-1][: self._most].sum()
        self._floats = max(1, int(read)) * vectors.shape[1]
        self._vectors = vectors
        self._centers = tf.Variable(cells.centers, trainable=False)
        self._starts = tf.Variable(np.append(0, np.cumsum(sizes)).astype(np.int32), trainable=False)

    def __call__(self, users: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns scores, float32 [N, top], and vector indices, int32 [N, top], for users [N, vector_dim]."""
        # A read, because a gather from a variable makes each later read copy it, in the exact search too.
        search = functools.partial(self._search, tf.convert_to_tensor(self._vectors))
        return _in_groups(search, users, self._floats, self.top)

    def _search(self, vectors: tf.Tensor, users: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        _, cells = tf.math.top_k(tf.matmul(users, self._centers, transpose_b=True), self._most)
        starts = tf.gather(self._starts, cells)
        sizes = tf.gather(self._starts, cells + 1) - starts
        is_probed = tf.range(self._most) < self.probes
        is_read = is_probed | (tf.cumsum(sizes, axis=1, exclusive=True) < self.top)
        ends = starts + tf.where(is_read, sizes, 0)
        ranges = tf.ragged.range(tf.reshape(starts, [-1]), tf.reshape(ends, [-1]))
        of_user = tf.gather(ranges.row_splits, self._most * tf.range(tf.shape(users)[0] + 1))
        places = tf.RaggedTensor.from_row_splits(ranges.values, of_user, validate=False).to_tensor(-1)
        products = tf.linalg.matvec(tf.gather(vectors, tf.maximum(places, 0)), users)
        scores, best = tf.math.top_k(tf.where(places < 0, -np.inf, products), self.top)
        return scores, tf.gather(places, best, batch_dims=1)


class ItemIndex(tf.Module):
    """The items and the searches over them.

    The names and vectors of the items are variables, because a graph is limited to 2 GB.

    Args:
        names: The names of the items, bytes [M].
        vectors: The vectors of the items, float32 [M, vector_dim].
        top: The number of items to return; at most M.
        cells: The partition for the approximate search; None: only the exact search.
    """

    def __init__(self, names: Names, vectors: Vectors, top: int, cells: Cells | None = None):
        super().__init__()
        if cells is not None:
            order = np.argsort(cells.of_vector, kind="stable")
            names, vectors = names[order], vectors[order]
        self._names = tf.Variable(tf.constant(names, tf.string), trainable=False)
        self._vectors = tf.Variable(vectors, trainable=False)
        self._searches: dict[str, Search] = {RETRIEVE: ExactSearch(self._vectors, top)}
        if cells is not None:
            self._cells = CellSearch(self._vectors, cells, top)
            self._searches[APPROXIMATE] = self._cells

    @property
    def signatures(self) -> tuple[str, ...]:
        """The names of the index's signatures."""
        return tuple(self._searches)

    def best(self, signature: str, users: tf.Tensor) -> Tensors:
        """Returns the names and scores of the best items for user vectors [N, vector_dim]."""
        scores, places = self._searches[signature](users)
        return {ITEMS: tf.gather(self._names, places), SCORES: scores}


class _Indexed(tf.Module):
    """A loaded version with the index of its items."""

    def __init__(self, version: pathlib.Path, index: ItemIndex):
        super().__init__()
        load_text_operations()
        self._loaded = tf.saved_model.load(str(version))
        self._index = index

    def _signature(self, name: str) -> Any:
        """Returns the signature that finds the best items of each user."""
        user = self._loaded.signatures[USER_VECTORS]

        @tf.function(autograph=False)
        def serving_retrieve(**tensors: tf.Tensor) -> Tensors:
            return self._index.best(name, user(**tensors)[VECTORS])

        # A loaded signature's own names of its inputs are in lower case.
        _, inputs = user.structured_input_signature
        named = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in inputs.items()}
        return serving_retrieve.get_concrete_function(**named)

    def all_signatures(self) -> dict[str, Any]:
        """Returns the version's signatures, with the index's signatures in place of a previous index's."""
        former = {name: one for name, one in self._loaded.signatures.items() if name not in (RETRIEVE, APPROXIMATE)}
        return former | {name: self._signature(name) for name in self._index.signatures}


def add_index(
    version: pathlib.Path, names: Names, vectors: Vectors, top: int, path: pathlib.Path, cells: Cells | None = None
) -> None:
    """Writes a copy of a version with `serving_retrieve`, which finds the best items for a user.

    Its outputs are `items`, bytes [N, top], best first, and `scores`, float32 [N, top], the dot products of the
    vectors. With `cells`, the copy also has `serving_retrieve_approximate`, with the same outputs for the probed cells
    only. The copy does not keep a previous index.

    Args:
        version: An exported version with the signature `serving_user`.
        names: The names of the items, bytes [M].
        vectors: The vectors of the items, float32 [M, vector_dim].
        top: The number of items to return; at most M.
        path: The folder to write.
        cells: The partition for the approximate search; None: only the exact search.
    """
    indexed = _Indexed(version, ItemIndex(names, vectors, top, cells))
    signatures = indexed.all_signatures()
    tf.saved_model.save(indexed, str(path), signatures=signatures)
    spec = read_log_spec(version)
    name_inputs(path / SAVED_MODEL, {argument: name for name, argument in arguments_of(spec).items()})
    shutil.copytree(version / ASSETS, path / ASSETS)
    golden = GoldenRows.load(asset_path(version, Asset.GOLDEN))
    row = {name: values[:1] for name, values in golden.raw.items() if name not in spec.item_columns}
    requests = [predict_log(name, row).SerializeToString() for name in (RETRIEVE, APPROXIMATE) if name in signatures]
    _replace_requests(asset_path(path, Asset.WARMUP), requests)
    write_checksums(path)  # the copy's files may have other names


def _replace_requests(file: pathlib.Path, requests: list[bytes]) -> None:
    """Adds warm-up requests and removes those of a previous index.

    A server refuses a version that fails on a warm-up request.
    """
    former = [
        record
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
        if PredictionLog.FromString(record).predict_log.request.model_spec.signature_name not in (RETRIEVE, APPROXIMATE)
    ]
    with tf.io.TFRecordWriter(str(file)) as writer:
        for one in [*former, *requests]:
            writer.write(one)
