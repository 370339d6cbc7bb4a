"""The models that stand for the others in `make test` have every part that any model has.

test_models.py, which builds every model, checks that the families have every layer.
"""

from ctrpipe.models.base.registry import model_class
from tests.models.small_models import FAMILIES, KINDS, SMALL, batch_of, cases_of, map_of

OURS = "ctrpipe.models."
MODULES = {model_class(name).__module__ for name in SMALL}


def bases_of(name: str) -> set[type]:
    """A model's base classes, without those defined in the files of registered models."""
    return {each for each in model_class(name).__mro__ if each.__module__.startswith(OURS)} - {
        each for each in model_class(name).__mro__ if each.__module__ in MODULES
    }


def inputs_of(name: str) -> set[str]:
    """The tensors of its batch, the kinds and roles of its fields, and whether it has several labels."""
    data = map_of(name)
    found = {*batch_of(name), *(field.kind for field in data.fields), *(field.role for field in data.fields)}
    found |= {"several labels"} if len(data.tasks) > 1 else set()
    return found | ({"a candidate"} if any(field.shared_with for field in data.fields) else set())


def test_every_base_class_and_every_input_is_in_one_of_the_kinds():
    for what in (bases_of, inputs_of):
        everything = set().union(*map(what, SMALL))
        assert len(everything) > 4 and everything - set().union(*map(what, KINDS)) == set()
    assert set(KINDS) <= set(FAMILIES)


def test_cases_are_quick_in_make_test_or_in_test_all_alone():
    marks = {case.values[0]: [mark.name for mark in case.marks] for case in cases_of(FAMILIES, quick=KINDS)}
    assert set(marks) == set(SMALL)
    assert {name for name, found in marks.items() if found == []} == set(KINDS)
    assert {name for name, found in marks.items() if found == ["slow"]} == set(FAMILIES) - set(KINDS)
    assert {name for name, found in marks.items() if found == ["large"]} == set(SMALL) - set(FAMILIES)
    assert [case.marks for case in cases_of(("fm",), ("fm",))] == [[]]
