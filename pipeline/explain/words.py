"""The words of a text that a model's features attend to, by the uni-attention of BERT4CTR."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ctrpipe.pipeline.explain.rows import token_names
from ctrpipe.transforms.log.kinds.text import Text

LEAST_WORDS = 20  # minimum occurrences of a listed word
SHOWN_WORDS = 20


@dataclasses.dataclass(frozen=True)
class Word:
    """A token of the texts' vocabulary.

    Attributes:
        word: The token.
        count: Its number of occurrences in the sample.
        attention: The mean attention weight of the query on the token, times the number of tokens in the text. Uniform
            attention gives 1.
    """

    word: str
    count: int
    attention: float


@dataclasses.dataclass(frozen=True)
class WordsOfQuery:
    """The words that a query attends to in a layer, the most attended first.

    Attributes:
        layer: The layer, from 1.
        query: The query: a column, or all features together.
        words: The words that occur often enough.
    """

    layer: int
    query: str
    words: tuple[Word, ...]


def attended_words(
    model: Any, batches: Iterable[Mapping[str, npt.NDArray[Any]]], rows: pa.Table, feature: Text
) -> list[WordsOfQuery]:
    """Returns the words that each query attends to in each layer.

    Args:
        model: A model with `text_attention` and `text_queries`.
        batches: Packed tensors of the rows, one batch or more.
        rows: The raw rows.
        feature: The description of the text's columns.
    """
    text = model.feature_map.text
    queries = model.text_queries()
    names = list(dict.fromkeys(queries))
    totals: list[npt.NDArray[np.float64]] = []
    counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
    tokens = []
    for batch in batches:
        ids = batch["tokens"]
        used = ids != text.padding_id
        size = int(max(ids.max() + 1, len(counts)))
        counts = np.pad(counts, (0, size - len(counts))) + np.bincount(ids[used], minlength=size)
        lengths = used.sum(axis=1, keepdims=True)
        for layer, weights in enumerate(model.text_attention(dict(batch))):
            if layer == len(totals):
                totals.append(np.zeros((len(names), 0)))
            totals[layer] = np.pad(totals[layer], ((0, 0), (0, size - totals[layer].shape[1])))
            weights = np.asarray(weights, np.float64)
            for place, name in enumerate(names):
                of_query = weights[:, [query == name for query in queries]].mean(axis=1) * lengths
                totals[layer][place] += np.bincount(ids[used], of_query[used], size)
        tokens.append(ids)
    often = np.flatnonzero(counts >= LEAST_WORDS)
    vocabulary = _names_of(set(often.tolist()), tokens, rows, feature, text)
    attended = []
    for layer, total in enumerate(totals):
        for place, name in enumerate(names):
            attention = total[place, often] / counts[often]
            best = np.argsort(-attention, kind="stable")[:SHOWN_WORDS]
            words = [Word(vocabulary[int(often[b])], int(counts[often[b]]), float(attention[b])) for b in best]
            attended.append(WordsOfQuery(layer + 1, name, tuple(words)))
    return attended


def _names_of(
    wanted: set[int], tokens: list[npt.NDArray[Any]], rows: pa.Table, feature: Text, text: Any
) -> dict[int, str]:
    """Returns the text of each wanted token, from the first row that contains it."""
    names: dict[int, str] = {}
    row = 0
    for batch in tokens:
        for ids in batch:
            if wanted & set(ids.tolist()) - names.keys():
                used = ids[ids != text.padding_id]
                words = token_names(rows.slice(row, 1), ids, feature, text)
                names |= {int(token): name for token, name in zip(used, words, strict=True)}
            row += 1
    return names
