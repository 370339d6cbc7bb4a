"""What `make test` leaves to `make test-all`: further cases of a matrix, never a whole test and never a model."""

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


def test_every_test_has_a_case_in_make_test_but_for_those_that_need_more_than_python(cases):
    left_out = [name for name, items in cases.items() if not any(map(in_make_test, items))]
    assert [name for name in left_out if not name.startswith(NEED_MORE)] == []


def test_every_model_has_cases_in_make_test(cases):
    by_model = [
        items
        for items in cases.values()
        if {case.callspec.params.get("name") for case in items if hasattr(case, "callspec")} >= set(SMALL)
    ]
    if not by_model:
        pytest.skip("no test of every model was collected")
    models = {item.callspec.params["name"] for items in by_model for item in items if in_make_test(item)}
    assert models == set(SMALL)
