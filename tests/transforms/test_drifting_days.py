"""Generated logs of several days: each part drifts at its given rate, and the other parts stay."""

import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.generate import ClickModel, Drift, generate, generate_days
from ctrpipe.transforms.generate.columns import Categorical, code_shares
from ctrpipe.transforms.generate.drift import worlds
from ctrpipe.transforms.generate.formats import CRITEO
from ctrpipe.transforms.log.files import find_files

PLANTED = {"C6", "C14", "C17", "C23", "C25"}


def days_of(drift: Drift, days: int = 3):
    return list(worlds(CRITEO, ClickModel(), drift, days))


@pytest.mark.slow
def test_the_first_day_is_the_log_of_one_day_and_a_reader_finds_the_days_alone(tmp_path):
    generate("criteo", 500, 7, tmp_path / "log.tsv")
    results = generate_days("criteo", 2, 500, 7, tmp_path / "days", Drift(preferences=0.5, ids=0.5))
    first, second = (result.path.read_bytes() for result in results)
    assert first == (tmp_path / "log.tsv").read_bytes() != second
    assert find_files([str(tmp_path / "days")]) == [str(result.path) for result in results]
    assert [result.truth_path.name for result in results] == ["_truth.parquet"] * 2


@pytest.mark.slow
def test_ids_are_replaced_at_their_rate_and_never_come_back():
    first, second, third = (world.ids["C3"] for world in days_of(Drift(ids=0.2)))
    size = len(first)
    assert np.isin(second, first, invert=True).mean() == pytest.approx(0.2, abs=0.01)
    assert (second != first).mean() == pytest.approx(0.2, abs=0.01)
    assert np.isin(third, first, invert=True).mean() == pytest.approx(1 - 0.8**2, abs=0.01)
    assert all(len(np.unique(ids)) == size for ids in (second, third))


def test_a_pattern_leaves_out_what_spark_writes_beside_the_data(tmp_path):
    for name in ("part-1.csv", "part-2.csv", "_SUCCESS", "_committed_1"):
        (tmp_path / name).write_text("a\n")
    assert find_files([f"{tmp_path}/*"]) == [str(tmp_path / name) for name in ("part-1.csv", "part-2.csv")]
    assert find_files([f"{tmp_path}/_com*"]) == [str(tmp_path / "_committed_1")]


def test_ids_change_places_at_the_rate_of_popularity():
    first, second, _ = (world.ids["C3"] for world in days_of(Drift(popularity=0.3)))
    assert (second != first).mean() == pytest.approx(0.3, abs=0.01)
    np.testing.assert_array_equal(np.sort(second), first)


def test_effects_keep_their_strength_and_as_much_of_themselves_as_the_rate_says():
    first, second, third = (world.hidden.main for world in days_of(Drift(preferences=0.36)))
    names = [column.name for column in CRITEO.columns if isinstance(column, Categorical) and column.codes > 40]
    for day, kept in ((second, 0.8), (third, 0.64)):  # sqrt(1 - 0.36) a day
        pairs = [np.corrcoef(first[name][:-2], day[name][:-2])[0, 1] for name in names]
        assert np.mean(pairs) == pytest.approx(kept, abs=0.08)
        for column in CRITEO.columns:
            over_rows = [code_shares(column) @ effects[column.name] ** 2 for effects in (first, day)]
            assert over_rows[1] == pytest.approx(over_rows[0])


def test_an_id_takes_its_effect_along():
    before, after, _ = days_of(Drift(popularity=0.5))
    old, new = before.ids["C5"], after.ids["C5"]
    place = next(place for place in range(48) if new[place] != old[place] and new[place] < 48)
    was = int(new[place])
    # Up to the scale that gives a column's effects mean 0 and variance 1 on each day.
    other = next(place for place in range(48) if new[place] == old[place])
    third = next(place for place in range(other + 1, 48) if new[place] == old[place])

    def ratio(effects, first):
        return (effects[first] - effects[other]) / (effects[third] - effects[other])

    found, expected = ratio(after.hidden.main["C5"], place), ratio(before.hidden.main["C5"], was)
    assert found == pytest.approx(expected)


def test_without_rates_nothing_moves_and_planted_columns_never_do():
    still = days_of(Drift())
    for name, ids in still[2].ids.items():
        np.testing.assert_array_equal(ids, np.arange(len(ids)))
        np.testing.assert_array_equal(still[2].hidden.main[name], still[0].hidden.main[name])
    assert not PLANTED & set(still[0].ids) and {"C3", "C9"} <= set(still[0].ids)


def test_rates_are_read_and_mistakes_are_one_line(tmp_path):
    assert Drift.from_text("ids=0.1,preferences=0.5") == Drift(preferences=0.5, ids=0.1)
    for text in ("ids", "ids=x", "taste=0.1", "ids=0.1,ids=0.2"):
        with pytest.raises(InputError, match="expected rates as preferences=0.1"):
            Drift.from_text(text)
    with pytest.raises(InputError, match="popularity should be from 0 to 1"):
        Drift.from_text("popularity=1.5")
    with pytest.raises(InputError, match="days should be a whole number from 1 to 250"):
        generate_days("criteo", 0, 10, 1, tmp_path / "days", Drift())
    with pytest.raises(InputError, match="the hours of an avazu log run through its days"):
        generate_days("avazu", 2, 10, 1, tmp_path / "days", Drift())
