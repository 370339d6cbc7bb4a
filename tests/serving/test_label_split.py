"""Whom a weighted choice between labels sends where."""

import collections

import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import LabelSplit

USERS = [f"user-{number}" for number in range(20_000)]


def labels(split: LabelSplit) -> list[str]:
    return [split.choose(user) for user in USERS]


def test_a_key_keeps_its_label_and_the_shares_are_the_weights():
    split = LabelSplit({"stable": 95, "canary": 5})
    found = labels(split)
    assert found == labels(LabelSplit.parse("canary=0.05, stable=0.95"))
    # 3.9 standard deviations of a binomial of 20,000 draws
    assert found.count("canary") / len(USERS) == pytest.approx(0.05, abs=0.006)
    assert split.choose("user-1") == split.choose(b"user-1") and split.choose(7) == split.choose("7")


def test_more_weight_keeps_the_users_that_a_label_had():
    before, after = (labels(LabelSplit({"stable": 1 - share, "canary": share})) for share in (0.05, 0.5))
    assert all(b == "canary" for a, b in zip(before, after, strict=True) if a == "canary")
    assert after.count("canary") / len(USERS) == pytest.approx(0.5, abs=0.014)


def test_without_a_key_it_is_chance():
    split = LabelSplit({"a": 1, "b": 2, "c": 1})
    counts = collections.Counter(split.choose() for _ in range(20_000))
    assert {label: counts[label] / 20_000 for label in "abc"} == pytest.approx(
        {"a": 0.25, "b": 0.5, "c": 0.25}, abs=0.014
    )


def test_no_weight_is_no_request():
    split = LabelSplit({"canary": 0, "stable": 1})
    assert set(labels(split)) == {"stable"}
    assert set(labels(LabelSplit({"canary": 3, "stable": 0}))) == {"canary"}


@pytest.mark.parametrize("weights", [{}, {"a": 0}, {"a": -1, "b": 2}, {"a": float("nan")}, {"a": float("inf")}])
def test_weights_that_are_none(weights):
    with pytest.raises(InputError, match="label weights"):
        LabelSplit(weights)


@pytest.mark.parametrize("text", ["", "stable", "stable=x", "=5", "a=1,a=2", "a=1,,b=2"])
def test_a_form_that_cannot_be_read(text):
    with pytest.raises(InputError, match="write them as stable=95,canary=5"):
        LabelSplit.parse(text)
