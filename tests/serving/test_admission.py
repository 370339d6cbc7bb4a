"""Admission: how much memory concurrent runs of the graph may take."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server.admission import Admission, Slots
from ctrpipe.serving.server.budget import Budget, OverBudget
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.examples import regress, with_context
from ctrpipe.serving.server.row_cost import RowCost, RowCosts, measure
from ctrpipe.serving.server.served import ServedVersion
from tests.serving.packed_servable import shared_version

MIB = 1 << 20
WIDTH = 100_000


class _Wide(tf.Module):
    """Makes 100,000 floats for each row of `rows`; the other signatures make few."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def rows(self, x):
        return {"y": tf.reduce_sum(tf.tile(x[:, None], [1, WIDTH]), 1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="s")])
    def parts(self, s):
        return {"y": tf.strings.split(s, "|").row_lengths()}

    def __init__(self):
        super().__init__()
        self.calls = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def counts(self, x):
        return {"calls": self.calls.assign_add(1.0), "x": x}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="s")])
    def refuses(self, s):
        with tf.control_dependencies([tf.debugging.assert_equal(s, "x")]):
            return {"y": tf.identity(s)}


@pytest.fixture(scope="module", name="wide")
def wide_servable(tmp_path_factory):
    folder, model = tmp_path_factory.mktemp("wide"), _Wide()
    signatures = {name: getattr(model, name) for name in ("rows", "parts", "counts", "refuses")}
    tf.saved_model.save(model, str(folder / "1"), signatures)
    servable = Servable(folder / "1")
    yield servable
    servable.close()


def test_a_row_costs_what_its_tensors_take(wide):
    cost = measure(wide, "rows")
    assert 4 * WIDTH <= cost.row_bytes <= 2.2 * 4 * WIDTH and cost.fixed_bytes < 10_000
    assert cost.size(1000) == cost.fixed_bytes + 1000 * cost.row_bytes
    assert 0.001 < cost.row_seconds < 0.01


def test_long_texts_count_too(wide):
    """A row of 20 parts: 20 strings of 24 bytes, and the places where they begin."""
    assert measure(wide, "parts").row_bytes > 20 * 24


def test_a_signature_that_keeps_a_state_is_not_run_to_be_measured(wide):
    assert measure(wide, "counts").row_bytes > 8000
    assert wide.run("counts", {"x": np.zeros(1, np.float32)})["calls"] == 1


def test_a_signature_that_takes_no_made_up_rows_has_a_cost_all_the_same(wide):
    assert measure(wide, "refuses").row_bytes > 8000


def test_a_measured_run_of_many_rows_corrects_the_seconds(wide):
    cost = measure(wide, "rows")
    for _ in range(50):
        cost.record(1000, 10.0)
        cost.record(1, 5.0)  # says nothing about a row of many
    assert cost.seconds(300) == pytest.approx(3.0, rel=0.01)


@pytest.mark.slow
def test_every_signature_of_an_export_is_measured_once(shared_folder):
    servable, costs = Servable(shared_version(shared_folder)), RowCosts()
    found = {name: costs.of(servable, name) for name in servable.signatures if not name.startswith("__")}
    assert {"serving_raw", "serving_default", "serving_packed", "regress", "transform_raw"} <= set(found)
    for name in ("serving_raw", "serving_default", "serving_packed", "regress"):
        assert 100 < found[name].row_bytes < 20_000, name
    assert all(costs.of(servable, name) is cost for name, cost in found.items())


def test_a_run_whose_rows_do_not_fit_does_not_begin(wide):
    budget = Budget(100 * MIB, resident=lambda: 0)
    admission = Admission(budget)
    with admission.admitted(wide, ["rows"], {"x": np.zeros(100, np.float32)}):
        assert 100 * 4 * WIDTH <= budget.held_bytes <= 90 * MIB
        with pytest.raises(OverBudget), admission.admitted(wide, ["rows"], {"x": np.zeros(100, np.float32)}):
            pytest.fail("it has begun")
    assert (budget.held_bytes, budget.held_seconds) == (0, 0)


def test_a_long_run_waits_for_another_and_its_thread_counts_as_free_meanwhile(wide):
    admission, slots = Admission(Budget(8 << 30, resident=lambda: 0), long_runs=1), Slots(1)
    rows = {"x": np.zeros(1000, np.float32)}
    begun, ended = threading.Event(), threading.Event()

    def ask():
        with slots, admission.admitted(wide, ["rows"], rows, 20.0) as turn:
            assert turn.seconds_left is not None and turn.seconds_left < 20.0
            begun.set()
        ended.set()

    with admission.admitted(wide, ["rows"], rows):
        thread = threading.Thread(target=ask)
        thread.start()
        assert not begun.wait(0.2)
        with slots, admission.admitted(wide, ["rows"], {"x": np.zeros(1, np.float32)}, 20.0) as turn:
            assert turn.seconds_left == 20.0  # a short one, in the only slot
    assert begun.wait(20) and ended.wait(20)
    thread.join()


def test_a_long_run_whose_turn_does_not_come_in_time_is_told_so(wide):
    budget = Budget(8 << 30, resident=lambda: 0)
    admission, rows = Admission(budget, long_runs=1), {"x": np.zeros(1000, np.float32)}
    with admission.admitted(wide, ["rows"], rows):
        began = time.monotonic()
        with pytest.raises(ServingError) as late, admission.admitted(wide, ["rows"], rows, 0.1):
            pytest.fail("it has begun")
        assert late.value.code == "DEADLINE_EXCEEDED" and time.monotonic() - began < 5
    with admission.admitted(wide, ["rows"], rows, 0.1):
        pass
    assert budget.held_bytes == 0


def test_large_bodies_are_read_as_many_at_a_time_as_there_are_processors(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    admission = Admission(Budget(8 << 30, resident=lambda: 0))
    large = 1 << 20
    with admission.reading(large), admission.reading(large):
        with admission.reading(1000, 0.0):
            pass  # a small one does not wait
        with pytest.raises(ServingError) as late, admission.reading(large, 0.05):
            pytest.fail("it is read")
        assert late.value.code == "DEADLINE_EXCEEDED"
    with admission.reading(large, 0.0):
        pass


def test_no_more_than_some_large_requests_wait(monkeypatch):
    monkeypatch.setattr("ctrpipe.serving.server.admission.MOST_WAITING_RUNS", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    admission, refused = Admission(Budget(8 << 30, resident=lambda: 0)), []

    def ask():
        try:
            with admission.reading(1 << 20, 20.0):
                pass
        except OverBudget as error:
            refused.append(str(error))

    with admission.reading(1 << 20):
        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 20
        while len(refused) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        assert len(refused) == 3
    for thread in threads:
        thread.join()
    assert len(refused) == 3


def test_large_bodies_are_parsed_one_at_a_time(monkeypatch):
    """The number of processors does not matter: only one thread holds the interpreter."""
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    admission, large = Admission(Budget(8 << 30, resident=lambda: 0)), 1 << 20
    with admission.reading(large), admission.parsing(large), admission.reading(large):
        with admission.parsing(1000, 0.0):
            pass  # a small one does not wait
        with pytest.raises(ServingError) as late, admission.parsing(large, 0.05):
            pytest.fail("it is parsed")
        assert late.value.code == "DEADLINE_EXCEEDED"
    with admission.parsing(large, 0.0):
        pass


def test_a_run_of_many_strings_takes_its_turn_as_a_long_one_does(monkeypatch):
    """TensorFlow holds the interpreter while it copies strings."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    admission = Admission(Budget(8 << 30, resident=lambda: 0))
    monkeypatch.setattr(admission, "_cost", lambda *_: RowCost(0, 1, 0.0))
    many, few = np.full(100_000, b"", object), np.full(1000, b"", object)
    with admission.admitted(None, ["x"], {"s": many}):
        with admission.admitted(None, ["x"], {"s": few}, 0.0):
            pass
        with admission.admitted(None, ["x"], {"n": np.zeros(100_000)}, 0.0):
            pass  # numbers are taken over without the interpreter
        with pytest.raises(ServingError), admission.admitted(None, ["x"], {"s": many}, 0.05):
            pytest.fail("it runs")


def test_the_first_requests_of_a_signature_keep_no_thread_while_one_of_them_measures_it(wide, monkeypatch):
    """Eight clients that were the first to ask had all threads: another one waited for seconds."""
    measures, go_on = threading.Event(), threading.Event()

    def slow(*_):
        measures.set()
        go_on.wait(20)
        return RowCost(1, 1, 0.0)

    monkeypatch.setattr("ctrpipe.serving.server.row_cost.measure", slow)
    admission, slots = Admission(Budget(1000 * MIB, resident=lambda: 0)), Slots(2)

    def ask():
        with slots, admission.admitted(wide, ["rows"], {"x": np.zeros(1, np.float32)}):
            pass

    def pass_by():
        with slots:
            pass

    first = [threading.Thread(target=ask) for _ in range(4)]
    for thread in first:
        thread.start()
    assert measures.wait(20)
    other = threading.Thread(target=pass_by)
    other.start()
    other.join(5)
    is_kept = other.is_alive()
    go_on.set()
    for thread in [*first, other]:
        thread.join(20)
    assert not is_kept and not any(thread.is_alive() for thread in first)


def test_examples_hold_what_a_context_makes_of_them():
    budget, held = Budget(1 << 30), []
    definition = meta_graph_pb2.SignatureDef()
    definition.inputs["inputs"].dtype = definition.outputs["outputs"].dtype = 1
    servable = SimpleNamespace(signatures={"regress": definition}, input_types={})

    class Version(ServedVersion):
        def run(self, signature, inputs, outputs=None, timeout_seconds=None):
            held.append(budget.held_bytes)
            return {"outputs": np.zeros(len(inputs["inputs"]), np.float32)}

    version = Version("m", 1, servable, Admission(budget))
    batch = with_context(b"c" * 100_000, [b"a", b"b"])
    assert regress(version, batch, "regress").tolist() == [0, 0]
    assert held == [2 * 2 * 100_001] and budget.held_bytes == 0
    with pytest.raises(OverBudget), budget.hold(budget.most_bytes - 300_000):
        regress(version, batch, "regress")
