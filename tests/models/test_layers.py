"""Every layer through the harness: its arguments, the shape it gives, how many numbers it learns."""

import importlib
import json
import pathlib
import pkgutil
from collections.abc import Iterator

import keras
import numpy as np
import pytest
from _pytest.mark import ParameterSet

import ctrpipe.models.layers
from ctrpipe.models.layers.activation_unit import ActivationUnit
from ctrpipe.models.layers.attentional_gru import AttentionalGRU
from ctrpipe.models.layers.attentional_pooling import AttentionalPooling
from ctrpipe.models.layers.behavior_transformer import BehaviorTransformer
from ctrpipe.models.layers.bilinear_fusion import BilinearFusion
from ctrpipe.models.layers.bilinear_interaction import BilinearInteraction
from ctrpipe.models.layers.bridge import Bridge
from ctrpipe.models.layers.candidate_attention import CandidateAttention
from ctrpipe.models.layers.cin import CIN
from ctrpipe.models.layers.dense_embedding import DenseEmbedding
from ctrpipe.models.layers.encoder_layer import EncoderLayer
from ctrpipe.models.layers.factorization_machine import FactorizationMachine
from ctrpipe.models.layers.factorized_block import FactorizedBlock
from ctrpipe.models.layers.factorized_interaction import FactorizedInteraction
from ctrpipe.models.layers.feature_gating import FeatureGating
from ctrpipe.models.layers.field_aware_interaction import FieldAwareInteraction
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from ctrpipe.models.layers.field_normalization import FieldNormalization
from ctrpipe.models.layers.gate_network import GateNetwork
from ctrpipe.models.layers.gated_cross import GatedCross
from ctrpipe.models.layers.hash_search import HashSearch
from ctrpipe.models.layers.history_attention import HistoryAttention
from ctrpipe.models.layers.history_transformer import HistoryTransformer
from ctrpipe.models.layers.hstu_layer import HSTULayer
from ctrpipe.models.layers.inner_product import InnerProduct
from ctrpipe.models.layers.interacting_layer import InteractingLayer
from ctrpipe.models.layers.interest_evolution import InterestEvolution
from ctrpipe.models.layers.k_max_convolution import KMaxConvolution
from ctrpipe.models.layers.kernel_product import KernelProduct
from ctrpipe.models.layers.layer_norm import LayerNorm
from ctrpipe.models.layers.mask_block import MaskBlock
from ctrpipe.models.layers.masked_cross import MaskedCross
from ctrpipe.models.layers.number_embedding import NumberEmbedding
from ctrpipe.models.layers.number_tokens import NumberTokens
from ctrpipe.models.layers.outer_product import OuterProduct
from ctrpipe.models.layers.quadratic_layer import QuadraticLayer
from ctrpipe.models.layers.regulation import Regulation
from ctrpipe.models.layers.smoothed_attention import SmoothedAttention
from ctrpipe.models.layers.soft_search import SoftSearch
from ctrpipe.models.layers.squeeze_excitation import SqueezeExcitation
from ctrpipe.models.layers.text_encoder import FeedForward, SelfAttention, TextEncoder
from ctrpipe.models.layers.token_mixer import TokenMixer
from ctrpipe.models.layers.top_k_self_attention import TopKSelfAttention
from ctrpipe.models.layers.tower import Tower
from ctrpipe.models.layers.tree_ensemble import TreeEnsemble
from ctrpipe.models.layers.uni_attention import UniAttention, UniAttentionLayer
from ctrpipe.models.layers.unified_layer import UnifiedLayer
from ctrpipe.models.layers.vector_cross import VectorCross
from ctrpipe.models.layers.wukong_layer import WukongLayer
from tests.models.layer_harness import check_layer
from tests.models.small_models import batch, feature_map

N, F, D = 5, 4, 6
SIZES = {"heads": 2, "key_dim": 3, "value_dim": 2, "ffn_dim": 7}
FEATURE = F * D * 2 * (3 + 3 + 2)  # query, key, value of every token
FFN = 4 * D + D * 7 + 7 + 7 * D + D  # output projection and feed-forward network of one token
NORMS = 4 * D

CASES = {
    "attentional_pooling": (AttentionalPooling, {"units": 3}, (N, F, D), (N, D), D * 3 + 3 + 3),
    "bilinear_all": (BilinearInteraction, {"kind": "all"}, (N, F, D), (N, 6, D), D * D),
    "bilinear_each": (BilinearInteraction, {"kind": "each"}, (N, F, D), (N, 6, D), 3 * D * D),
    "bilinear_pairs": (BilinearInteraction, {}, (N, F, D), (N, 6, D), 6 * D * D),
    "factorized_block": (
        FactorizedBlock, {"hidden_units": (4,), "activation": "relu"}, (N, D), (N, 4), D * 4 + 4 + 2 * 4,
    ),
    "factorized_interaction": (FactorizedInteraction, {"units": 4}, (N, D), (N, 4), D * 4 + 4),
    "factorized_sum": (FactorizedInteraction, {"units": 3, "residual": "sum"}, (N, D), (N, 3), D * 6 + 6),
    "feature_gating": (FeatureGating, {}, (N, F, D), (N, 2 * F, D), F * F + F),
    "field_normalization": (FieldNormalization, {}, (N, F, D), (N, F, D), 2 * F * D),
    "gate_network": (GateNetwork, {"outputs": 3, "units": 5}, (N, D), (N, 3), D * 5 + 5 + 5 * 3 + 3),
    "quadratic": (
        QuadraticLayer, {"fields": 3, "heads": 2, "normalization": "batch"}, (N, 12), (N, 12), 12 * 24 + 24 + 48,
    ),
    "squeeze_excitation": (
        SqueezeExcitation, {"reduction": 2, "activation": "sigmoid"}, (N, F, D), (N, F, D), 2 * 2 * F,
    ),
    "token_mixer": (TokenMixer, {"ffn_dim": 5}, (N, 3, D), (N, 3, D), 3 * (D * 5 + 5 + 5 * D + D) + 4 * D),
    "token_mixer_experts": (
        TokenMixer,
        {"ffn_dim": 5, "experts": 2},
        (N, 3, D),
        (N, 3, D),
        3 * 2 * (D * 5 + 5 + 5 * D + D) + 3 * (D * 2 + 2) + 4 * D,
    ),
    "layer_norm": (LayerNorm, {"epsilon": 1e-6}, (N, F, D), (N, F, D), 2 * D),
    "wukong": (
        WukongLayer,
        {"products": 2, "compressed": 3, "rank": 4, "hidden_units": (7,)},
        (N, F, D),
        (N, 5, D),
        F * 4 + F * 3 + F * 5 + 2 * 4 * F + 4 * F * 7 + 7 + 7 * 2 * D + 2 * D + 2 * D,
    ),
    "cin": (CIN, {"maps": (3, 2)}, (N, F, D), (N, 5), F * F * 3 + 3 * F * 2),
    "cin_split": (CIN, {"maps": (4, 2), "split_half": True}, (N, F, D), (N, 4), F * F * 4 + 2 * F * 2),
    "cin_rank": (CIN, {"maps": (3, 2), "rank": 2}, (N, F, D), (N, 5), 2 * (F + F) * 3 + 2 * (3 + F) * 2),
    "dense_embedding": (DenseEmbedding, {"dim": 3}, (N, F), (N, F, 3), F * 3),
    "number_embedding": (NumberEmbedding, {"dim": 3, "bins": 2}, (N, F), (N, F, 3), F * (3 + 2 + 4 * 3 + 3)),
    "number_embedding_autodis": (
        NumberEmbedding, {"dim": 3, "way": "autodis", "bins": 2}, (N, F), (N, F, 3), F * (3 + 2 + 2 * 2 + 2 * 3),
    ),
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
QUICK |= {"factorized_interaction", "factorized_sum", "feature_gating", "field_normalization", "gate_network"}
QUICK |= {"squeeze_excitation", "bilinear_all", "bilinear_pairs"}
QUICK |= {"kernel_product", "outer_product", "tower", "tower_hidden", "vector_cross"}


# Further options of a layer that `make test` has: models of test_equations.py, test_relations.py and test_models.py
# have them too, in `make test`.
FURTHER = {"cin_split", "encoder_feature", "encoder_pruned", "encoder_low_rank", "interacting_layer_bare"}
FURTHER |= {"token_mixer", "bilinear_each", "tower_layer", "tower_hidden", "tower", "bilinear_all", "factorized_sum"}
FURTHER |= {"encoder_shared", "cin_rank", "number_embedding_autodis"}


def layer_cases() -> Iterator[ParameterSet]:
    for case in CASES:
        slow, large = [pytest.mark.slow] * (case not in QUICK), [pytest.mark.large] * (case in FURTHER)
        yield pytest.param(case, marks=[*slow, *large])


@pytest.mark.slow
@pytest.mark.parametrize("case", layer_cases())
def test_layer(case):
    layer, arguments, shape, output_shape, weights = CASES[case]
    inputs = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    check_layer(lambda **kwargs: layer(**arguments, **kwargs), inputs, output_shape, weights)


OF_TWO = {layer.__name__: layer for layer in (BilinearFusion, Bridge, GatedCross, MaskBlock, MaskedCross)}
HALVES = {
    "bilinear_fusion": ("BilinearFusion", {"outputs": 2, "heads": 3}, 2, D * 2 + 2 + D * 2 + 3 * 2 * 2 * 2),
    "bridge": ("Bridge", {"kind": "concat"}, D, 2 * D * D + D),
    "bridge_attention": ("Bridge", {"kind": "attention"}, D, D * D + D + D * D),
    "gated_cross": ("GatedCross", {}, D, 2 * D * D + D),
    "mask_block": ("MaskBlock", {"units": 4, "reduction": 0.5}, 4, D * 3 + 3 + 3 * D + D + D * 4 + 8),
    "masked_cross": ("MaskedCross", {}, D, D * 3 + D + 6),
}


@keras.saving.register_keras_serializable(package="tests")
class OfHalves(keras.layers.Layer):
    """A layer of two inputs on the halves of one."""

    def __init__(self, kind: str, options: dict, **kwargs):
        super().__init__(**kwargs)
        self.kind, self.options = kind, options
        self.inner = OF_TWO[kind](**options, dtype=self.dtype_policy)

    def build(self, shape):
        self.inner.build((None, shape[-1] // 2), (None, shape[-1] // 2))

    def call(self, inputs):
        return self.inner(*keras.ops.split(inputs, 2, axis=1))

    def get_config(self):
        own = json.loads(json.dumps({"kind": self.kind, "options": self.options}))
        inner = OF_TWO[self.kind].from_config(self.inner.get_config())  # its own configuration makes an equal layer
        assert inner.get_config() == self.inner.get_config()
        return {**super().get_config(), **own}


@pytest.mark.slow
@pytest.mark.parametrize("case", HALVES)
def test_a_layer_of_two_inputs(case):
    kind, options, width, weights = HALVES[case]
    inputs = np.random.default_rng(1).normal(size=(N, 2 * D)).astype(np.float32)
    check_layer(lambda **kwargs: OfHalves(kind, options, **kwargs), inputs, (N, width), weights)


def test_regulation_gives_each_network_fields_of_its_own_weights():
    layer = Regulation(dim=2, temperature=0.5)
    x = np.random.default_rng(1).normal(size=(N, 6)).astype(np.float32)
    layer.build(x.shape)
    layer.gates.assign([[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]])
    copy = Regulation.from_config(layer.get_config())
    copy.build(x.shape)
    copy.set_weights(layer.get_weights())
    for found, gates in zip(copy(x), layer.gates.numpy() / 0.5, strict=True):
        weights = np.exp(gates) / np.exp(gates).sum()
        np.testing.assert_allclose(found, x * np.repeat(weights, 2), rtol=1e-5)


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
    with_history |= {
        HashSearch,
        HSTULayer,
        UnifiedLayer,
        CandidateAttention,
        InterestEvolution,
        SmoothedAttention,
        SoftSearch,
    }
    with_text = {NumberTokens, SelfAttention, TextEncoder, TreeEnsemble, UniAttention, UniAttentionLayer}
    tested = (
        {case[0] for case in CASES.values()}
        | {*OF_TWO.values(), Regulation}
        | {FieldEmbedding}
        | with_text
        | with_history
    )
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
