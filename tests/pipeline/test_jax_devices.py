"""JAX on eight virtual devices and on one: the same model, an eighth of the tables per device. Precision on JAX."""

import functools
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

from ctrpipe.common import metrics
from ctrpipe.models import FeatureMap
from ctrpipe.pipeline.config import Model, Training
from tests.pipeline.gradient_steps import l2_error
from tests.warm_python import python

pytestmark = pytest.mark.slow

DEVICES = 8
FIELDS = [("a", "categorical", 8, 1, "feature"), ("b", "categorical", 20, 1, "feature")]
MAP = FeatureMap.from_sizes([*FIELDS, ("m", "multivalent", 9, 3, "feature")], ["x"])  # 44 ids: 8 do not divide them
MODEL = {"name": "fm", "embedding_dim": 4, "embedding_stddev": 0.1, "embedding_l2": 0.01}
WIDE = {"name": "fm", "embedding_dim": 16}
LARGE = FeatureMap.from_sizes([("a", "categorical", 400_000, 1, "feature"), FIELDS[1]])


def batches(sizes: list[int], feature_map: FeatureMap = MAP) -> list:
    """Clicks where the first two fields agree in parity, and one in ten wherever."""
    random = np.random.default_rng(4)
    found = []
    for rows in sizes:
        ids = [random.integers(0, field.size, (rows, field.slots)) for field in feature_map.fields]
        click = np.where(random.random(rows) < 0.1, random.random(rows) < 0.5, (ids[0] + ids[1])[:, 0] % 2 == 0)
        ids = [column + field.offset for column, field in zip(ids, feature_map.fields, strict=True)]
        if feature_map is MAP:
            ids[2][:, 1:] *= random.random((rows, 2)) < 0.5  # padding
        inputs = {"ids": np.concatenate(ids, axis=1).astype(np.int32)}
        if feature_map.dense:
            inputs["dense"] = random.normal(size=(rows, 1)).astype(np.float32)
        found.append((inputs, click[:, None].astype(np.float32)))
    return found


def learner(model: dict, feature_map: FeatureMap = MAP, **training):
    from ctrpipe.pipeline.training.jax_learner import make_learner

    settings = {"backend": "jax", "learning_rate": 0.05, "gradient_clip_norm": 0.5, **training}
    return make_learner(Model(**model), Training(**settings), feature_map, 1)


TOGETHER = ('["largest_differences", "lazy_adam", 0.0, 21]', '["layouts", ["lazy_adam"]]')  # calls of one process


def on_devices(function: str, *arguments):
    """What a function of this module returns in a process where JAX has eight devices."""
    call = json.dumps([function, *arguments])
    calls = TOGETHER if call in TOGETHER else (call,)
    return returned(calls)[calls.index(call)]


def results(calls: list[str]) -> list:
    return [globals()[function](*arguments) for function, *arguments in map(json.loads, calls)]


@functools.cache
def returned(calls: tuple[str, ...]) -> list:
    """What the calls return one after the other in one process."""
    root = pathlib.Path(__file__).parents[2]
    # Without TensorFlow, as ctrpipe.pipeline.training.worker has it.
    script = (
        "import json, sys; from ctrpipe.common.libraries import import_keras; import_keras(); "
        "import tests.pipeline.test_jax_devices as module; "
        "print(json.dumps(module.results(json.loads(sys.argv[1]))))"
    )
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(root)}
    environment |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # of LLVM: compiling is most of a test's time
    environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    command = [*python("jax"), "-c", script, json.dumps(calls)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


def largest_differences(optimizer: str, dropout: float, rows: int) -> dict:
    """Between one device and several, of losses, weights and predictions; and between a training of which the second
    half ran on one device and the one that ran on several throughout."""
    model, data, half = MODEL | {"embedding_dropout": dropout}, batches([rows] * 4), 2
    penalties = {"table_l2": 0.01 * (optimizer == "adam"), "network_l2": 0.02}
    one = learner(model, optimizer=optimizer, distribution="one_device", **penalties)
    expected = [one.fit([batch]) for batch in data], one.weights(), one.predict(data)[1]
    found = {"moved": float(np.abs(np.subtract(expected[0], expected[0][0])).max())}
    for name, shard_tables in (("mirrored", False), ("sharded", True)):
        devices = {"distribution": "mirrored", "shard_tables": shard_tables}
        several = learner(model, optimizer=optimizer, **penalties, **devices)
        losses = [several.fit([batch]) for batch in data[:half]]
        state = several.state()
        losses += [several.fit([batch]) for batch in data[half:]]
        pairs = [(losses, expected[0]), (several.predict(data)[1], expected[2])]
        found[name] = max(_distance(*pair) for pair in [*pairs, *zip(several.weights(), expected[1], strict=True)])
    one.load_state(state)
    one.fit(data[half:])
    found["resumed"] = max(map(_distance, one.state(), several.state()))
    several.load_state(state)
    several.fit(data[half:])
    found["returned"] = max(map(_distance, several.state(), one.state()))
    if penalties["table_l2"]:
        found["penalty"] = l2_error(functools.partial(learner, MODEL, distribution="one_device"), data[0], 0.5, 0.25)
    return found


def _distance(found, expected) -> float:
    assert np.shape(found) == np.shape(expected)
    return float(np.abs(np.subtract(found, expected, dtype=np.float64)).max())


@pytest.mark.parametrize(
    ("optimizer", "dropout", "rows"),
    # 21: five over; 5: one has none
    [
        pytest.param("adam", 0.3, 24, marks=pytest.mark.large),
        ("lazy_adam", 0.0, 21),
        pytest.param("rowwise_adagrad", 0.0, 5, marks=pytest.mark.large),
    ],
)
def test_several_devices_learn_the_model_of_one(optimizer, dropout, rows):
    found = on_devices("largest_differences", optimizer, dropout, rows)
    assert found.pop("moved") > 0.01
    assert max(found.values()) < 1e-5, found


def normalised(rows: int) -> list[float]:
    """Least move of a weight, and largest difference between one device and several, with batch normalisation."""
    model = {"name": "mlp", "embedding_dim": 4, "embedding_stddev": 0.5, "hidden_units": [6], "normalization": "batch"}
    data = batches([rows] * 3)
    one, several = (learner(model, distribution=layout) for layout in ("one_device", "mirrored"))
    before = one.weights()
    for trained in (one, several):
        trained.fit(data)
    moved = min(map(_distance, one.weights(), before))
    apart = [
        *map(_distance, several.weights(), one.weights()),
        _distance(several.predict(data)[1], one.predict(data)[1]),
    ]
    return [moved, max(apart)]


@pytest.mark.large(like="tests/models/test_tower.py::test_a_training_moves_the_statistics_and_a_skipped_step_does_not")
@pytest.mark.parametrize("rows", [24, 21])
def test_several_devices_normalise_with_the_statistics_of_the_whole_batch(rows):
    moved, apart = on_devices("normalised", rows)
    assert moved > 1e-3 and apart < 1e-5


def programs(optimizer: str) -> list[list[int]]:
    """How many programs a training compiles for its step and for its predictions, on one device and on several."""
    layouts = {"distribution": "one_device"}, {"distribution": "mirrored", "shard_tables": True}
    data, found = batches([24] * 2), []
    for layout in layouts:
        trained = learner(MODEL, optimizer=optimizer, precision="mixed_float16", **layout)
        trained.predict(data)
        trained.fit(data)
        trained.load_state(trained.state())
        trained.fit(data)
        trained.predict(data)
        found.append([trained._step._cache_size(), trained._forward._cache_size()])
    return found


@pytest.mark.large(like="tests/pipeline/test_jax_devices.py::test_several_devices_learn_the_model_of_one")
def test_a_step_is_compiled_once():
    """The first step's arrays are placed as those that it returns; compiling takes seconds."""
    assert on_devices("programs", "lazy_adam") == [[1, 1], [1, 1]]


def warm_starts(folder: str, optimizer: str) -> dict:
    """Differences of warm starts, by what trained the parent and what goes on from it: of the rows that it takes, and
    of the losses and weights after two more steps, which its moments decide, from those of one device throughout."""
    from ctrpipe.pipeline.config import WarmStart
    from ctrpipe.pipeline.training.warm_start import Start, take
    from ctrpipe.transforms.features.table_rows import SourceRows
    from tests.pipeline.test_warm_start import keep, named

    places = np.random.default_rng(6).permutation(MAP.total_ids)
    rows = {"ids": SourceRows(places, np.ones_like(places))}
    layouts = {"one": {"distribution": "one_device"}, "sharded": {"distribution": "mirrored", "shard_tables": True}}
    data, found, expected = batches([24] * 4), {}, None
    for before, of_parent in layouts.items():
        parent = learner(MODEL, optimizer=optimizer, **of_parent)
        parent.fit(data[:2])
        kept = pathlib.Path(folder) / before
        keep(kept, "fm", parent)
        table = named(parent)["table.table"]
        for after, of_child in layouts.items():
            child = learner(MODEL, optimizer=optimizer, **of_child)
            taken = take(child, Start("yesterday", kept, rows, same_columns=True), WarmStart())
            assert taken.optimizer and not taken.left, taken
            began = named(child)["table.table"]
            losses = [child.fit([batch]) for batch in data[2:]]
            values = [losses, *child.weights()]
            expected = values if expected is None else expected
            found[f"{before}, {after}"] = max(map(_distance, [began, *values], [table[places], *expected]))
    return found


@pytest.mark.large(like="tests/pipeline/test_jax_devices.py::test_a_device_has_its_part_of_the_tables_and_no_more")
@pytest.mark.parametrize("optimizer", [pytest.param("adam", marks=pytest.mark.large), "lazy_adam"])
def test_a_warm_start_passes_between_one_device_and_tables_in_parts(tmp_path, optimizer):
    found = on_devices("warm_starts", str(tmp_path), optimizer)
    assert len(found) == 4 and max(found.values()) < 1e-5, found


def layouts(optimizers: list[str]) -> list:
    """By optimizer: the width of each array with a row per id, its bytes on each device, and what XLA says of the step,
    whose rows the devices do not divide."""
    found = []
    for optimizer in optimizers:
        several = learner(WIDE, LARGE, optimizer=optimizer, distribution="mirrored", shard_tables=True)
        state = [table.table.value for table in several.network.tables()]
        state += [value for key in ("slots", "optimizer") for value in several._values[key]]
        long = [array for array in state if array.ndim and len(array) >= LARGE.total_ids]
        step = several.compiled_step(*batches([61], LARGE))
        sizes = {int(size) for shape in re.findall(r"\[([\d,]+)\]", step.as_text()) for size in shape.split(",")}
        memory = step.memory_analysis()
        found.append(
            {
                "widths": [array.shape[1] for array in long],
                "bytes": [[shard.data.nbytes for shard in array.addressable_shards] for array in long],
                "longest": max(sizes),
                "arguments": memory.argument_size_in_bytes,
                "temporary": memory.temp_size_in_bytes,
            }
        )
    return found


# Two moments for the table and for the linear part, or one number a row; dense Adam makes a gradient of each.
SLOTS = {"adam": ([16, 16, 1, 1], 17), "lazy_adam": ([16, 16, 1, 1], 0), "rowwise_adagrad": ([1, 1], 0)}


@pytest.mark.parametrize(
    "optimizers", [["lazy_adam"], pytest.param(["adam", "rowwise_adagrad"], marks=pytest.mark.large)], ids="+".join
)
def test_a_device_has_its_part_of_the_tables_and_no_more(optimizers):
    rows = -(-LARGE.total_ids // DEVICES)
    assert rows * DEVICES > LARGE.total_ids
    for found, optimizer in zip(on_devices("layouts", optimizers), optimizers, strict=True):
        slots, gradient = SLOTS[optimizer]
        assert sorted(found["widths"]) == sorted([16, 1, *slots])
        assert found["bytes"] == [[4 * width * rows] * DEVICES for width in found["widths"]]
        assert found["longest"] == rows  # of all arrays in the program: a table is nowhere put together
        assert found["arguments"] - 4 * rows * (17 + sum(slots)) in range(20_000)
        assert found["temporary"] - 4 * rows * gradient in range(200_000)


def precisions() -> dict:
    """AUC on unseen rows by precision, and what a step with an infinite gradient changed."""
    model = {"name": "mlp", "embedding_dim": 8, "embedding_stddev": 0.1, "hidden_units": [32]}
    *train, unseen = batches([256] * 40 + [4096])
    found = {"auc": {}, "weights": []}
    for precision in ("float32", "mixed_bfloat16", "mixed_float16"):
        one = learner(model, optimizer="lazy_adam", precision=precision)
        one.fit(train)
        labels, probabilities = one.predict([unseen])
        found["auc"][precision] = metrics.auc(labels[:, 0], probabilities[:, 0])
        found["weights"] += [str(weight.dtype) for weight in one.state()[: len(one.weights())]]
    before = one.state()
    *rest, scale, steps = before
    one.load_state([*rest, np.float32(2.0**120), steps])
    one.fit(train[:1])
    found["scales"] = [float(scale), float(np.log2(one.state()[-2]))]
    found["changed"] = [not np.array_equal(*pair) for pair in zip(before[:-2], one.state()[:-2], strict=True)]
    one.fit(train[:1] * 120)
    found["again"] = max(map(_distance, before[:-2], one.state()[:-2]))
    return found


@pytest.mark.large(like="tests/pipeline/test_jax_devices.py::test_several_devices_learn_the_model_of_one")
def test_half_precision_learns_nearly_as_well_and_leaves_out_steps_that_overflow():
    found = on_devices("precisions")
    assert found["auc"]["float32"] > 0.85
    assert list(found["auc"].values()) == pytest.approx([found["auc"]["float32"]] * 3, abs=0.01)
    assert set(found["weights"]) <= {"float32", "uint32"}
    assert found["scales"] == [2.0**15, 119]
    assert not any(found["changed"])
    assert found["again"] > 0.01


@pytest.mark.parametrize("settings", [{}, {"backend": "jax", "distribution": "one_device"}])
def test_tables_are_sharded_where_jax_has_several_devices(settings):
    with pytest.raises(ValueError, match="shard_tables needs backend jax and distribution auto or mirrored"):
        Training(shard_tables=True, **settings)
