"""The data's shape, each model's settings on both sides, and the targets. Uses the standard library only."""

import dataclasses
from typing import Any

HIDDEN = (400, 400)
CIN = (64, 64, 64)
CROSS_LAYERS, ATTENTION_LAYERS, ATTENTION_HEADS, AFM_WIDTH = 3, 3, 2, 8
CONV_FILTERS, CONV_WIDTHS = (4, 4), (6, 5)

# Models that no peer has in the paper's form.
ALONE = ("crossnet", "dlrm", "attention_net", "features_only")
# Models with their own default settings: token models, models that read a history of HISTORY items, two-task models.
ALONE_OF_TOKENS = ("transformer", "transformer_pe", "hetero_att", "hiformer")
HISTORIES = ("fism", "nais", "din", "bst", "dien", "sim", "sequence_transformer", "hstu", "one_trans")
HISTORIES += ("two_tower", "starspace")
HISTORY = 50
UNIT = (80, 40)  # units of DIN's network over the items
# Models of 2021 to 2025 that no peer's package has.
OF_CROSSES = ("fibinet", "mask_net", "edcn", "final_mlp", "final_net", "gdcn", "fcn", "wukong", "qnn", "rank_mixer")
# Models whose gates read named fields.
OF_PRIORS: dict[str, dict[str, Any]] = {
    "ppnet": {"priors": ("f0",)},
    "pepnet": {"priors": ("f0",), "domains": ("f1",)},
}
# Models in FuxiCTR's repository that its package lacks. Those of matrix products only have to be level with it.
HISTORIES_OF_ZOO = ("din", "bst")
PRODUCTS_OF_ZOO = ("final_mlp", "ppnet")
CROSSES_OF_ZOO = ("fibinet", "mask_net", "edcn", "final_net", "gdcn", "wukong", "qnn")
OF_ZOO = (*HISTORIES_OF_ZOO, *CROSSES_OF_ZOO, *PRODUCTS_OF_ZOO)
SEVERAL_TASKS = ("mmoe", "ple", "esmm")
# Models that read a text, with an encoder of MiniLM's shape. A row takes hundreds of times as long as in other models,
# so they are measured only on request, in small batches.
TEXTS = ("text_only", "shallow_interaction_1", "shallow_interaction_n", "bert4ctr", "numbert")
TEXTS += ("numbert_uni_attention", "numbert_uni_attention_reduced")
ENCODER = {"encoder_layers": 6, "encoder_width": 384, "encoder_heads": 12, "encoder_ffn": 1536}
AS_THEY_ARE = ("lightgbm", *ALONE_OF_TOKENS, *OF_CROSSES, *HISTORIES, *SEVERAL_TASKS)

# Minimum ratios of our samples/s to the fastest peer's, among the peers that have the model.
TARGETS = {"xdeepfm": 5.0}
TARGETS |= dict.fromkeys(("autoint", "dcn_v2", "deepfm", "fm", "pnn", "ccpm", "ffm", "mlp"), 1.5)
TARGETS_OF_ZOO = dict.fromkeys(OF_ZOO, 1.5) | dict.fromkeys(PRODUCTS_OF_ZOO, 1.0)

# Ratios of prediction times: maximum of BERT4CTR over Shallow-N, and minimum of NumBERT over BERT4CTR by features.
SHALLOW_TARGET = 1.05
NUMBERT_TARGETS = {57: 4.0, 90: 7.0}


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of the data.

    Number of univalent fields, ids in each, embedding width, rows in a batch, the maximum and minimum length of a
    history, with uniformly distributed lengths, the units of the hidden layers of an MLP, and the exponent of Zipf's
    law for the ids (None: uniform).
    """

    fields: int = 39
    ids: int = 5000
    dim: int = 16
    batch: int = 2048
    history: int = HISTORY
    least_history: int = 1
    hidden: tuple[int, ...] = HIDDEN
    zipf: float | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.ids,) * self.fields


def peer_options(shape: Shape) -> dict[str, Any]:
    """Returns the fields of `peer_server.Spec`, the same for every model."""
    return {
        "sizes": shape.sizes,
        "zipf": shape.zipf,
        "dim": shape.dim,
        "hidden": shape.hidden,
        "cin": CIN,
        "cin_activation": "linear",
        "cross": CROSS_LAYERS,
        "layers": ATTENTION_LAYERS,
        "heads": ATTENTION_HEADS,
        "attention": AFM_WIDTH,
        "conv_width": CONV_WIDTHS,
        "conv_filters": CONV_FILTERS,
    }


def zoo_options(model: str, shape: Shape, zoo: str) -> dict[str, Any]:
    """Returns the fields of `peer_server.Spec` for a model of OF_ZOO."""
    options = peer_options(shape) | {"zoo": zoo}
    if model in HISTORIES_OF_ZOO:
        return options | {"history": shape.history, "least_history": shape.least_history, "unit": UNIT}
    return options | {"settings": crosses_of_zoo(shape)[model][1]}


def crosses_of_zoo(shape: Shape) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Returns our hyperparameters and the arguments of FuxiCTR's class, by model of OF_ZOO without a history.

    `benchmarks.parity` shows that both compute the same. The sizes that `shape` lacks are the defaults of the class.
    """
    hidden, units = {"hidden_units": shape.hidden}, list(shape.hidden)
    wukong = {"products": 40, "compressed": 40, "rank": 8, "block_units": (32, 32)}
    their_wukong = {"fmb_features": 40, "lcb_features": 40, "fmp_rank_k": 8, "fmb_mlp_units": [32, 32]}
    streams = {"second_units": shape.hidden, "gate_units": (64,), "heads": ATTENTION_HEADS}
    their_streams = {"mlp1_hidden_units": units, "mlp2_hidden_units": units, "fs_hidden_units": [64]}
    crosses = {"layers": CROSS_LAYERS}
    normalized = {"normalization": "batch"}
    return {
        "fibinet": (hidden | {"bilinear": "interaction"}, {"hidden_units": units}),
        "mask_net": (hidden, {"dnn_hidden_units": units}),
        "edcn": (crosses | {"bridge": "product", "residual": False}, {"num_cross_layers": CROSS_LAYERS}),
        "final_mlp": (hidden | streams, their_streams | {"num_heads": ATTENTION_HEADS}),
        "final_net": (
            hidden | {"second_units": shape.hidden, "gating": True, "residual": "concat"},
            {"block1_hidden_units": units, "block2_hidden_units": units, "use_feature_gating": True},
        ),
        "gdcn": (hidden | crosses, {"dnn_hidden_units": units, "num_cross_layers": CROSS_LAYERS}),
        "wukong": (
            hidden | normalized | wukong | crosses,
            their_wukong | {"num_wukong_layers": CROSS_LAYERS, "mlp_hidden_units": units},
        ),
        "qnn": (
            crosses | normalized | {"heads": ATTENTION_HEADS, "products": 2, "dropout": 0.0},
            {"num_layers": CROSS_LAYERS, "num_heads": ATTENTION_HEADS, "num_row": 2, "batch_norm": True},
        ),
        "ppnet": (
            hidden | {"priors": ("f0",), "gate_units": 64},
            {"hidden_units": units, "gate_priors": ["f0"], "gate_emb_dim": shape.dim, "gate_hidden_dim": 64},
        ),
    }


def our_options(model: str, peer: str | None, shape: Shape) -> dict[str, Any]:
    """Returns the hyperparameters that make our model equal to the peer's, without dropout and L2.

    Additional work of a peer that no option removes stays: RecBole's DCN and DCN-v2 have batch normalisation in their
    MLP, its AutoInt projects before and after the attention instead of using a residual in each layer. If a peer
    differs from the paper, our model follows the peer: the ReLU of RecBole's CIN, the linear part of DeepCTR-Torch's
    DCN, DCN-v2 and CCPM, RecBole's FNN without the weights w. Separate linear layers for parts of the logit cost the
    same as one layer after a concatenation.
    """
    if peer == "fuxictr" and model == "din":
        return {"hidden_units": shape.hidden, "attention_hidden_units": UNIT, "embedding_dim": shape.dim}
    if peer == "fuxictr" and model == "bst":
        sizes = {"heads": ATTENTION_HEADS, "ffn_dim": 2 * shape.dim, "position_dim": shape.dim, "activation": "relu"}
        return {"hidden_units": shape.hidden, "output": "candidate", "embedding_dim": shape.dim} | sizes
    if peer == "fuxictr" and model in OF_ZOO:
        return crosses_of_zoo(shape)[model][0] | {"embedding_dim": shape.dim}
    if model in TEXTS:
        return dict(ENCODER)
    if model in OF_PRIORS:
        return dict(OF_PRIORS[model])
    if model in AS_THEY_ARE:
        return {}
    hidden = {"hidden_units": shape.hidden}
    linear = {"use_linear": peer == "deepctr_torch"}
    options: dict[str, dict[str, Any]] = {
        "crossnet": {"layers": CROSS_LAYERS},
        **dict.fromkeys(ALONE[1:], hidden),
        "lr": {},
        "fm": {},
        "ffm": {},
        "afm": {"attention_units": AFM_WIDTH},
        "mlp": hidden,
        "fnn": hidden | {"use_linear": False},
        "ccpm": hidden | linear | {"filters": CONV_FILTERS, "widths": CONV_WIDTHS},
        "pnn": hidden,
        "deepfm": hidden,
        "wide_deep": hidden,
        "dcn": hidden | linear | {"layers": CROSS_LAYERS},
        "dcn_v2": hidden | linear | {"layers": CROSS_LAYERS},
        "cin": {"maps": CIN},
        "xdeepfm": hidden | {"maps": CIN, "cin_activation": "relu" if peer == "recbole" else "linear"},
        "autoint": {
            "layers": ATTENTION_LAYERS,
            "heads": ATTENTION_HEADS,
            "attention_dim": shape.dim,
            "deep_units": shape.hidden,
            "use_linear": True,
        },
    }
    return options[model] | ({} if model == "lr" else {"embedding_dim": shape.dim})


MODELS = (*TARGETS, "lr", "afm", "fnn", "wide_deep", "dcn", "cin", *ALONE, *OF_PRIORS, *AS_THEY_ARE)
