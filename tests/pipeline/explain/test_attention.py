"""Attention over batches of rows, the names of tokens, and the pairs that are picked."""

import numpy as np
import pytest

from ctrpipe.models import create
from ctrpipe.pipeline.explain.attention import attention_of_rows, picked_pairs, token_names
from tests.models.small_models import batch, randomised


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("attention_net", []),
        ("autoint", ["x", "z"]),
        ("hiformer", ["dense token 1", "dense token 2", "ctr"]),
    ],
)
def test_maps_are_averaged_over_all_batches(name, rest):
    model, rows = randomised(name), batch(7)
    batches = [{key: value[part] for key, value in rows.items()} for part in (slice(0, 3), slice(3, 7))]
    found, _ = attention_of_rows(model, batches)
    names = [field.name for field in model.feature_map.fields] + rest
    assert list(token_names(model)) == names
    for layer, whole in zip(found, model.attention_maps(rows), strict=True):
        whole = np.asarray(whole)
        np.testing.assert_allclose(layer.heads, whole.mean(axis=0), atol=1e-6)
        k = 2 if name == "attention_net" else 5
        place = np.argsort(np.argsort(-whole, axis=-1), axis=-1)
        expected = ((place < k) & (whole > 0)).mean(axis=(0, 1))
        assert (np.array(layer.picked) >= expected - 1e-9).all()  # ties with the last are picked too
        assert list(layer.queries) == names[-whole.shape[2] :] and list(layer.tokens) == names
    assert bool(found[0].ranks) == (name == "hiformer")


def test_the_ranks_are_those_of_the_singular_values():
    model = randomised("hiformer")
    for layer, heads in zip(attention_of_rows(model, [batch(3)])[0], model.singular_values(), strict=True):
        for (low, high), values in zip(layer.ranks, heads, strict=True):
            squares = np.sort(values)[::-1] ** 2 / (values**2).sum()
            assert squares[:low].sum() >= 0.9 > squares[: low - 1].sum()
            assert squares[:high].sum() >= 0.99 > squares[: high - 1].sum()


def test_a_pair_is_picked_in_both_directions():
    layers, rows = attention_of_rows(randomised("attention_net"), [batch(7)])
    shares = [np.array(layer.picked) for layer in layers]
    expected = np.mean([[each[0, 5], each[5, 0]] for each in shares])
    assert picked_pairs(rows)[frozenset(("f0", "m"))] == pytest.approx(expected)
    assert rows.of("m", "f0").mean() == pytest.approx(expected) and rows.of("f0", "gone") is None


@pytest.mark.slow
def test_tokens_that_are_never_queries_are_not_picked_for_each_other():
    model = create("hiformer", randomised("hiformer").feature_map, embedding_dim=4, heads=2, key_dim=3, value_dim=2)
    model(batch(7))
    layers, rows = attention_of_rows(model, [batch(7)])  # one layer, which has the task token alone as a query
    assert rows.of("f0", "m") is None and frozenset(("f0", "m")) not in picked_pairs(rows)
    assert rows.of("f0", "ctr").mean() == pytest.approx(np.array(layers[-1].picked)[0, 0])
