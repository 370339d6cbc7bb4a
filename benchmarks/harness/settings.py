"""The data's shape, each model's settings on both sides, and the targets. Standard library only."""

import dataclasses
from typing import Any

HIDDEN = (400, 400)
CIN = (64, 64, 64)
CROSS_LAYERS, ATTENTION_LAYERS, ATTENTION_HEADS, AFM_WIDTH = 3, 3, 2, 8
CONV_FILTERS, CONV_WIDTHS = (4, 4), (6, 5)

# Models that no peer has in its paper's form.
ALONE: dict[str, dict[str, Any]] = {
    "crossnet": {"layers": CROSS_LAYERS},
    "dlrm": {"hidden_units": HIDDEN},
    "attention_net": {"hidden_units": HIDDEN},
    "features_only": {"hidden_units": HIDDEN},
}
# With the defaults of their own: models of tokens, those that read a history of so many items, and those of two tasks.
ALONE_OF_TOKENS = ("transformer", "transformer_pe", "hetero_att", "hiformer")
HISTORIES = ("fism", "nais", "din", "bst", "dien", "sim", "sequence_transformer", "two_tower", "starspace")
HISTORY = 50
# Those that FuxiCTR's repository has, and its package lacks.
OF_ZOO = ("din", "bst")
UNIT = (80, 40)  # of DIN's network over the items
SEVERAL_TASKS = ("mmoe", "ple", "esmm")
# Those that read a text, with an encoder of MiniLM's shape. A row takes hundreds of times as long as one of the others,
# so that they are measured where they are asked for, in small batches.
TEXTS = ("text_only", "shallow_interaction_1", "shallow_interaction_n", "bert4ctr", "numbert")
TEXTS += ("numbert_uni_attention", "numbert_uni_attention_reduced")
ENCODER = {"encoder_layers": 6, "encoder_width": 384, "encoder_heads": 12, "encoder_ffn": 1536}
AS_THEY_ARE = (*ALONE_OF_TOKENS, *HISTORIES, *SEVERAL_TASKS)

# Our samples/s over those of the fastest peer that has the model.
TARGETS = {"xdeepfm": 5.0}
TARGETS |= dict.fromkeys(("autoint", "dcn_v2", "deepfm", "fm", "pnn", "ccpm", "ffm", "mlp"), 1.5)
TARGETS_OF_ZOO = dict.fromkeys(OF_ZOO, 1.5)

# Of a prediction's time: at most BERT4CTR's over Shallow-N's, and at least NumBERT's over BERT4CTR's by features.
SHALLOW_TARGET = 1.05
NUMBERT_TARGETS = {57: 4.0, 90: 7.0}


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of the data.

    Univalent fields, ids in each, width of an embedding, rows in a batch; most and fewest items of a history, where
    there is one, with all lengths between as often.
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

    Work that a peer adds, and no option of it removes, stays: RecBole's DCN and DCN-v2 normalise the batch in their
    MLP, its AutoInt projects before and after the attention in place of a residual in each layer. Where a peer differs
    from the paper, our model follows the peer: the ReLU of RecBole's CIN, the linear part of DeepCTR-Torch's DCN,
    DCN-v2 and CCPM, RecBole's FNN without the weights w. Whether parts of the logit have a linear layer each, or share
    one after a concatenation, makes no difference in cost.
    """
    if peer == "fuxictr" and model == "din":
        return {"hidden_units": HIDDEN, "attention_hidden_units": UNIT, "embedding_dim": shape.dim}
    if peer == "fuxictr" and model == "bst":
        sizes = {"heads": ATTENTION_HEADS, "ffn_dim": 2 * shape.dim, "position_dim": shape.dim, "activation": "relu"}
        return {"hidden_units": HIDDEN, "output": "candidate", "embedding_dim": shape.dim} | sizes
    if model in TEXTS:
        return dict(ENCODER)
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


MODELS = (*TARGETS, "lr", "afm", "fnn", "wide_deep", "dcn", "cin", *ALONE, *AS_THEY_ARE)
