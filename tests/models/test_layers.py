"""Every layer through the harness: its arguments, the shape it gives, how many numbers it learns."""

import importlib
import pathlib
import pkgutil

import keras
import numpy as np
import pytest

import ctrpipe.models.layers
from ctrpipe.models.layers.activation_unit import ActivationUnit
from ctrpipe.models.layers.attentional_gru import AttentionalGRU
from ctrpipe.models.layers.attentional_pooling import AttentionalPooling
from ctrpipe.models.layers.behavior_transformer import BehaviorTransformer
from ctrpipe.models.layers.candidate_attention import CandidateAttention
from ctrpipe.models.layers.cin import CIN
from ctrpipe.models.layers.dense_embedding import DenseEmbedding
from ctrpipe.models.layers.encoder_layer import EncoderLayer
from ctrpipe.models.layers.factorization_machine import FactorizationMachine
from ctrpipe.models.layers.field_aware_interaction import FieldAwareInteraction
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from ctrpipe.models.layers.history_attention import HistoryAttention
from ctrpipe.models.layers.history_transformer import HistoryTransformer
from ctrpipe.models.layers.inner_product import InnerProduct
from ctrpipe.models.layers.interacting_layer import InteractingLayer
from ctrpipe.models.layers.interest_evolution import InterestEvolution
from ctrpipe.models.layers.k_max_convolution import KMaxConvolution
from ctrpipe.models.layers.kernel_product import KernelProduct
from ctrpipe.models.layers.number_tokens import NumberTokens
from ctrpipe.models.layers.outer_product import OuterProduct
from ctrpipe.models.layers.smoothed_attention import SmoothedAttention
from ctrpipe.models.layers.soft_search import SoftSearch
from ctrpipe.models.layers.text_encoder import FeedForward, SelfAttention, TextEncoder
from ctrpipe.models.layers.top_k_self_attention import TopKSelfAttention
from ctrpipe.models.layers.tower import Tower
from ctrpipe.models.layers.tree_ensemble import TreeEnsemble
from ctrpipe.models.layers.uni_attention import UniAttention, UniAttentionLayer
from ctrpipe.models.layers.vector_cross import VectorCross
from tests.models.layer_harness import check_layer
from tests.models.small_models import batch, feature_map

N, F, D = 5, 4, 6
SIZES = {"heads": 2, "key_dim": 3, "value_dim": 2, "ffn_dim": 7}
FEATURE = F * D * 2 * (3 + 3 + 2)  # query, key, value of every token
FFN = 4 * D + D * 7 + 7 + 7 * D + D  # output projection and feed-forward network of one token
NORMS = 4 * D

CASES = {
    "attentional_pooling": (AttentionalPooling, {"units": 3}, (N, F, D), (N, D), D * 3 + 3 + 3),
    "cin": (CIN, {"maps": (3, 2)}, (N, F, D), (N, 5), F * F * 3 + 3 * F * 2),
    "cin_split": (CIN, {"maps": (4, 2), "split_half": True}, (N, F, D), (N, 4), F * F * 4 + 2 * F * 2),
    "cin_rank": (CIN, {"maps": (3, 2), "rank": 2}, (N, F, D), (N, 5), 2 * (F + F) * 3 + 2 * (3 + F) * 2),
    "dense_embedding": (DenseEmbedding, {"dim": 3}, (N, F), (N, F, 3), F * 3),
    "encoder_shared": (EncoderLayer, SIZES, (N, F, D), (N, F, D), D * 16 + FFN + NORMS),
    "encoder_feature": (
        EncoderLayer, {**SIZES, "projection": "feature"}, (N, F, D), (N, F, D), FEATURE + F * FFN + NORMS,
    ),
    "encoder_pruned": (
        EncoderLayer,
        {**SIZES, "projection": "feature", "queries": 1},
        (N, F, D),
        (N, 1, D),
        D * 6 + F * D * 10 + FFN + NORMS,
    ),
    "encoder_composite": (
        EncoderLayer, {**SIZES, "projection": "composite"}, (N, F, D), (N, F, D), F * FEATURE + F * FFN + NORMS,
    ),
    "encoder_low_rank": (
        EncoderLayer,
        {**SIZES, "projection": "composite", "qk_rank": 2, "v_rank": 5},
        (N, F, D),
        (N, F, D),
        2 * (2 * (F * D + F * 3) * 2 + (F * D + F * 2) * 5) + F * FFN + NORMS,
    ),
    "factorization_machine": (FactorizationMachine, {}, (N, F, D), (N, 1), 0),
    "feed_forward": (FeedForward, {"ffn_dim": 5}, (N, F, D), (N, F, D), 2 * D * 5 + 5 + 3 * D),
    "field_aware_interaction": (FieldAwareInteraction, {}, (N, F, F * D), (N, 1), 0),
    "inner_product": (InnerProduct, {}, (N, F, D), (N, 6), 0),
    "interacting_layer": (InteractingLayer, {"dim": 8, "heads": 2}, (N, F, D), (N, F, 8), 4 * D * 8),
    "interacting_layer_bare": (
        InteractingLayer, {"dim": 8, "use_residual": False, "scaled": True}, (N, F, D), (N, F, 8), 3 * D * 8,
    ),
    "k_max_convolution": (
        KMaxConvolution, {"filters": 3, "width": 3, "keep": 2}, (N, F, D, 2), (N, 2, D, 3), 3 * 2 * 3 + 3,
    ),
    "kernel_product": (KernelProduct, {}, (N, F, D), (N, 6), 6 * D * D),
    "outer_product": (OuterProduct, {}, (N, F, D), (N, D * D), 0),
    "top_k_self_attention": (TopKSelfAttention, {"heads": 2, "top_k": 2}, (N, F, D), (N, F, D), 5 * D * D),
    "tower": (Tower, {"hidden_units": (5, 3), "outputs": 2}, (N, D), (N, 2), 6 * 5 + 5 + 5 * 3 + 3 + 3 * 2 + 2),
    "tower_hidden": (Tower, {"hidden_units": (5,), "outputs": None}, (N, D), (N, 5), 6 * 5 + 5),
    "tower_batch": (
        Tower,
        {"hidden_units": (5, 3), "outputs": 2, "normalization": "batch", "dropout": (0.0, 0.2)},
        (N, D),
        (N, 2),
        6 * 5 + 2 * 5 + 5 * 3 + 2 * 3 + 3 * 2 + 2,
    ),
    "tower_layer": (
        Tower,
        {"hidden_units": (5,), "normalization": "layer", "place": "after"},
        (N, D),
        (N, 1),
        6 * 5 + 5 + 2 * 5 + 5 + 1,
    ),
    "vector_cross": (VectorCross, {}, (N, D), (N, D), 2 * D),
}  # fmt: skip


# Those that take a second or less; the others' harness is in `make test`.
QUICK = {"dense_embedding", "factorization_machine", "field_aware_interaction", "inner_product", "interacting_layer"}
QUICK |= {"kernel_product", "outer_product", "tower", "tower_hidden", "vector_cross"}


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case not in QUICK)) for case in CASES])
def test_layer(case):
    layer, arguments, shape, output_shape, weights = CASES[case]
    inputs = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    check_layer(lambda **kwargs: layer(**arguments, **kwargs), inputs, output_shape, weights)


@pytest.mark.slow
def test_field_embedding():
    table = (sum(field.size for field in feature_map().fields) + 1) * 3
    check_layer(lambda **kwargs: FieldEmbedding(feature_map(), 3, **kwargs), batch()["ids"], (7, 6, 3), table)


def test_the_two_factors_of_a_cin_start_from_different_numbers():
    layer = CIN((3,), rank=2)
    layer.build((None, F, D))
    u, v = (weight.numpy() for weight in layer.weights)
    assert u.shape == v.shape and np.abs(u - v).min() > 0


def test_l2_of_a_cin_is_half_lambda_times_the_squares_of_its_weights():
    layer = CIN((3, 2), l2=0.1)
    layer(np.zeros((N, F, D), np.float32))
    squares = sum(float((weight.numpy() ** 2).sum()) for weight in layer.weights)
    assert float(sum(layer.losses)) == pytest.approx(0.05 * squares, rel=1e-5)


def test_every_layer_is_tested():
    folder = str(pathlib.Path(ctrpipe.models.layers.__file__).parent)
    # Those of several inputs, or of inputs that are no floats, are in test_history_models.py and test_text_models.py.
    with_history = {ActivationUnit, AttentionalGRU, BehaviorTransformer, HistoryAttention, HistoryTransformer}
    with_history |= {CandidateAttention, InterestEvolution, SmoothedAttention, SoftSearch}
    with_text = {NumberTokens, SelfAttention, TextEncoder, TreeEnsemble, UniAttention, UniAttentionLayer}
    tested = {case[0] for case in CASES.values()} | {FieldEmbedding} | with_text | with_history
    modules = list(pkgutil.iter_modules([folder]))
    assert len(modules) > 25
    for module in modules:
        found = importlib.import_module(f"ctrpipe.models.layers.{module.name}")
        layers = [item for item in vars(found).values() if isinstance(item, type) and item.__module__ == found.__name__]
        assert all(layer in tested for layer in layers if issubclass(layer, keras.layers.Layer)), module.name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttentionalPooling(0), "units=0"),
        (lambda: CIN(()), r"maps=\(\)"),
        (lambda: CIN((3, 2), split_half=True), "even"),
        (lambda: CIN((3,), rank=0), "rank=0"),
        (lambda: DenseEmbedding(0), "dim=0"),
        (lambda: EncoderLayer("other"), "projection='other'"),
        (lambda: EncoderLayer(heads=0), "heads=0"),
        (lambda: EncoderLayer("shared", v_rank=3), "composite"),
        (lambda: InteractingLayer(6, heads=4), "heads=4"),
        (lambda: KMaxConvolution(2, 0, 1), "width=0"),
        (lambda: TopKSelfAttention(top_k=0), "top_k=0"),
        (lambda: Tower((), outputs=None), "hidden_units"),
        (lambda: FieldEmbedding(feature_map(), 0), "dim=0"),
        (lambda: FieldEmbedding(feature_map(), 2, l2=-1), "l2=-1"),
    ],
)
def test_impossible_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
