"""Complementarity against a brute-force count of rows; Shapley values against the sum over all subsets."""

import itertools
import math

import numpy as np
import pytest

from ctrpipe.models.explain.attention import picked_by_row, rank_holding
from ctrpipe.models.explain.information import chance_complementarity, complementarity, entropy_bits, value_pairs
from ctrpipe.models.explain.pair_counts import BLOCK_ROWS, PairCounts
from ctrpipe.models.explain.shapley import draw_orders, shapley

ROWS = 700


def small_log() -> tuple[np.ndarray, np.ndarray]:
    """Codes of three columns with 3, 4 and 2 values, and clicks that the first two decide together."""
    random = np.random.default_rng(3)
    codes = np.stack([random.integers(0, size, ROWS) for size in (3, 4, 2)])
    return codes, random.random(ROWS) < np.where(codes[0] % 2 == codes[1] % 2, 0.6, 0.1)


def entropy_of_rows(*columns: np.ndarray) -> float:
    """Miller's and Madow's entropy in bits of the rows' tuples, counted one by one."""
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    counts = [rows.count(row) for row in set(rows)]
    plug_in = -sum(count / len(rows) * math.log2(count / len(rows)) for count in counts)
    return plug_in + (len(counts) - 1) / (2 * len(rows) * math.log(2))


def information_of_rows(columns: list[np.ndarray], clicks: np.ndarray) -> float:
    return entropy_of_rows(*columns) + entropy_of_rows(clicks) - entropy_of_rows(*columns, clicks)


def complementarity_of_rows(first: np.ndarray, second: np.ndarray, clicks: np.ndarray) -> float:
    alone = information_of_rows([first], clicks) + information_of_rows([second], clicks)
    return information_of_rows([first, second], clicks) - alone


def counted(codes: np.ndarray, clicks: np.ndarray) -> PairCounts:
    counts = PairCounts([3, 4, 2])
    counts.add(codes[:, :100], clicks[:100])
    counts.add(codes[:, 100:], clicks[100:])
    return counts


def test_complementarity_of_columns_is_that_of_the_rows():
    codes, clicks = small_log()
    counts = counted(codes, clicks)
    assert counts.rows == ROWS and list(counts.pairs()) == [(0, 1), (0, 2), (1, 2)]
    for first, second in counts.pairs():
        expected = complementarity_of_rows(codes[first], codes[second], clicks)
        assert complementarity(counts.of(first, second)) == pytest.approx(expected, abs=1e-12)
    assert complementarity(counts.of(0, 1)) > 0.1 > abs(complementarity(counts.of(0, 2)))


def test_complementarity_of_values_is_that_of_the_rows_that_have_them():
    codes, clicks = small_log()
    pairs = value_pairs(counted(codes, clicks).of(0, 1), 55)
    assert 0 < len(pairs.rows) < 12 and pairs.rows.min() >= 55
    for place, (value, other) in enumerate(zip(pairs.first, pairs.second, strict=True)):
        has, has_other = codes[0] == value, codes[1] == other
        expected = complementarity_of_rows(has, has_other, clicks)
        assert pairs.complementarity[place] == pytest.approx(expected, abs=1e-12)
        assert pairs.rows[place] == (has & has_other).sum()
        assert pairs.rate_of_first[place] == pytest.approx(clicks[has].mean())
        assert pairs.rate_of_second[place] == pytest.approx(clicks[has_other].mean())
        assert pairs.rate_of_both[place] == pytest.approx(clicks[has & has_other].mean())


def test_two_columns_whose_sum_decides_the_click_have_one_bit_together():
    """y = x xor x': each alone says nothing, both say all."""
    counts = np.zeros((2, 2, 2), np.int64)
    counts[0, 0, 0] = counts[1, 1, 0] = counts[0, 1, 1] = counts[1, 0, 1] = 100
    assert complementarity(counts, corrected=False) == pytest.approx(1, abs=1e-12)
    same = np.zeros((2, 2, 2), np.int64)  # x' = x = y: what one says the other has said
    same[0, 0, 0] = same[1, 1, 1] = 100
    assert complementarity(same, corrected=False) == pytest.approx(-1, abs=1e-12)


def test_the_correction_takes_out_most_of_the_bias_of_rare_values():
    random = np.random.default_rng(5)
    counts = PairCounts([12, 12])
    counts.add(random.integers(0, 12, (2, 2000)), random.random(2000) < 0.5)
    plain = complementarity(counts.of(0, 1), corrected=False)
    assert plain > 0.03 and abs(complementarity(counts.of(0, 1))) < plain / 3


def test_an_entropy_of_no_rows_is_zero():
    assert entropy_bits(np.zeros((2, 3), np.int64), -1).tolist() == [0, 0]


def test_blocks_of_rows_add_up():
    random = np.random.default_rng(1)
    codes, clicks = random.integers(0, 3, (2, BLOCK_ROWS + 5)), random.random(BLOCK_ROWS + 5) < 0.5
    counts = PairCounts([3, 3])
    counts.add(codes, clicks)
    expected = np.zeros((3, 3, 2), np.int64)
    np.add.at(expected, (codes[0], codes[1], clicks.astype(int)), 1)
    assert counts.of(0, 1).tolist() == expected.tolist()


def test_chance_is_what_permuted_clicks_have():
    codes, clicks = small_log()
    random = np.random.default_rng(2)
    drawn = chance_complementarity(counted(codes, clicks).of(0, 1), 400, random)
    shuffled = []
    for _ in range(400):
        again = PairCounts([3, 4])
        again.add(codes[:2], random.permutation(clicks))
        shuffled.append(complementarity(again.of(0, 1)))
    error = np.std(shuffled) * math.sqrt(2 / 400)
    assert abs(drawn.mean() - np.mean(shuffled)) < 4 * error
    assert np.std(drawn) == pytest.approx(np.std(shuffled), rel=0.2)
    assert np.quantile(drawn, 0.99) < complementarity(counted(codes, clicks).of(0, 1))


WEIGHTS = np.array([0.5, -1.0, 2.0, 0.25, 0.0, 3.0])


def model_of_six(values: np.ndarray) -> np.ndarray:
    """Logits of rows of 6 columns, with interactions of two and of three columns."""
    products = values[:, 0] * values[:, 1] - 2 * values[:, 2] * values[:, 3] * values[:, 5]
    return values @ WEIGHTS + products + np.tanh(values[:, 4] * values[:, 0])


ROW = np.array([1.0, 2.0, -1.0, 0.5, 3.0, 1.5])
BACKGROUND = np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [1.0, -1.0, 0.5, 2.0, 0.0, 1.0]])


def ask(present: np.ndarray, background: np.ndarray) -> np.ndarray:
    return model_of_six(np.where(present, ROW, BACKGROUND[background]))


def by_subsets(background: int) -> list[float]:
    """Shapley's formula: the sum over all subsets of the other columns."""

    def value(subset: tuple[int, ...]) -> float:
        present = np.isin(np.arange(6), subset)[None]
        return float(ask(present, np.array([background]))[0])

    found = []
    for column in range(6):
        others = [other for other in range(6) if other != column]
        total = 0.0
        for size in range(6):
            weight = math.factorial(size) * math.factorial(5 - size) / math.factorial(6)
            for subset in itertools.combinations(others, size):
                total += weight * (value((*subset, column)) - value(subset))
        found.append(total)
    return found


def test_all_orders_give_the_shapley_value():
    orders = np.array(list(itertools.permutations(range(6))))
    found = shapley(ask, orders, np.zeros(len(orders), np.int64))
    np.testing.assert_allclose(found.columns, by_subsets(0), rtol=0, atol=1e-12)


def test_drawn_orders_are_near_it_and_sum_to_the_difference_of_logits():
    orders = draw_orders(6, 600, np.random.default_rng(4))
    assert sorted(orders[1]) == list(range(6)) and orders[1].tolist() == orders[0][::-1].tolist()
    background = np.repeat(np.arange(300) % 2, 2)
    found = shapley(ask, orders, background)
    expected = np.mean([by_subsets(0), by_subsets(1)], axis=0)
    assert (np.abs(found.columns - expected) <= 4 * found.errors + 1e-12).all() and found.errors.max() < 0.3
    assert found.columns.sum() == pytest.approx(found.logit - found.baseline, abs=1e-9)
    assert found.logit == pytest.approx(model_of_six(ROW[None])[0])
    assert found.baseline == pytest.approx(model_of_six(BACKGROUND).mean())


def test_the_tokens_that_attention_picks_are_counted():
    # Two rows, one head, one query: the two largest of three; a token without attention is not picked.
    attention = np.array([[[[0.5, 0.3, 0.2]]], [[[0.0, 1.0, 0.0]]]])
    np.testing.assert_array_equal(picked_by_row(attention, 2), [[[1, 1, 0]], [[0, 1, 0]]])
    np.testing.assert_array_equal(picked_by_row(attention, 9), [[[1, 1, 1]], [[0, 1, 0]]])


def test_a_rank_holds_a_share_of_the_squares():
    assert [rank_holding([3, 1, 2, 0], share) for share in (0.6, 9 / 14, 0.65, 13 / 14, 0.99)] == [1, 1, 2, 2, 3]
    assert rank_holding([0, 0], 0.9) == 0
