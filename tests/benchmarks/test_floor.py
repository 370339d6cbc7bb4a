"""benchmarks.floor: each way to run a graph gives the same probabilities, and one that does not is an error."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import floor
from benchmarks.harness.floor_server import Server
from benchmarks.peers.line_process import ProcessError


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.table = tf.Variable(np.linspace(0, 1, 20, dtype=np.float32).reshape(10, 2))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int32, name="ids")])
    def packed(self, ids):
        return {"ctr": tf.sigmoid(tf.reduce_sum(tf.gather(self.table, ids), (1, 2)))}


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "1"
    model = Model()
    tf.saved_model.save(model, str(folder), {"serving_packed": model.packed})
    (folder / "assets.extra").mkdir()
    np.savez(folder / "assets.extra" / "golden.npz", **{"packed.ids": np.int32([[0, 1, 2], [3, 4, 9]])})
    return folder


@pytest.mark.parametrize("call", ["make_callable", "callable", "frozen", "xla"])
def test_every_call_gives_the_probability_of_the_formula(version, call):
    server = Server()
    server.answer({"cmd": "load", "version": str(version), "signature": "serving_packed", "session": "", "call": call})
    table = np.linspace(0, 1, 20).reshape(10, 2)
    expected = [1 / (1 + np.exp(-table[ids].sum())) for ids in ([0, 1, 2], [3, 4, 9], [0, 1, 2])]
    answers = server.answer({"cmd": "answers", "rows": 3})["probabilities"]
    np.testing.assert_allclose(answers, expected, atol=1e-6)
    found = server.answer({"cmd": "measure", "rows": 2, "seconds": 0.01})
    assert found["calls"] >= 1 and found["p50_ms"] > 0


class Side:
    """A fake process: fixed answers and times."""

    def __init__(self, probability, *times):
        self.probability, self.times = probability, list(times)

    def ask(self, request):
        if request["cmd"] == "answers":
            return {"probabilities": [self.probability] * request["rows"]}
        return {"p50_ms": self.times.pop(0), "cpu_ms": 1.0, "calls": 1}


def test_a_ratio_compares_times_of_the_same_round():
    way, baseline = Side(0.5, 1.0, 20.0, 3.0), Side(0.5, 2.0, 10.0, 3.0)
    found = floor.compare(floor.Way("w"), way, baseline, 1, rounds=3, seconds=0.1)
    assert found.as_json()["p50_ms_ratio"] == 1.0 and found.as_json()["p50_ms"] == 3.0  # the median of 0.5, 2 and 1


def test_a_way_with_other_probabilities_is_an_error():
    with pytest.raises(ProcessError, match="differ by 1.0e-02"):
        floor.compare(floor.Way("w"), Side(0.51, 1.0), Side(0.5, 1.0), 1, rounds=1, seconds=0.1)
