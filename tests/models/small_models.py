"""Small instances of every model with random weights, random rows, and the parts that loops in numpy share."""

import keras
import numpy as np

from models import FeatureMap, create

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


def randomised(name: str, data: FeatureMap | None = None, **changes):
    keras.utils.set_random_seed(3)
    model = create(name, data or feature_map(), **{**SMALL[name], **changes})
    model(batch())
    random = np.random.default_rng(5)
    # With small weights the layer norms of an encoder leave of the fields less than a test's tolerance.
    scale = 0.8 if "key_dim" in SMALL[name] else 0.4
    for weight in model.trainable_variables:
        weight.assign(random.normal(scale=scale, size=weight.shape).astype(np.float32))
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
