import concurrent.futures
import dataclasses
import threading

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server.admission import Admission
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.pieces import run_in_pieces
from ctrpipe.serving.server.row_cost import RowCost, RowCosts
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


@pytest.fixture(name="pool")
def pool_of_two():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield pool


def test_helpers_take_pieces_too(pool):
    """The first two pieces end only once both have begun, so two threads have them."""
    both = threading.Barrier(2)

    def run(inputs):
        if inputs["x"][0] < 6:
            both.wait(20)
        return {"x": 2 * inputs["x"]}

    assert run_in_pieces(run, {"x": np.arange(10)}, 3, pool, helpers=1)["x"].tolist() == list(range(0, 20, 2))


def test_a_helper_that_gets_no_thread_is_not_waited_for(pool):
    free = threading.Event()
    busy = [pool.submit(free.wait, 20) for _ in range(2)]
    found = run_in_pieces(lambda piece: dict(piece), {"x": np.arange(5)}, 2, pool, helpers=2)
    assert found["x"].tolist() == [0, 1, 2, 3, 4] and not any(one.done() for one in busy)
    free.set()


@pytest.mark.parametrize("failing", [0, 2])
def test_an_error_of_any_thread_ends_the_run(pool, failing):
    both = threading.Barrier(2)

    def run(inputs):
        both.wait(20)
        if inputs["x"][0] == failing:
            raise ValueError(f"piece {failing}")
        return inputs

    with pytest.raises(ValueError, match=f"piece {failing}"):
        run_in_pieces(run, {"x": np.arange(4)}, 2, pool, helpers=1)


class _Slow:
    """A servable that notes the rows of each run. It refuses a negative value by its row."""

    def __init__(self):
        self.sizes = []

    def run(self, signature, inputs, outputs=None, timeout_seconds=None):
        self.sizes.append(len(inputs["x"]))
        bad = np.flatnonzero(inputs["x"] < 0)
        if len(bad):
            raise tf.errors.InvalidArgumentError(None, None, f"row {bad[0]}")
        return {"y": inputs["x"] + 1}

    signatures, input_types = {}, {}


@pytest.fixture(name="shared")
def version_whose_rows_are_shared(monkeypatch):
    """A row takes 0.5 ms, and there are two processors."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    admission = Admission(Budget(8 << 30, resident=lambda: 0))
    monkeypatch.setattr(admission, "_cost", lambda *_: RowCost(0, 1, 0.0005, in_pieces=True))
    admission.shares_rows = True
    return ServedVersion("ctr", 1, _Slow(), admission), admission


def test_an_idle_processor_takes_pieces_of_whole_blocks(shared):
    version, _ = shared
    for rows, pieces in ((1, 1), (16, 1), (17, 2), (100, 7), (640, 8)):
        version.servable.sizes.clear()
        assert version.run("s", {"x": np.arange(rows)})["y"].tolist() == list(range(1, rows + 1))
        assert len(version.servable.sizes) == pieces, rows


def test_where_all_processors_are_busy_a_run_is_not_divided(shared):
    version, admission = shared
    with admission.admitted(version.servable, ["s"], {"x": np.arange(1)}):
        version.run("s", {"x": np.arange(100)})
    assert version.servable.sizes == [100]
    version.run("s", {"x": np.arange(100)})
    assert len(version.servable.sizes) == 8


def test_operations_of_several_threads_leave_the_rows_together(shared):
    version, admission = shared
    admission.shares_rows = False
    version.run("s", {"x": np.arange(100)})
    assert version.servable.sizes == [100]


def test_an_error_names_the_row_of_the_request(shared):
    version, _ = shared
    with pytest.raises(ServingError, match="row 97"):
        version.run("s", {"x": np.where(np.arange(100) == 97, -1, 1)})


@pytest.mark.slow
def test_a_large_request_to_an_export_takes_the_memory_of_a_piece(shared_folder, monkeypatch):
    """The answers are those of the rows themselves: of one signature to the bit, of several within rounding."""
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
        np.testing.assert_array_equal(found[name], expected[name])
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
