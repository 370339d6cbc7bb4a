"""What `make test` leaves to `make test-all`: cases of a matrix, never a model, and never a test without one like it.

A test that is whole in `make test-all` alone names by `@pytest.mark.large(like="tests/...::test_name")` the test in
`make test` that goes the same way through the code.
"""

import collections

import pytest

from tests.models.small_models import SMALL


@pytest.fixture
def cases(collected) -> dict[str, list[pytest.Item]]:
    """The cases of each test, also those that this run leaves out."""
    cases = collections.defaultdict(list)
    for item in collected:
        cases[item.nodeid.partition("[")[0]].append(item)
    return cases


def in_make_test(item: pytest.Item) -> bool:
    return item.get_closest_marker("large") is None


NEED_MORE = ("tests/image/", "tests/e2e/test_two_hosts.py")  # images, and the right to make network namespaces


def likes(items: list[pytest.Item]) -> set[str]:
    return {mark.kwargs["like"] for item in items for mark in item.iter_markers("large") if "like" in mark.kwargs}


def test_every_test_has_a_case_in_make_test_or_names_one_like_it_but_for_those_that_need_more_than_python(cases):
    left_out = [name for name, items in cases.items() if not any(map(in_make_test, items))]
    assert [name for name in left_out if not name.startswith(NEED_MORE) and not likes(cases[name])] == []


def test_the_tests_that_others_are_like_are_in_make_test(cases):
    files = {name.partition("::")[0] for name in cases}
    named = {like for items in cases.values() for like in likes(items) if like.partition("::")[0] in files}
    assert {like for like in named if not any(map(in_make_test, cases.get(like, [])))} == set()


OF_EVERY_MODEL = "tests/models/test_models.py::test_no_part_of_a_model_is_left_without_weights"


def test_every_model_has_cases_in_make_test(cases):
    if not (items := cases.get(OF_EVERY_MODEL)):
        pytest.skip("the tests of models were not collected")
    assert {item.callspec.params["name"] for item in items if in_make_test(item)} == set(SMALL)
