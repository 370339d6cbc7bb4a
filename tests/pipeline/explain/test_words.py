"""Attention to a text by loops in numpy, and the words that are attended to."""

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.pipeline.explain import words as words_module
from ctrpipe.pipeline.explain.words import attended_words
from ctrpipe.transforms.log.kinds.text import Text
from tests.models.small_models import batch_of, randomised


def by_loops(layer, query: np.ndarray, states: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Algorithm 1 of the paper for one query of one row, without the b that the softmax cancels."""
    part = {
        name: np.asarray(getattr(layer, name), np.float64) for name in dir(layer) if name.endswith(("kernel", "bias"))
    }
    q = query @ part["query_kernel"] + part["query_bias"]
    scores = []
    for state in states[used]:
        k = state @ part["key_kernel"] + part["key_bias"]
        hidden = np.tanh(np.concatenate([q, k]) @ part["align_kernel"] + part["align_bias"])
        scores.append(hidden @ np.asarray(layer.score, np.float64))
    weights = np.zeros(len(states))
    weights[used] = np.exp(scores) / np.exp(scores).sum()
    return weights


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert4ctr", "numbert_uni_attention"])
def test_attention_to_the_text_is_that_of_the_papers_algorithm(name):
    model, inputs = randomised(name), batch_of(name)
    maps = [np.asarray(each) for each in model.text_attention(inputs)]
    queries = model.reduced(model.rows(inputs), inputs) if name == "bert4ctr" else model.number_rows(inputs)
    states = [np.asarray(each, np.float64) for each in model.states(inputs)]
    used = inputs["tokens"] != model.feature_map.text.padding_id
    assert len(maps) == 2 and maps[0].shape == (len(used), len(model.text_queries()), used.shape[1])
    for row, query in ((0, 0), (2, 1)):
        expected = by_loops(
            model.uni_attention[0].attention, np.asarray(queries)[row, query], states[1][row], used[row]
        )
        np.testing.assert_allclose(maps[0][row, query], expected, atol=1e-5)
    np.testing.assert_allclose(maps[1].sum(axis=2), 1, atol=1e-5)
    assert not maps[1][np.broadcast_to(~used[:, None], maps[1].shape)].any()


class LooksAtSeven:
    """A model of two queries; the first looks at the token 7 alone, the second at all alike."""

    def __init__(self):
        self.feature_map = randomised("bert4ctr").feature_map

    def text_queries(self):
        return ["age", "age"]

    def text_attention(self, inputs):
        used = inputs["tokens"] != self.feature_map.text.padding_id
        seven = (inputs["tokens"] == 7).astype(float)
        alike = used / used.sum(axis=1, keepdims=True)
        return [np.stack([seven, alike], axis=1)]


def test_a_words_attention_is_beside_that_of_every_token(monkeypatch):
    monkeypatch.setattr(words_module, "LEAST_WORDS", 2)
    model = LooksAtSeven()
    pad = model.feature_map.text.padding_id
    first = {"tokens": np.array([[2, 7, 9, 3], [2, 7, 3, pad]])}
    second = {"tokens": np.array([[2, 9, 7, 8]])}
    rows = pa.table({"title": pa.array([b"a|b", b"a", b"b|a"], pa.binary())})
    feature = Text(kind="text", columns=["title"], length=4, tokens="vocabulary", separator="|")
    [found] = attended_words(model, [first, second], rows, feature)
    assert (found.layer, found.query) == (1, "age")
    by_count = {(word.count, round(word.attention, 6)) for word in found.words}
    # 7: the mean of both queries, 1 and 1 / length, times the length: 2.5, 2 and 2.5 in three rows; of the others 0.5.
    assert (3, round((2.5 + 2 + 2.5) / 3, 6)) in by_count and {a for c, a in by_count if c == 2} == {0.5}
    assert found.words[0].count == 3 and len(found.words) == 4
