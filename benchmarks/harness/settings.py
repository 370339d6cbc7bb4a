"""The data's shape, each model's settings on both sides, and the targets. Uses the standard library only."""

import dataclasses
from typing import Any

HIDDEN = (400, 400)
CIN = (64, 64, 64)
CROSS_LAYERS, ATTENTION_LAYERS, ATTENTION_HEADS, AFM_WIDTH = 3, 3, 2, 8
CONV_FILTERS, CONV_WIDTHS = (4, 4), (6, 5)

# Models that no peer has in the paper's form.
ALONE: dict[str, dict[str, Any]] = {
    "crossnet": {"layers": CROSS_LAYERS},
    "dlrm": {"hidden_units": HIDDEN},
    "attention_net": {"hidden_units": HIDDEN},
    "features_only": {"hidden_units": HIDDEN},
}
# Models with their own default settings: token models, models that read a history of HISTORY items, two-task models.
ALONE_OF_TOKENS = ("transformer", "transformer_pe", "hetero_att", "hiformer")
HISTORIES = ("fism", "nais", "din", "bst", "dien", "sim", "sequence_transformer", "hstu", "one_trans")
HISTORIES += ("two_tower", "starspace")
HISTORY = 50
# Models in FuxiCTR's repository that its package lacks.
OF_ZOO = ("din", "bst")
UNIT = (80, 40)  # units of DIN's network over the items
# Models of 2021 to 2025 that no peer's package has.
OF_CROSSES = ("fibinet", "mask_net", "edcn", "final_mlp", "final_net", "gdcn", "fcn", "wukong", "qnn", "rank_mixer")
# Models whose gates read named fields.
OF_PRIORS: dict[str, dict[str, Any]] = {
    "ppnet": {"priors": ("f0",)},
    "pepnet": {"priors": ("f0",), "domains": ("f1",)},
}
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
TARGETS_OF_ZOO = dict.fromkeys(OF_ZOO, 1.5)

# Ratios of prediction times: maximum of BERT4CTR over Shallow-N, and minimum of NumBERT over BERT4CTR by features.
SHALLOW_TARGET = 1.05
NUMBERT_TARGETS = {57: 4.0, 90: 7.0}


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of the data.

    Number of univalent fields, ids in each, embedding width, rows in a batch, and the maximum and minimum length of a
    history, with uniformly distributed lengths.
    """

    fields: int = 39
    ids: int = 5000
    dim: int = 16
    batch: int = 2048
    history: int = HISTORY
    least_history: int = 1

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.ids,) * self.fields


def peer_options(shape: Shape) -> dict[str, Any]:
    """Returns the fields of `peer_server.Spec`, the same for every model."""
    return {
        "sizes": shape.sizes,
        "dim": shape.dim,
        "hidden": HIDDEN,
        "cin": CIN,
        "cin_activation": "linear",
        "cross": CROSS_LAYERS,
        "layers": ATTENTION_LAYERS,
        "heads": ATTENTION_HEADS,
        "attention": AFM_WIDTH,
        "conv_width": CONV_WIDTHS,
        "conv_filters": CONV_FILTERS,
    }


def zoo_options(shape: Shape, zoo: str) -> dict[str, Any]:
    """Returns the fields of `peer_server.Spec` for the models of OF_ZOO."""
    history = {"history": shape.history, "least_history": shape.least_history}
    return peer_options(shape) | history | {"zoo": zoo, "unit": UNIT}


def our_options(model: str, peer: str | None, shape: Shape) -> dict[str, Any]:
    """Returns the hyperparameters that make our model equal to the peer's, without dropout and L2.

    Additional work of a peer that no option removes stays: RecBole's DCN and DCN-v2 have batch normalisation in their
    MLP, its AutoInt projects before and after the attention instead of using a residual in each layer. If a peer
    differs from the paper, our model follows the peer: the ReLU of RecBole's CIN, the linear part of DeepCTR-Torch's
    DCN, DCN-v2 and CCPM, RecBole's FNN without the weights w. Separate linear layers for parts of the logit cost the
    same as one layer after a concatenation.
    """
    if peer == "fuxictr" and model == "din":
        return {"hidden_units": HIDDEN, "attention_hidden_units": UNIT, "embedding_dim": shape.dim}
    if peer == "fuxictr" and model == "bst":
        sizes = {"heads": ATTENTION_HEADS, "ffn_dim": 2 * shape.dim, "position_dim": shape.dim, "activation": "relu"}
        return {"hidden_units": HIDDEN, "output": "candidate", "embedding_dim": shape.dim} | sizes
    if model in TEXTS:
        return dict(ENCODER)
    if model in OF_PRIORS:
        return dict(OF_PRIORS[model])
    if model in AS_THEY_ARE:
        return {}
    hidden = {"hidden_units": HIDDEN}
    linear = {"use_linear": peer == "deepctr_torch"}
    options: dict[str, dict[str, Any]] = {
        **ALONE,
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
            "deep_units": HIDDEN,
            "use_linear": True,
        },
    }
    return options[model] | ({} if model == "lr" else {"embedding_dim": shape.dim})


MODELS = (*TARGETS, "lr", "afm", "fnn", "wide_deep", "dcn", "cin", *ALONE, *OF_PRIORS, *AS_THEY_ARE)
