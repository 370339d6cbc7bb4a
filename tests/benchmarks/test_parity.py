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
    assert set(lengths) == set(range(case.least, ITEMS + 1)) and (np.sort(items == 0, axis=1) == (items == 0)).all()


def test_items_have_the_ids_of_the_candidate_and_padding_stays():
    case = next(case for case in WITH_HISTORY if case.model == "fism")
    model, ids = our_model(case), np.array([[3, 1, 3, 5, 0, 0, 0, 0, 0]])
    assert packed(case, model, ids).tolist() == [[4, 1 + 30 + 1, 4, 6, 0, 0, 0, 0, 0]]
    assert len(set(rows_of(case)[:, 1])) == ROWS  # a user a row


class Similar(Peer):
    """Replaces RecBole's FISM, computed from the weights as its code does."""

    def __init__(self):
        pass

    def shapes(self, model, sizes, dim, **options):
        return {"candidates": (sizes[0], dim), "items": (sizes[0], dim), "linear": (sum(sizes),)}

    def forward(self, model, weights, ids, sizes=None, **options):
        counted = ids[:, 2:] > 0
        vectors = weights["items"][ids[:, 2:]] * counted[:, :, None]
        products = np.einsum("nd,nld->n", weights["candidates"][ids[:, 0]], vectors)
        biases = weights["linear"][ids[:, 0]] + weights["linear"][sizes[0] + ids[:, 1]]
        return products / np.sqrt(np.maximum(counted.sum(axis=1), 1)) + biases


def test_the_peers_weights_give_its_logits():
    case = next(case for case in CASES if case.model == "fism")
    found = parity.compare(case, Similar())
    assert found["difference"] < 1e-5 and found["logits"][1] > 1


class Experts(Peer):
    """Replaces DeepCTR-Torch's PLE of one layer an expert, computed from the weights as its code does."""

    def __init__(self, levels):
        self.levels = levels

    def shapes(self, model, sizes, dim, hidden, experts, expert, tasks, levels, **options):
        (units,) = expert
        width, shapes = len(sizes) * dim, {"embedding": (sum(sizes), dim)}
        for level in range(levels):
            for number in range((tasks + 1) * experts):
                shapes |= {
                    f"expert_{level}_{number}/kernel_0": (width, units),
                    f"expert_{level}_{number}/bias_0": (units,),
                }
            for task in range(tasks):
                shapes[f"gate_{level}/kernel_{task}"] = (width, 2 * experts)
            if level < levels - 1:
                shapes[f"gate_{level}/kernel_{tasks}"] = (width, (tasks + 1) * experts)
            width = units
        for task in range(tasks):
            widths = [units, *hidden]
            for layer, (read, made) in enumerate(zip(widths, widths[1:], strict=False)):
                shapes |= {f"tower_{task}/kernel_{layer}": (read, made), f"tower_{task}/bias_{layer}": (made,)}
            shapes |= {f"tower_{task}/kernel": (hidden[-1], 1), f"tower_{task}/bias": (1,)}
        return shapes

    def forward(self, model, weights, ids, sizes=None, **options):
        rows = weights["embedding"][ids + np.append(0, np.cumsum(sizes)[:-1])].reshape(len(ids), -1)
        states = {0: rows, 1: rows, "all": rows}
        for level in range(self.levels):
            found = {
                number: np.maximum(states[owner] @ weights[f"{name}/kernel_0"] + weights[f"{name}/bias_0"], 0)
                for number, owner in enumerate((0, 0, 1, 1, "all", "all"))
                for name in [f"expert_{level}_{number}"]
            }
            seen = {0: (0, 1, 4, 5), 1: (2, 3, 4, 5)} | ({"all": range(6)} if level < self.levels - 1 else {})
            mixed = {}
            for place, (owner, numbers) in enumerate(seen.items()):
                shares = np.exp(states[owner] @ weights[f"gate_{level}/kernel_{place}"])
                shares /= shares.sum(axis=1, keepdims=True)
                mixed[owner] = sum(shares[:, [n]] * found[number] for n, number in enumerate(numbers))
            states = mixed
        logits = []
        for task in (0, 1):
            state = states[task]
            for layer in range(len(parity.HIDDEN)):
                state = state @ weights[f"tower_{task}/kernel_{layer}"] + weights[f"tower_{task}/bias_{layer}"]
                state = np.maximum(state, 0)
            logits.append(state @ weights[f"tower_{task}/kernel"] + weights[f"tower_{task}/bias"])
        return np.concatenate(logits, axis=1).reshape(-1)


def test_experts_and_gates_of_three_levels():
    case = next(case for case in CASES if case.variant == "three levels")
    found = parity.compare(case, Experts(3))
    assert found["difference"] < 1e-5 and found["logits"][1] > found["logits"][0] + 1


def test_a_search_that_is_positive_finds_no_padding():
    weights = {"embedding": -np.ones((3, 2)), "search/candidate": -np.ones((2, 2)), "search/item": np.ones((2, 2))}
    parity.positive(weights)
    assert all((value == 1).all() for value in weights.values())


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
