"""What the benchmarks compute from what they measure, and the arguments they refuse."""

import json
import os

import click
import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import backends, memory, reader, tables, train
from benchmarks.harness.command import busy, busy_caption, on_cores, positive_numbers, write
from benchmarks.harness.ours import Ours
from benchmarks.harness.ours_server import Spec, draw_batches, feature_map_of
from benchmarks.harness.settings import MODELS, TARGETS, TEXTS, Shape, our_options, peer_options, zoo_options
from benchmarks.harness.turns import spread
from benchmarks.peers.client import NAMES
from benchmarks.peers.drawn_ids import draw_ids
from benchmarks.peers.line_process import ProcessError
from benchmarks.sharded_tables import Measured, bytes_per_row
from benchmarks.tables import Growth, shape_of
from benchmarks.train import Comparison, Sides, chosen_models, steps_for
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.registry import check_hyperparameters
from ctrpipe.serving.latency import machine


def test_spread():
    assert spread([3.0, 1.0, 2.0, 10.0]) == {"median": 2.5, "min": 1.0, "max": 10.0}


def test_comparison():
    """The claim is the median of the rounds' ratios (2, 4, 1.2), not the ratio of the medians (300 / 100)."""
    comparison = Comparison("fm", {}, "recbole", {"recbole": 90.0}, [200.0, 400.0, 300.0], [100.0, 100.0, 250.0])
    found = comparison.as_json()
    assert found["ratio"] == {"median": 2.0, "min": 1.2, "max": 4.0}
    assert found["ours_samples_per_s"]["median"] == 300.0
    assert found["theirs_samples_per_s"]["median"] == 100.0
    assert (found["target"], found["met"]) == (1.5, True)
    slower = Comparison("xdeepfm", {}, "recbole", {}, [499.0], [100.0]).as_json()
    assert (slower["target"], slower["met"]) == (5.0, False)
    assert Comparison("lr", {}, "recbole", {}, [499.0], [100.0]).as_json()["met"] is None


def test_comparison_without_a_peer():
    found = Comparison("fm", {}, ours=[1.0, 3.0]).as_json()
    assert found["ours_samples_per_s"]["median"] == 2.0
    assert "ratio" not in found


def test_growth():
    found = Growth("lazy_adam", 1.2, [10.0, 20.0, 10.0], [11.0, 26.0, 20.0]).as_json()
    assert found["ratio"] == {"median": 1.3, "min": 1.1, "max": 2.0}
    assert (found["target"], found["met"]) == (1.3, True)
    assert Growth("lazy_adam", 1.2, [10.0], [13.1]).as_json()["met"] is False
    for optimizer, zipf in (("lazy_adam", None), ("adam", 1.2)):  # reported beside the claim
        assert Growth(optimizer, zipf, [10.0], [20.0]).as_json()["met"] is None


def test_speed_of_a_reader():
    found = reader.Speed("numpy", 1_000_000, 500_000, seconds=[1.0, 2.0, 4.0], cpu_seconds=[2.0, 2.0, 2.0]).as_json()
    assert found["rows_per_s"] == {"median": 500_000.0, "min": 250_000.0, "max": 1_000_000.0}
    assert found["rows_per_cpu_s"]["median"] == 500_000.0
    assert found["met"] is True
    assert reader.Speed("numpy", 1_000_000, 500_000, [2.1], [1.0]).as_json()["met"] is False
    assert reader.Speed("gzip TFRecord", 10, None, [2.1], [1.0]).as_json()["met"] is None


def test_what_an_epoch_waits_for_its_rows():
    disk, memory = (reader.Speed(name, 10, None, seconds) for name, seconds in (("", [3.0, 8.0, 2.0]), ("", [2.0] * 3)))
    assert reader.waiting([disk, memory]) == 1.5


def test_every_reader_reads_the_same_rows(tmp_path):
    stored, _ = reader.prepare(tmp_path, rows=130, fields=3, batch_size=32, packed_alone=False)
    assert [*stored.readers()] == [
        f"{kind}, {order}" for order in ("in order", "shuffled") for kind in ("packed", "gzip TFRecord")
    ]
    found = {}
    for name, read in stored.readers().items():
        batches = [np.concatenate([inputs["ids"], label], axis=1) for inputs, label in read()]
        assert [len(batch) for batch in batches] == [32, 32, 32, 32, 2]
        found[name] = np.concatenate(batches)
    _, ids, labels = reader.make_rows(130, 3)
    expected = np.concatenate([ids, labels], axis=1)
    for name, rows in found.items():
        if "shuffled" in name:
            assert not np.array_equal(rows, expected)
            rows, wanted = (values[np.lexsort(values.T)] for values in (rows, expected))
            np.testing.assert_array_equal(rows, wanted)
        else:
            np.testing.assert_array_equal(rows, expected)


def test_memory_is_counted_above_the_baseline():
    found = memory.used_by({"baseline_bytes": 100, "peak_bytes": 150}, {"baseline_bytes": 20, "peak_bytes": 120})
    assert (found["ratio"], found["ours"]["used_bytes"], found["theirs"]["used_bytes"]) == (0.5, 50, 100)
    assert memory.Line("cin", found["ratio"], 0.5).as_json()["met"] is True
    assert memory.Line("cin", 0.51, 0.5).as_json()["met"] is False


def test_what_a_further_byte_of_a_log_adds_to_the_memory():
    """Of 300 more bytes 60 stay in memory; logs between the smallest and the largest one do not count."""
    sizes = [(10, 100, 1000), (20, 200, 5000), (40, 400, 1060)]
    peaks = [memory.Peak(rows, size, peak, 1.0) for rows, size, peak in sizes]
    assert memory.growth(peaks) == pytest.approx(0.2)


@pytest.mark.parametrize("text", ["1000", "2000,1000", "1000,1000"])
def test_growth_needs_two_sizes(text):
    with pytest.raises(InputError, match="--rows-files: expected two sizes or more"):
        memory.two_sizes("--rows-files", text)
    assert memory.two_sizes("--rows-files", "1000,2000") == (1000, 2000)


class OfWay:
    """A process whose steps take the given seconds of a core and as many by the clock."""

    def __init__(self, seconds: list[float], log: list):
        self.seconds, self.log = iter(seconds), log

    def train(self, model, options, shape, steps, training, warmup):
        seconds = next(self.seconds)
        self.log.append((steps, training, warmup))
        speed = {"samples_per_s": steps * shape.batch / seconds, "cpu_seconds": 2 * seconds}
        return speed | {"request_cpu_seconds": 7.0 * seconds}


def test_ways_to_train_alternate_and_are_compared_round_by_round(monkeypatch):
    """First steps of 1 and 3 s; 2 steps of 0.1 s, which makes 5 steps of a round's 0.25 s; then three rounds."""
    monkeypatch.setattr(backends, "busy", lambda: 0.25)
    log: list = []
    first, second = OfWay([1.0, 0.1, 1.0, 2.0, 4.0], log), OfWay([3.0, 0.1, 0.5, 2.0, 1.0], log)
    running = {"tensorflow": first, "tensorflow_xla": second}
    found = backends.compare("lr", Shape(batch=10), running, {"optimizer": "adam"}, rounds=3, seconds=0.25)
    told = [{"optimizer": "adam"}, {"optimizer": "adam", "xla": True}]
    assert (
        log
        == [(1, told[0], 0), (2, told[0], 1), (1, told[1], 0), (2, told[1], 1)]
        + [
            (5, told[0], 1),
            (5, told[1], 1),
        ]
        * 3
    )
    assert found.samples_per_s == {"tensorflow": [50.0, 25.0, 12.5], "tensorflow_xla": [100.0, 25.0, 50.0]}
    numbers = found.as_json()
    assert numbers["over"] == {"tensorflow_xla": {"median": 2.0, "min": 1.0, "max": 4.0}}
    assert numbers["cpu_over"]["tensorflow_xla"]["median"] == pytest.approx(2.0)
    assert numbers["samples_per_cpu_s"]["tensorflow"] == [25.0, 12.5, 6.25]
    assert found.first_step_cpu_s == {"tensorflow": 7.0, "tensorflow_xla": 21.0} and found.busy == 0.25


@pytest.mark.parametrize("text", ["jax", "jax,jax"])
def test_two_known_ways_are_compared(text):
    with pytest.raises(InputError, match="--ways: expected two or more of tensorflow, jax"):
        backends.chosen_ways(text)
    assert backends.chosen_ways("jax, tensorflow") == ("jax", "tensorflow")


def test_steps_fill_the_time():
    assert steps_for(samples_per_s=1000.0, seconds=3.0, batch=100) == 30
    assert steps_for(samples_per_s=1.0, seconds=3.0, batch=100) == 3
    assert steps_for(samples_per_s=1e9, seconds=3.0, batch=100) == 500


class Recorder:
    """Fakes our process and a peer's: fixed speeds, the requests in order."""

    threads, backend = 1, "tensorflow"

    def __init__(self, name, speeds, log):
        self.name, self.speeds, self.log = name, speeds, log

    def models(self):
        return dict.fromkeys(self.speeds, True)

    def train(self, model, *arguments, **options):
        steps = arguments[2] if self.name == "ours" else arguments[0]
        self.log.append((self.name, steps))
        return {"samples_per_s": self.speeds[model]}


def test_the_fastest_peer_alternates_with_ours():
    log: list = []
    peers = {name: Recorder(name, speeds, log) for name, speeds in [("a", {"fm": 5.0}), ("b", {"fm": 8.0}), ("c", {})]}
    settings = {"training": {}, "rounds": 2, "steps": 7, "seconds": 1.0, "device": "cpu"}
    found = Sides(Recorder("ours", {"fm": 12.0}, log), peers, Shape(), **settings).compare("fm")
    assert (found.peer, found.trials) == ("b", {"a": 5.0, "b": 8.0})
    assert log == [("a", 2), ("b", 2), ("ours", 2), ("ours", 7), ("b", 7), ("ours", 7), ("b", 7)]
    assert (found.ours, found.theirs) == ([12.0, 12.0], [8.0, 8.0])


class OfFloat32(Recorder):
    """A peer that fails in bfloat16."""

    def train(self, model, *arguments, autocast=False, **options):
        if autocast:
            raise ProcessError("both inputs should have same dtype")
        return super().train(model, *arguments, **options)


def test_a_peer_that_fails_in_bfloat16_alone_is_left_out():
    def compared(precision: str, *others: str) -> Comparison:
        peers = {"a": OfFloat32("a", {"fm": 8.0}, []), **{name: Recorder(name, {"fm": 5.0}, []) for name in others}}
        settings = {"training": {}, "rounds": 1, "steps": 7, "seconds": 1.0, "device": "cpu"}
        ours = Recorder("ours", {"fm": 12.0}, [])
        return Sides(ours, peers, Shape(), peer_precision=precision, **settings).compare("fm")

    assert (compared("float32", "b").peer, compared("float32", "b").trials) == ("a", {"a": 8.0, "b": 5.0})
    assert (compared("mixed_bfloat16", "b").peer, compared("mixed_bfloat16", "b").trials) == ("b", {"b": 5.0})
    assert compared("mixed_bfloat16").peer is None


def test_a_peer_that_fails_in_float32_ends_the_comparison():
    failing = Recorder("a", {"fm": 8.0}, [])
    failing.train = lambda *arguments, **options: (_ for _ in ()).throw(ProcessError("it ended"))
    settings = {"training": {}, "rounds": 1, "steps": 7, "seconds": 1.0, "device": "cpu"}
    with pytest.raises(ProcessError, match="it ended"):
        Sides(Recorder("ours", {"fm": 12.0}, []), {"a": failing}, Shape(), **settings).compare("fm")


@pytest.mark.parametrize("peer", [None, *NAMES])
@pytest.mark.parametrize("model", [*MODELS, *TEXTS])
def test_our_hyperparameters_exist(model, peer):
    check_hyperparameters(model, **our_options(model, peer, Shape()))


def test_both_sides_have_the_same_sizes():
    shape = Shape(fields=3, ids=7, dim=4, batch=5)
    theirs, ours = peer_options(shape), our_options("xdeepfm", "fuxictr", shape)
    assert theirs["sizes"] == (7, 7, 7)
    assert (theirs["dim"], theirs["hidden"], theirs["cin"]) == (4, ours["hidden_units"], ours["maps"])
    assert ours["embedding_dim"] == 4
    assert theirs["cin_activation"] == ours["cin_activation"] == "linear"


def test_both_sides_of_a_model_of_the_zoo_have_the_same_sizes():
    shape = Shape(fields=3, dim=4, hidden=(9, 8, 7))
    theirs, ours = zoo_options("gdcn", shape, "FuxiCTR"), our_options("gdcn", "fuxictr", shape)
    assert (theirs["zoo"], theirs["settings"]) == ("FuxiCTR", {"dnn_hidden_units": [9, 8, 7], "num_cross_layers": 3})
    assert ours == {"hidden_units": (9, 8, 7), "layers": 3, "embedding_dim": 4}


@pytest.mark.parametrize("zipf", [None, 1.2])
def test_both_sides_draw_ids_by_the_same_law(zipf, monkeypatch):
    ours = Ours("tensorflow", 1)
    asked = {}
    monkeypatch.setattr(ours, "ask", asked.update)
    shape = Shape(fields=2, ids=100, batch=4000, zipf=zipf)
    ours.train("fm", {}, shape, 1)
    assert asked["zipf"] == peer_options(shape)["zipf"] == zipf
    spec = Spec("fm", {}, shape.sizes, batch=shape.batch, batches=1, zipf=asked["zipf"])
    [(inputs, _)] = draw_batches(spec, feature_map_of(spec))
    first = np.mean(inputs["ids"][:, 0] == inputs["ids"][:, 0].min())
    assert first < 0.03 if zipf is None else first > 0.2


def test_ids_follow_zipfs_law():
    random = np.random.default_rng(3)
    ids = draw_ids(random, (4, 1000), rows=200_000, zipf=1.2)
    assert ids.dtype == np.int32
    for column, size in enumerate((4, 1000)):
        expected = np.arange(1, size + 1) ** -1.2
        counts = np.bincount(ids[:, column], minlength=size)
        assert len(counts) == size
        np.testing.assert_allclose(counts[:4] / len(ids), expected[:4] / expected.sum(), atol=0.005)


def test_batches_stay_within_their_fields():
    feature_map = FeatureMap.from_sizes([("a", "categorical", 3, 1, "feature"), ("b", "categorical", 2, 1, "feature")])
    spec = Spec("fm", {}, (3, 2), batch=500, batches=2)
    batches = draw_batches(spec, feature_map)
    assert len(batches) == 2
    for inputs, labels in batches:
        assert set(inputs["ids"][:, 0]) == {3, 4, 5}  # 1 + unknown and missing
        assert set(inputs["ids"][:, 1]) == {8, 9}
        assert labels.shape == (500, 1)
        assert set(np.unique(labels)) == {0.0, 1.0}


@pytest.mark.parametrize("least", [1, 3])
def test_a_history_is_of_the_first_field_and_has_its_padding_behind(least):
    fields = [("a", "categorical", 3, 1, "feature"), ("b", "categorical", 2, 1, "feature")]
    feature_map = FeatureMap.from_sizes([*fields, ("h", "sequence", 3, 4, "feature", "mean", "a")], tasks=("x", "y"))
    spec = Spec("din", {}, (3, 2), batch=500, history=4, least_history=least, tasks=2, batches=1)
    [(inputs, labels)] = draw_batches(spec, feature_map)
    ids, items = np.split(inputs["ids"], [2], axis=1)
    assert items.shape == (500, 4) and labels.shape == (500, 2) and set(np.unique(ids[:, 1])) == {8, 9}
    assert set(np.unique(items)) == {0, 3, 4, 5} and (items[:, 0] > 0).all()
    lengths = (items > 0).sum(axis=1)
    assert set(lengths) == set(range(least, 5))
    np.testing.assert_array_equal(items > 0, np.arange(4) < lengths[:, None])


def test_a_least_history_above_the_most_is_refused_in_one_line():
    done = CliRunner().invoke(train.main, ["--history", "4", "--least-history", "5"])
    assert done.exit_code == 2 and done.output.endswith("--least-history 5: should be at most --history, which is 4\n")


def test_rows_are_shared_by_the_fields():
    shape = shape_of(rows=100_000, fields=39, dim=16, batch=2048)
    assert (shape.ids, shape.fields) == (2564, 39)


@pytest.mark.parametrize("model", ["deepfm", "din"])
def test_the_step_of_a_table_reads_a_history_of_any_model(model):
    """Two steps in 0.03 s are 15 ms each; the benchmark asks for a history, whatever the model."""
    asked = []

    class Training(Ours):
        def ask(self, request):
            asked.append(request)
            return {"seconds": 0.03}

    small, large = (shape_of(rows, fields=2, dim=4, batch=8, history=7) for rows in (60, 600))
    ours = Training("tensorflow", 1)
    sides = tables.TwoTables(ours, ours, model, (small, large), rounds=1, steps=2, seconds=1.0)
    assert sides.grow("lazy_adam", 1.2).as_json()["ratio"]["median"] == 1.0
    assert sides.step_ms(ours, large, "lazy_adam", 1.2, 2, 1) == pytest.approx(15)
    assert {request["history"] for request in asked} == {7}
    assert [request["sizes"] for request in asked] == [(30, 30), (300, 300)] * 2 + [(300, 300)]


def test_a_model_of_histories_wants_one(tmp_path):
    found = CliRunner().invoke(tables.main, ["--model", "din", "--output", str(tmp_path / "tables.json")])
    assert found.exit_code == 2 and "--model din reads a history; give --history 50" in found.stderr


def test_busy_is_the_share_of_others(monkeypatch, tmp_path):
    """Between the two readings: 60 of 80 ticks idle or waiting for a disk."""
    readings = iter(["cpu 10 0 10 100 20 0 0 0 0 0\n", "cpu 25 0 15 150 30 0 0 0 0 0\n"])
    monkeypatch.setattr(machine, "STAT", tmp_path / "stat")
    (tmp_path / "stat").write_text(next(readings))
    monkeypatch.setattr(machine.time, "sleep", lambda _: (tmp_path / "stat").write_text(next(readings)))
    assert busy() == 0.25
    assert "25%" in busy_caption(0.25)
    assert busy_caption(0.1) is None


def test_cores_are_given_back():
    before = os.sched_getaffinity(0)
    with on_cores(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--models", "fm,nonsense"], "unknown 'nonsense'"),
        (["--threads", "4096"], "--threads should be between 1 and"),
        (["--rounds", "0"], "--rounds"),
        (["--backend", "torch"], "--backend"),
        (["--peer-python", "no/such/python"], "Run `make peers`"),
    ],
)
def test_train_refuses_in_one_line(arguments, words, tmp_path):
    found = CliRunner().invoke(train.main, [*arguments, "--output", str(tmp_path / "train.json")])
    assert found.exit_code == 2
    assert words in found.stderr.splitlines()[-1]
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("maps", ["", "200,", "200,-1", "a"])
def test_maps(maps):
    with pytest.raises(InputError, match="--maps: expected positive numbers"):
        positive_numbers("--maps", maps)
    assert positive_numbers("--maps", "200, 100") == (200, 100)


def test_the_table_that_devices_hold():
    """A table of 4,000 rows with 192 bytes a row on 4 devices, and 1,000 bytes of something else on each."""
    measured = Measured("lazy_adam", 4, 4000, 193_000, 200_000, 192.0, (3.0, 1.0, 2.0))
    assert bytes_per_row("lazy_adam", 16) == 192
    assert measured.rest_bytes == 1000
    assert measured.rows_in(193_000) == 4000
    assert measured.rows_in(1e15) == 2**31 - 1
    assert [measured.devices_for(4000, capacity) for capacity in (193_000, 192_999, 769_000)] == [4, 5, 1]


def test_models():
    assert chosen_models(None) == list(TARGETS)
    assert chosen_models("fm, cin") == ["fm", "cin"]


@pytest.mark.parametrize("main", [train.main, memory.main, tables.main, backends.main])
def test_help_explains_every_option(main):
    text = CliRunner().invoke(main, ["--help"]).output
    for option in main.params:
        if isinstance(option, click.Option):
            assert option.opts[0] in text
            assert option.help or "--help" in option.opts


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [(ProcessError("fuxictr ended"), 2, "fuxictr ended"), (KeyboardInterrupt(), 130, "interrupted")],
)
def test_errors_are_one_line(error, code, words, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(train, "measure", fail)
    found = CliRunner().invoke(train.main, ["--output", str(tmp_path / "train.json")])
    assert found.exit_code == code
    assert words in found.stderr
    assert "Traceback" not in found.output


def test_a_result_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        write({}, tmp_path / "file" / "train.json")
    write({"a": 1}, tmp_path / "new" / "train.json")
    assert json.loads((tmp_path / "new" / "train.json").read_text()) == {"a": 1}


class OfZoo:
    """Replaces both sides: names the models of its package, and records the requests to train."""

    def __init__(self):
        self.backend, self.threads, self.asked = "tensorflow", 2, []

    def models(self):
        return {"fm": True}

    def train(self, model, *arguments, **options):
        self.asked.append((model, options.get("history"), options.get("zoo")))
        return {"samples_per_s": 10.0}


@pytest.mark.parametrize(("zoo", "peer"), [("folder", "fuxictr"), ("", None)])
def test_models_of_the_zoo_have_a_peer_where_its_folder_is_given(zoo, peer):
    theirs = OfZoo()
    settings = {"training": {}, "rounds": 1, "steps": 3, "seconds": 1, "device": "cpu", "zoo": zoo}
    found = Sides(OfZoo(), {"fuxictr": theirs}, Shape(history=7), **settings).compare("din")
    assert found.peer == peer and theirs.asked == ([("din", 7, "folder")] * 2 if zoo else [])
