"""Small instances of every model with random weights, random rows, and shared parts of the loops in numpy."""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

import keras
import numpy as np
import pytest
from _pytest.mark import ParameterSet

from ctrpipe.models import FeatureMap, create
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import Text
from ctrpipe.models.base.registry import model_class

REFERENCED: set[str] = set()  # models whose test says that it compares them with a reference
_COMPARED: set[str] = set()  # models that the running test has compared
BASE = {"embedding_dim": 4, "embedding_stddev": 0.5}
MLP = {**BASE, "hidden_units": (8,)}
TOKENS = {**MLP, "layers": 2, "heads": 2, "key_dim": 3, "value_dim": 2, "ffn_dim": 6, "dense_units": (5,)}
NO_CROSS_DROPOUT = {"exponential_dropout": 0.0, "linear_dropout": 0.0}
ENCODER = {
    "encoder_layers": 2,
    "encoder_width": 6,
    "encoder_heads": 2,
    "encoder_ffn": 8,
    "encoder_positions": 40,
    "encoder_dropout": 0.0,
}
UNI = {"token_dim": 6, "token_ffn": 5, "attention_dim": 3, "hidden_units": (8,)}
SMALL = {
    "lr": {"l2": 0.01},
    "lightgbm": {"l2": 0.01, "trees": 3, "leaves": 4, "depth": 3},
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
    "fibinet": {**MLP, "reduction": 2},
    "mask_net": {**BASE, "hidden_units": (8, 6), "reduction": 0.5},
    "edcn": {**BASE, "layers": 2},
    "final_mlp": {**MLP, "second_units": (6,), "gate_units": (8,), "heads": 2, "second_context": ("f1",)},
    "final_net": {**BASE, "hidden_units": (8, 6), "second_units": (6,), "gating": True},
    "gdcn": {**MLP, "layers": 2},
    "ppnet": {**MLP, "priors": ("f1", "m"), "gate_units": 3},
    "pepnet": {**MLP, "priors": ("f1",), "domains": ("f3",), "gate_units": 3},
    "fcn": {**BASE, "exponential_layers": 2, "linear_layers": 2, "heads": 2, **NO_CROSS_DROPOUT},
    "wukong": {**MLP, "layers": 2, "products": 3, "compressed": 2, "rank": 2, "block_units": (5,)},
    "qnn": {**BASE, "layers": 2, "heads": 2, "products": 2, "dropout": 0.0, "normalization": "layer"},
    "rank_mixer": {**BASE, "tokens": 2, "token_dim": 6, "layers": 2, "ffn_dim": 5, "experts": 2},
    "fism": BASE,
    "nais": {**BASE, "attention_units": 3},
    "din": {**MLP, "attention_hidden_units": (5,)},
    "bst": {**MLP, "layers": 2, "heads": 2, "ffn_dim": 6, "position_dim": 2},
    "dien": {**MLP, "units": 6},
    "sim": {**MLP, "found": 3, "search_units": 3, "key_dim": 2},
    "sequence_transformer": {**MLP, "width": 8, "layers": 2, "ffn_dim": 12},
    "hstu": {**MLP, "width": 6, "layers": 2, "times": "actions"},
    "one_trans": {**MLP, "width": 6, "layers": 2, "ffn_dim": 5, "user_tokens": 2, "candidate_tokens": 2},
    "two_tower": {**MLP, "vector_dim": 3, "temperature": 0.5},
    "starspace": BASE,
    "mmoe": {**MLP, "experts": 3, "expert_units": 5, "interaction": {"name": "mlp", "hidden_units": [6]}},
    "ple": {
        **MLP,
        "task_experts": 2,
        "shared_experts": 1,
        "expert_units": 5,
        "interaction": {"name": "mlp", "hidden_units": [6]},
    },
    "esmm": {**BASE, "interaction": {"name": "mlp", "hidden_units": [8]}},
    "features_only": {**MLP, "token_dim": 6},
    "text_only": ENCODER,
    "numbert": ENCODER,
    "numbert_uni_attention": {**ENCODER, **UNI},
    "numbert_uni_attention_reduced": {**ENCODER, **UNI, **BASE},
    "bert4ctr": {**ENCODER, **UNI, **BASE, "feature_tokens": 2},
    "shallow_interaction_1": {**ENCODER, **MLP, "token_dim": 6},
    "shallow_interaction_n": {**ENCODER, **MLP, "token_dim": 6, "token_ffn": 5},
    "cascading_wide_deep": {**ENCODER, **MLP},
    "cascading_deepfm": {**ENCODER, **MLP},
    "cascading_nn_gbdt": {**ENCODER, **MLP, "trees": 3, "leaves": 4, "depth": 3},
}
# Together they have every class of layer and every base class of a model; `make test-all` alone runs a matrix's cases
# of the other models. test_kinds_of_models.py says whether they still do.
FAMILIES = ("ffm", "afm", "ccpm", "pnn", "wide_deep", "dcn_v2", "dlrm", "xdeepfm", "attention_net", "hiformer")
FAMILIES += ("lightgbm", "deepfm", "crossnet", "autoint", "transformer")
FAMILIES += ("fibinet", "mask_net", "edcn", "final_mlp", "final_net", "gdcn")
FAMILIES += ("pepnet", "fcn", "wukong", "qnn", "rank_mixer")
FAMILIES += ("nais", "din", "bst", "sequence_transformer", "dien", "sim", "two_tower")
FAMILIES += ("hstu", "one_trans", "starspace", "ple", "esmm")
FAMILIES += ("numbert", "bert4ctr", "shallow_interaction_n", "cascading_nn_gbdt")
# Together they have every kind of input, and every base class that models of several files share: for what takes
# seconds a model and is no layer's own.
KINDS = ("xdeepfm", "hiformer", "dien", "two_tower", "ple", "bert4ctr", "cascading_nn_gbdt")
# Beside one of each kind: those with layers of several inputs, which test_layers.py leaves to them, and those that stop
# gradients or have other logits than the sum of their parts.
OF_SEVERAL_INPUTS = (*KINDS, "nais", "din", "bst", "sequence_transformer", "sim", "hstu", "one_trans", "starspace")
OF_SEVERAL_INPUTS += ("lightgbm", "final_net", "pepnet", "qnn", "esmm", "numbert", "shallow_interaction_n")
RAW_NUMBERS = (35.0, 0.0, 7.0, 1234.0, -62.5, 0.01236, 999.6, math.nan)
IN_ORDER = ("bst", "sequence_transformer", "dien", "hstu", "one_trans")  # those to which the order of a history matters
WITH_HISTORY = ("fism", "nais", "din", "sim", *IN_ORDER)
WITH_ITEMS = (*WITH_HISTORY, "two_tower", "starspace")  # those whose data has a candidate
WITH_TASKS = ("mmoe", "ple", "esmm")
WITH_TEXT = tuple(name for name, options in SMALL.items() if "encoder_layers" in options)


def cases_of(
    in_make_test: Collection[str], names: Iterable[str] = SMALL, quick: Collection[str] | None = None
) -> list[ParameterSet]:
    """Returns the cases of a test matrix by model.

    Args:
        in_make_test: The models whose case is in `make test`; the others' are in `make test-all` alone.
        names: The matrix's models.
        quick: Of the former, those whose case is in `make test-fast` too; None for all.
    """

    def marks(name: str) -> list[pytest.MarkDecorator]:
        if name not in in_make_test:
            return [pytest.mark.large]
        return [] if quick is None or name in quick else [pytest.mark.slow]

    return [pytest.param(name, marks=marks(name)) for name in names]


ONE_OF_EACH_KIND = cases_of(KINDS)
EVERY_MODEL = cases_of(SMALL, quick=KINDS)


def feature_map(dense=("x", "z")) -> FeatureMap:
    fields = [(f"f{index}", "categorical", 5 + index, 1, "feature") for index in range(5)]
    return FeatureMap.from_sizes([*fields, ("m", "multivalent", 6, 3, "feature")], dense)


def text_map(dense=(), tasks=("ctr",), **text) -> FeatureMap:
    """A text of eight tokens and three fields; the second field is a position."""
    fields = [("a", "categorical", 400, 1, "feature"), ("p", "categorical", 3, 1, "position")]
    fields.append(("b", "numeric", 101, 1, "feature"))
    described = Text(8, 130, **{"number_ids": tuple(range(20, 120)), **text})
    return FeatureMap.from_sizes(fields, dense, tasks, described, ("b", *dense))


def history_map(dense=("x", "z"), length=5) -> FeatureMap:
    """A user, an item, its kind and an aligned history, whose actions have their own ids."""
    return FeatureMap.from_sizes(
        [
            ("user", "categorical", 9),
            ("item", "categorical", 8),
            ("items", "sequence", 8, length, "feature", "mean", "item", "items"),
            ("kinds", "sequence", 3, length, "feature", "mean", "kind", "items"),
            ("actions", "sequence", 2, length, "feature", "mean", "", "items"),
            ("kind", "categorical", 3),
        ],
        dense,
    )


def history_batch(rows=7, seed=0) -> dict[str, np.ndarray]:
    """Histories of 0 to 5 items; some of the items equal the candidate."""
    random = np.random.default_rng(seed)
    lengths = np.arange(rows) % 6
    columns = []
    for field in history_map().fields:
        ids = random.integers(field.offset, field.offset + field.size, (rows, field.slots))
        if field.kind == "sequence":
            ids[np.arange(field.slots) >= lengths[:, None]] = 0
        columns.append(ids)
    columns[2][2::3, 0] = columns[1][2::3, 0]
    return {
        "ids": np.concatenate(columns, axis=1).astype(np.int32),
        "dense": random.normal(size=(rows, 2)).astype(np.float32),
    }


def map_of(name: str) -> FeatureMap:
    """The small data of a model."""
    if name in WITH_ITEMS:
        return history_map()
    if name in WITH_TASKS:
        return dataclasses.replace(feature_map(), tasks=("ctr", "cvr"))
    return text_map() if name in WITH_TEXT else feature_map()


def batch_of(name: str, rows=7, seed=0) -> dict[str, np.ndarray]:
    if name in WITH_ITEMS:
        return history_batch(rows, seed)
    return text_batch(rows, seed) if name in WITH_TEXT else batch(rows, seed)


def text_batch(rows=7, seed=0) -> dict[str, np.ndarray]:
    """Texts of 3 to 8 tokens."""
    random = np.random.default_rng(seed)
    tokens = random.integers(5, 130, (rows, 8))
    tokens[np.arange(8) >= random.integers(3, 9, (rows, 1))] = 0
    ids = [random.integers(field.offset, field.offset + field.size, rows) for field in text_map().fields]
    raw = random.choice(RAW_NUMBERS, rows)
    return {
        "ids": np.stack(ids, axis=1).astype(np.int32),
        "tokens": tokens.astype(np.int32),
        "segments": ((np.arange(8) >= 4) & (tokens > 0)).astype(np.int32),
        "numbers": np.array([significand_and_exponent(number) for number in raw], np.int32),
    }


def significand_and_exponent(number: float) -> tuple[int, int]:
    """A number with three significant digits, by text formatting."""
    if math.isnan(number):
        return 1000, 0
    digits, exponent = f"{number:.2e}".split("e")
    return int(digits.replace(".", "").rstrip("0") or "0"), int(exponent)


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
    model = create(name, data or map_of(name), **{**SMALL[name], **changes})
    model(batch_of(name))
    random = np.random.default_rng(5)
    # With small weights the layer norms of an encoder leave of the fields less than a test's tolerance.
    scale = 0.8 if "key_dim" in SMALL[name] or name in ("rank_mixer", "one_trans") else 0.4
    for weight in model.trainable_variables:
        weight.assign(random.normal(scale=scale, size=weight.shape).astype(np.float32))
    return model


def made_once(make: Callable[[str], CTRModel]) -> Callable[[str], CTRModel]:
    """Makes each model once for all tests of a process; fails a test whose model an earlier test has changed."""
    known: dict[str, tuple[CTRModel, bytes]] = {}

    def weights(model: CTRModel) -> bytes:
        return b"".join(np.asarray(weight).tobytes() for weight in model.weights)

    @functools.wraps(make)
    def model_of(name: str) -> CTRModel:
        if name not in known:
            made = make(name)
            known[name] = made, weights(made)
        model, begun = known[name]
        assert weights(model) == begun, f"a test changed the weights of {name}, which others read"
        return model

    return model_of


@made_once
def built(name: str) -> CTRModel:
    """Returns a model with its initial weights, made once for all tests of a process: they only read it."""
    model = create(name, map_of(name), **SMALL[name])
    model(batch_of(name))
    return model


@made_once
def unchanged(name: str) -> CTRModel:
    """`randomised(name)`, made once for all tests of a process: they only read it."""
    return randomised(name)


@made_once
def unchanged_with_items(name: str) -> CTRModel:
    """`randomised(name, with_items(name))`, made once for all tests of a process: they only read it."""
    return randomised(name, with_items(name))


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


def compares(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Marks a test that compares models of the registry with a reference, and fails it if it does not.

    A test with the argument `name` compares that model alone, and is marked with all its names.
    """
    REFERENCED.update(names)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def checked(*args: Any, **kwargs: Any) -> None:
            _COMPARED.clear()
            test(*args, **kwargs)
            assert _COMPARED == ({kwargs["name"]} if "name" in kwargs else set(names)) <= set(names)

        return checked

    return decorate


def compare(model: CTRModel, inputs: dict[str, np.ndarray], expected: np.ndarray) -> None:
    """Fails unless the model's logits equal the reference's and differ between rows."""
    assert np.ptp(expected, axis=0).min() > 0.01 and len(expected) == len(inputs["ids"])
    np.testing.assert_allclose(np.asarray(model(inputs)), expected, rtol=2e-4, atol=2e-4)
    _COMPARED.update(name for name in SMALL if model_class(name) is type(model))


OF_ITEM = ("f1", "f3", "m", "b", "z")  # of the small data without a candidate


def with_items(name: str) -> FeatureMap:
    """The small data of a model, with columns of the candidate."""
    data = map_of(name)
    fields = [dataclasses.replace(one, role="item") if one.name in OF_ITEM else one for one in data.fields]
    return dataclasses.replace(data, fields=tuple(fields), item_dense=tuple(set(data.dense) & {"z"}))


def divided(data: FeatureMap, inputs: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The first row's context and all rows' candidates, slot by slot."""
    items = {one.name for one in data.fields if one.role == "item" or one.name in {f.shared_with for f in data.fields}}
    items |= set(data.item_dense)
    slots = {"ids": [one.name for one in data.fields for _ in range(one.slots)], "dense": list(data.dense)}
    slots["numbers"] = [name for name in data.numbers for _ in range(2)]
    context, candidates = {}, {}
    for name, values in inputs.items():
        if name not in slots:
            context[name] = values[:1]
            continue
        of_item = np.array([column in items for column in slots[name]])
        context |= {name: values[:1, ~of_item]} if not of_item.all() else {}
        candidates |= {name: values[:, of_item]} if of_item.any() else {}
    return context, candidates


def filled(name: str, data: FeatureMap, inputs):
    """A model with random weights; its moving variances are positive."""
    model = create(name, data, **SMALL[name])
    model(inputs)
    random = np.random.default_rng(5)
    for weight in model.variables:
        if "float" in str(weight.dtype) and "seed" not in weight.path:
            values = random.normal(scale=0.4, size=weight.shape).astype(np.float32)
            weight.assign(np.abs(values) if "variance" in weight.path else values)
    return model
