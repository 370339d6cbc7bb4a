"""The rows that `python -m benchmarks.parity` gives to both sides, where they have histories."""

import numpy as np
import pytest

from benchmarks import parity
from benchmarks.parity import CASES, ITEMS, ROWS, Case, Given, our_model, packed, rows_of
from benchmarks.peers.client import Peer

WITH_HISTORY = [case for case in CASES if case.history]


@pytest.mark.parametrize("case", WITH_HISTORY, ids=lambda case: f"{case.model}-{case.variant}")
def test_a_history_has_every_length_and_never_its_candidate(case):
    ids = rows_of(case)
    candidates, items = ids[:, :1], ids[:, len(case.sizes) :]
    assert not (items == candidates).any() and items.max() < case.sizes[0]
    lengths = (items > 0).sum(axis=1)
    assert set(lengths) == set(range(1, ITEMS + 1)) and (np.sort(items == 0, axis=1) == (items == 0)).all()


def test_items_have_the_ids_of_the_candidate_and_padding_stays():
    case = next(case for case in WITH_HISTORY if case.model == "fism")
    model, ids = our_model(case), np.array([[3, 1, 3, 5, 0, 0, 0, 0, 0]])
    assert packed(case, model, ids).tolist() == [[4, 1 + 30 + 1, 4, 6, 0, 0, 0, 0, 0]]
    assert len(set(rows_of(case)[:, 1])) == ROWS  # a user a row


class Similar(Peer):
    """Stands in for RecBole's FISM, computed from the weights as its code does."""

    def __init__(self):
        pass

    def shapes(self, model, sizes, dim, **options):
        return {"candidates": (sizes[0], dim), "items": (sizes[0], dim), "linear": (sum(sizes),)}

    def forward(self, model, weights, ids, sizes=None, **options):
        counted = ids[:, 2:] > 0
        vectors = weights["items"][ids[:, 2:]] * counted[:, :, None]
        products = np.einsum("nd,nld->n", weights["candidates"][ids[:, 0]], vectors)
        biases = weights["linear"][ids[:, 0]] + weights["linear"][sizes[0] + ids[:, 1]]
        return products / np.sqrt(counted.sum(axis=1)) + biases


def test_the_peers_weights_give_its_logits():
    case = next(case for case in CASES if case.model == "fism")
    found = parity.compare(case, Similar())
    assert found["difference"] < 1e-5 and found["logits"][1] > 1


def test_nais_of_both_orders_of_the_attentions_inputs():
    case = next(case for case in CASES if case.variant == "concat")
    model, width = our_model(case), 2 * parity.DIM
    kernel = np.arange(width * 6, dtype=np.float32).reshape(width, 6)
    given = {"attention/kernel_0": kernel, "attention/bias_0": np.zeros(6), "attention/projection": np.ones((6, 1))}
    parity.smoothed_attention(model, Given(given))
    found = np.asarray(model.attentions[0].hidden.kernel)
    assert (found[: parity.DIM] == kernel[parity.DIM :]).all() and (found[parity.DIM :] == kernel[: parity.DIM]).all()


def test_without_histories_the_rows_are_those_of_the_fields():
    assert rows_of(Case("recbole", "fm", ())).shape == (ROWS, len(parity.SIZES))
