"""Each model against loops over rows, fields and heads, and under every way in which it is run."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from models import FeatureMap, available, create
from models.layers.field_embedding import FieldEmbedding
from models.losses import BinaryCrossEntropy
from models.layers.top_k_self_attention import TopKSelfAttention

BASE = {"embedding_dim": 4, "embedding_stddev": 0.5}
MLP = {**BASE, "hidden_units": (8,)}
TOKENS = {**MLP, "layers": 2, "heads": 2, "key_dim": 3, "value_dim": 2, "ffn_dim": 6, "dense_units": (5,)}
SMALL = {
    "lr": {"l2": 0.01},
    "fm": BASE,
    "ffm": {**BASE, "embedding_dim": 3},
    "afm": {**BASE, "attention_units": 3},
    "mlp": {**BASE, "hidden_units": (8, 6), "use_linear": True},
    "fnn": MLP,
    "ccpm": {**MLP, "filters": (2, 3), "widths": (3, 2)},
    "pnn": {**MLP, "products": ("inner", "outer", "kernel")},
    "deepfm": MLP,
    "wide_deep": MLP,
    "dcn": {**MLP, "layers": 2},
    "crossnet": {**BASE, "layers": 2},
    "dcn_v2": {**MLP, "layers": 2},
    "dlrm": {**MLP, "bottom_units": (5,)},
    "cin": {**BASE, "maps": (4, 3)},
    "xdeepfm": {**MLP, "maps": (4, 3), "split_half": True, "cin_activation": "relu"},
    "autoint": {**MLP, "layers": 2, "attention_dim": 6, "deep_units": (5,)},
    "attention_net": {**MLP, "layers": 2, "heads": 2, "top_k": 2},
    "transformer": TOKENS,
    "transformer_pe": TOKENS,
    "hetero_att": TOKENS,
    "hiformer": {**TOKENS, "qk_rank": 3, "v_rank": 5},
}


def feature_map(dense=("x", "z")) -> FeatureMap:
    fields = [(f"f{index}", "categorical", 5 + index, 1, "feature") for index in range(5)]
    return FeatureMap.from_sizes([*fields, ("m", "multivalent", 6, 3, "feature")], dense)


def batch(rows=7, seed=0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    columns = []
    for field in feature_map().fields:
        ids = random.integers(field.offset, field.offset + field.size, (rows, field.slots))
        ids[:, 1:] *= random.random((rows, field.slots - 1)) < 0.5  # padding
        columns.append(ids)
    return {
        "ids": np.concatenate(columns, axis=1).astype(np.int32),
        "dense": random.normal(size=(rows, 2)).astype(np.float32),
    }


def randomised(name: str, **changes):
    keras.utils.set_random_seed(3)
    model = create(name, feature_map(), **{**SMALL[name], **changes})
    model(batch())
    random = np.random.default_rng(5)
    for weight in model.trainable_variables:
        weight.assign(random.normal(scale=0.4, size=weight.shape).astype(np.float32))
    return model


def embed(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(ids), len(feature_map().fields), table.shape[1]))
    for n, row in enumerate(ids):
        slot = 0
        for f, field in enumerate(feature_map().fields):
            for _ in range(field.slots):
                if row[slot]:
                    rows[n, f] += table[row[slot]]
                slot += 1
    return rows


def linear(model, inputs) -> np.ndarray:
    ids = embed(model.linear.table.numpy(), inputs["ids"]).sum(axis=1)
    return ids + inputs["dense"] @ model.linear_dense.kernel.numpy() + model.linear_dense.bias.numpy()


def dense_layers(model, x: np.ndarray) -> np.ndarray:
    for layer in model.tower.hidden:
        x = np.maximum(x @ layer.kernel.numpy() + layer.bias.numpy(), 0)
    return x @ model.tower.logits.kernel.numpy() + model.tower.logits.bias.numpy()


def attention(layer: TopKSelfAttention, e: np.ndarray, k: int | None) -> np.ndarray:
    """Equations 3 to 8, one row, field and head at a time."""
    fields, d = e.shape
    heads, width = layer.heads, d // layer.heads
    q, key, v = (np.maximum(e @ w.numpy(), 0) for w in (layer.query, layer.key, layer.value))
    mixed = np.zeros_like(e)
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        for i in range(fields):
            scores = [q[i, part] @ key[j, part] / np.sqrt(width) for j in range(fields)]
            if k is not None and k < fields:
                limit = sorted(scores, reverse=True)[k - 1]
                scores = [score if score >= limit else -np.inf for score in scores]
            weights = np.exp(np.array(scores) - max(scores))
            weights /= weights.sum()
            for j in range(fields):
                mixed[i, part] += weights[j] * v[j, part]
    mixed += e
    return np.maximum(mixed @ layer.ffn_in.numpy(), 0) @ layer.ffn_out.numpy() + mixed


def test_lr_is_the_sum_of_its_weights():
    model, inputs = randomised("lr"), batch()
    np.testing.assert_allclose(model(inputs), linear(model, inputs), rtol=1e-5, atol=1e-5)


def test_mlp_is_dense_layers_on_concatenated_embeddings():
    model, inputs = randomised("mlp"), batch()
    rows = embed(model.table.table.numpy(), inputs["ids"]).reshape(7, -1)
    expected = dense_layers(model, np.concatenate([rows, inputs["dense"]], axis=1)) + linear(model, inputs)
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [1, 2, 5, None])
def test_attention_net_is_the_papers_equations(k):
    model, inputs = randomised("attention_net", top_k=k), batch()
    expected = []
    for e in embed(model.table.table.numpy(), inputs["ids"]):
        for layer in model.attention:
            e = attention(layer, e, k)
        expected.append(e.reshape(-1))
    expected = dense_layers(model, np.concatenate([np.stack(expected), inputs["dense"]], axis=1))
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-4, atol=1e-4)


def layer_and_rows(k, fields=6):
    random = np.random.default_rng(1)
    layer = TopKSelfAttention(heads=2, top_k=k)
    rows = random.normal(size=(4, fields, 4)).astype(np.float32)
    layer(rows)
    for weight in layer.trainable_variables:
        weight.assign(random.normal(size=weight.shape).astype(np.float32))
    return layer, rows


def test_k_of_all_fields_is_plain_attention():
    layer, rows = layer_and_rows(6)
    plain, _ = layer_and_rows(None)
    np.testing.assert_array_equal(layer(rows), plain(rows))


def test_each_field_attends_to_k_others_unless_scores_tie():
    layer, rows = layer_and_rows(2)
    _, maps = layer(rows, return_attention=True)
    counts = (np.asarray(maps) > 0).sum(axis=-1)
    q, key = (np.maximum(rows @ w.numpy(), 0).reshape(4, 6, 2, 2) for w in (layer.query, layer.key))
    scores = np.einsum("nihd,njhd->nhij", q, key)
    limit = np.sort(scores, axis=-1)[..., -2:-1]
    np.testing.assert_array_equal(counts, (scores >= limit - 1e-6).sum(axis=-1))
    assert counts.min() == 2 and counts.max() > 2  # ReLU makes ties at zero


def test_the_order_of_fields_does_not_matter():
    layer, rows = layer_and_rows(2)
    order = np.random.default_rng(2).permutation(6)
    np.testing.assert_allclose(layer(rows[:, order]), np.asarray(layer(rows))[:, order], rtol=1e-5, atol=1e-5)


def test_padding_stays_untrained_and_counts_as_zero():
    layer = FieldEmbedding(feature_map(), 4, stddev=1.0)
    ids = batch()["ids"]
    with tf.GradientTape() as tape:
        rows = layer(ids)
        total = tf.reduce_sum(rows * rows)
    gradient = tf.convert_to_tensor(tape.gradient(total, layer.table.value)).numpy()
    assert not gradient[0].any() and gradient[1:].any()
    np.testing.assert_allclose(rows, embed(layer.table.numpy(), ids), rtol=1e-5, atol=1e-6)


def test_embedding_l2_counts_the_rows_of_the_batch():
    layer = FieldEmbedding(feature_map(), 4, stddev=1.0, l2=0.5)
    rows = np.asarray(layer(batch()["ids"]))
    assert float(layer.losses[0]) == pytest.approx(0.25 * np.mean(np.sum(rows**2, axis=(1, 2))), rel=1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_every_weight_gets_a_gradient(name):
    model, inputs = randomised(name), batch(64)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.sin(model(inputs)))
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
    for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, weight.path
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path


@pytest.mark.parametrize("name", SMALL)
def test_a_row_does_not_depend_on_other_rows(name):
    model, inputs = randomised(name), batch()
    one = {key: value[2:3] for key, value in inputs.items()}
    np.testing.assert_allclose(model(one), model(inputs)[2:3], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("jit", [False, True])
def test_compiled_equals_eager(name, jit):
    model, inputs = randomised(name), batch()
    compiled = tf.function(lambda values: model(values), jit_compile=jit)
    np.testing.assert_allclose(compiled(inputs), model(inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_one_training_step_under_every_policy_gives_float32_logits(name, policy):
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy(policy)
    try:
        model = create(name, feature_map(), **SMALL[name])
        model.compile("adam", BinaryCrossEntropy(), jit_compile=False)
        labels = np.ones((7, 1), np.float32)
        history = model.fit(batch(), labels, verbose=0)
        assert np.isfinite(history.history["loss"][0])
        assert model(batch()).dtype == tf.float32
    finally:
        keras.mixed_precision.set_dtype_policy(before)


def test_loss_equals_cross_entropy_and_survives_large_logits():
    z, y = np.array([[2.0], [-3.0], [90.0]], np.float32), np.array([[1.0], [1.0], [0.0]], np.float32)
    expected = np.mean([np.log1p(np.exp(-2)), np.log1p(np.exp(3)), 90.0])
    assert float(BinaryCrossEntropy()(y, z)) == pytest.approx(expected, rel=1e-6)


JAX = """
import json, sys
import numpy as np
from models import FeatureMap, create
import keras
assert keras.backend.backend() == "jax" and "tensorflow" not in sys.modules
task = json.load(open(sys.argv[1]))
inputs = {key: np.array(value, "int32" if key == "ids" else "float32") for key, value in task["inputs"].items()}
model = create(task["name"], FeatureMap.from_json(task["map"]), **task["options"])
model(inputs)
for weight, value in zip(model.trainable_variables, task["weights"], strict=True):
    weight.assign(np.array(value, "float32"))
print(json.dumps(np.asarray(model(inputs)).tolist()))
"""


@pytest.mark.parametrize("name", SMALL)
def test_jax_gives_the_same(name, tmp_path):
    model, inputs = randomised(name), batch()
    weights = [weight.numpy().tolist() for weight in model.trainable_variables]
    task = {
        "name": name,
        "map": feature_map().to_json(),
        "options": SMALL[name],
        "inputs": {key: value.tolist() for key, value in inputs.items()},
        "weights": weights,
    }
    (tmp_path / "task.json").write_text(json.dumps(task))
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    command = [sys.executable, "-c", JAX, str(tmp_path / "task.json")]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    np.testing.assert_allclose(json.loads(run.stdout), model(inputs), rtol=1e-4, atol=1e-5)


def test_wrong_names_and_values_say_what_exists():
    with pytest.raises(ValueError, match="did you mean 'attention_net'"):
        create("attention_nets", feature_map())
    with pytest.raises(ValueError, match="did you mean 'top_k'"):
        create("attention_net", feature_map(), topk=3)
    with pytest.raises(ValueError, match="layers should be like its default 3"):
        create("attention_net", feature_map(), layers="three")
    with pytest.raises(ValueError, match="should divide"):
        create("attention_net", feature_map(), embedding_dim=6, heads=4)


def test_every_model_tells_its_options():
    assert {model.name for model in available()} == set(SMALL)
    assert all(model.description and model.options for model in available())
