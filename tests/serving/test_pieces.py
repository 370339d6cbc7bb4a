import dataclasses

import numpy as np
import pytest

from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server.admission import Admission
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.pieces import run_in_pieces
from ctrpipe.serving.server.row_cost import RowCosts
from ctrpipe.serving.server.served import ServedVersion
from tests.serving.packed_servable import shared_version


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_pieces_have_the_answers_of_the_whole(rows):
    sizes = []

    def run(inputs):
        sizes.append(len(inputs["x"]))
        return {"sum": inputs["x"] + inputs["user"], "twice": 2 * inputs["x"]}

    x = np.arange(rows)
    found = run_in_pieces(run, {"x": x, "user": np.array([100])}, 3)
    assert found["sum"].tolist() == [100 + value for value in range(rows)]
    assert found["twice"].tolist() == [2 * value for value in range(rows)]
    assert sum(sizes) == rows and max(sizes) <= 3


def test_inputs_that_do_not_fit_together_run_whole_for_their_error():
    inputs = {"x": np.zeros(10), "y": np.zeros(4)}
    seen = run_in_pieces(lambda piece: dict(piece), inputs, 3)
    assert {name: len(array) for name, array in seen.items()} == {"x": 10, "y": 4}


@pytest.mark.slow
def test_a_large_request_to_an_export_takes_the_memory_of_a_piece(shared_folder, monkeypatch):
    """The answers are those of the rows themselves, whether one signature runs or several together."""
    servable = Servable(shared_version(shared_folder))
    measured = RowCosts.of

    def dear(costs, servable, signature):  # as if a row took 100 kB and 1 ms
        return dataclasses.replace(measured(costs, servable, signature), row_bytes=100_000, row_seconds=1e-3)

    monkeypatch.setattr(RowCosts, "of", dear)
    budget = Budget(20 << 20, resident=lambda: 0)
    version = ServedVersion("ctr", 1, servable, Admission(budget))
    rows = 1000
    ids = np.random.default_rng(1).integers(0, 20, (rows, servable_slots(servable)), np.int32)
    dense = np.random.default_rng(2).normal(size=(rows, dense_size(servable))).astype(np.float32)
    found = version.run("serving_packed", {"dense": dense, "ids": ids})
    expected = servable.run("serving_packed", {"dense": dense, "ids": ids})
    assert set(found) == {"ctr", "cvr"}
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
    examples = np.full(rows, b"", object)
    together = version.run_together({"regress": ["outputs"], "serving_default": ["ctr"]}, examples)
    alone = servable.run("regress", {"inputs": examples[:1]})["outputs"]
    np.testing.assert_allclose(together["regress"]["outputs"].ravel(), np.full(rows, alone.ravel()[0]), rtol=1e-6)
    assert len(together["serving_default"]["ctr"]) == rows
    assert budget.held_bytes == 0
    servable.close()


def servable_slots(servable):
    return servable.signatures["serving_packed"].inputs["ids"].tensor_shape.dim[1].size


def dense_size(servable):
    return servable.signatures["serving_packed"].inputs["dense"].tensor_shape.dim[1].size
