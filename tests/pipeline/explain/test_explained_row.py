"""The values that a row's explanation shows beside the contributions."""

import types

import pyarrow as pa

from ctrpipe.pipeline.explain.rows import gradients_of_row
from tests.transforms.test_derived import described


class Model:
    """A model to which only `rate` contributes."""

    feature_map = types.SimpleNamespace(text=None)

    def between(self, _start, _row):
        return {"rate": 0.5}, [], types.SimpleNamespace(start=0.0, end=0.5, jumps=0.0)


def test_derived_columns_have_the_values_that_they_are_made_to():
    log = described()
    texts = {"site": b"s1", "ad": b"a2", "topic": b"b", "topics": b"a:1|b:0.25", "names": b"x|y", "sizes": b"2|3"}
    numbers = {"shows": 8.0, "clicks": 2.0, "t1": 0.5, "t2": -1.0}
    row = pa.table(
        {name: pa.array([value], pa.binary()) for name, value in texts.items()}
        | {name: pa.array([value], pa.float32()) for name, value in numbers.items()}
    )
    groups = {name: [name] for name in log.feature_columns}
    explained = gradients_of_row(Model(), lambda _: {}, row, None, groups, log)
    assert explained.columns[0].name == "rate" and explained.columns[0].logit == 0.5
    assert {one.name: one.value for one in explained.columns} == {
        "rate": ("0.25",),
        "site_ad": ("s1 x a2",),
        "likes": ("0.25",),
        "title": ("[0.5, -1]",),
        "tags": ("x:2|y:3",),
        "site": ("s1",),
        "shows": ("8",),
    }
