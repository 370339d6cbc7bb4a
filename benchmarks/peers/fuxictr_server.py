"""Serves models made of FuxiCTR's layers, built as in its own model zoo, by the line protocol of `peer_server`.

FuxiCTR's wheel contains the layers, but not the models of the zoo. Names and shapes of the weights for `forward`, with
V total ids, F fields, embedding width d, hidden sizes H_i, CIN sizes C_k, n = F*d:

    lr          linear [V], bias [1]
    fm          embedding [V, d], linear [V], bias [1]
    mlp         embedding, dnn/kernel_i [in, out], dnn/bias_i [out], out/kernel [H, 1], out/bias [1]
    wide_deep   as mlp, plus linear, bias
    deepfm      as mlp, plus linear, bias
    pnn         as mlp; dnn/kernel_0 [n + F*(F-1)/2, H_0]: the embeddings, then the inner products (0,1), (0,2), ...
    cin         embedding, cin/filter_k [C_k, C_(k-1), F] (C_(-1) = F), cin/bias_k [C_k], cin_out/kernel [sum C_k, 1],
                cin_out/bias [1]
    xdeepfm     as cin and mlp, plus linear
    dcn         embedding, cross/kernel_l [n], cross/bias_l [n], dnn/kernel_i, dnn/bias_i, out/kernel [n + H, 1]: the
                cross network, then the DNN; out/bias [1]. Without dnn/*: the cross network alone.
    dcn_v2      as dcn with cross/kernel_l [n, n]: x_(l+1) = x_0 * (x_l @ kernel + bias) + x_l

Classes of the model zoo, for requests with a `zoo` and a `history` (see peer_server.Spec):

    din         as mlp; dnn/kernel_0 [n + d, H_0]: the fields, then the history; unit/kernel_i, unit/bias_i,
                unit_out/kernel, unit_out/bias: the network over [v, e, v - e, v * e]
    bst         as mlp; dnn/kernel_0 [n + 2d, H_0]: the fields, then the candidate's output; positions [L + 1, d]: the
                candidate's is the last, preceded by the newest item's; query, key, value, projection, ffn/kernel_0 and
                ffn/kernel_1 [2d, 2d], each with its bias; norm/scale_0, norm/shift_0 after the attention, _1 after the
                feed-forward network. Option: heads.
    dien        as mlp; dnn/kernel_0 [d + n, H_0]: the history, then the fields; extraction/input, extraction/state
                [d, 3d] of r, z and the new state; evolution/input, evolution/state [d, 3d] of u, r and the new state,
                each with its bias; bilinear [d, d]: h @ W @ v
    sim         as mlp; dnn/kernel_0 [n + 2d, H_0]: the other fields, the candidate, the newest items (zero here), the
                selected items; search/candidate, search/item, attention/query, attention/key, attention/value [d, A],
                attention/output [A, d]. Options: heads, attention (A), found. The model of the newest items and the
                loss of the search are left out.
    twin, eta   FuxiCTR's TWIN and ETA: as sim, without the search of sim; eta has search/planes [d, bits]
    hstu        the layers of HSTU's authors, whose checkout is `zoo`, between FuxiCTR's embedding and MLP: as mlp;
                dnn/kernel_0 [n + W, H_0]: the fields, then the candidate's state; project/kernel_0 [d, W],
                project/bias_0; by layer uvqk/kernel_i [W, 4W], places_i [L + 1] by distance, output/kernel_i [W, W],
                output/bias_i. Settings: layers, width, epsilon of the norms. Option: heads.

With `tasks`, the logits are ordered row by row:

    mmoe        embedding; expert_0_i/kernel_j, expert_0_i/bias_j: the layers of each expert; gate_0/kernel_k
                [n, experts], gate_0/bias_k; tower_k/kernel_j, tower_k/bias_j, tower_k/kernel [H, 1], tower_k/bias [1]
                of the task k. Options: experts, expert.
    ple         as mmoe, with one level: the experts of each task in turn, then the shared experts, as many as of one
                task

Other classes of the zoo, whose arguments are the request's `settings`: the weights have the names of PyTorch's modules,
as `mlp1.mlp.0/kernel` [in, out] and `mlp1.mlp.0/bias` of a linear layer, `/scale`, `/shift`, `/mean` and `/variance` of
a norm, and `/<parameter>` of others; `embedding`, and `linear` of a linear part, are as above. `gate_embed_layer/table`
is PPNet's second table, of the fields in `gate_priors`. fcn is the class of its authors' repository.

With a number of `item` fields:

    two_tower   FuxiCTR's DSSM: embedding; tower_0 of the user, with the mean of the history as the last input, and
                tower_1 of the item, as in mmoe, with kernel [H, H] and bias [H] of the vectors
"""

import dataclasses
import importlib
import importlib.util
import pathlib
import sys
import types
from collections import OrderedDict
from typing import Any

import torch
from fuxictr.features import FeatureMap
from fuxictr.pytorch.layers import (
    CompressedInteractionNet,
    CrossNet,
    CrossNetV2,
    FactorizationMachine,
    FeatureEmbedding,
    FeatureEmbeddingDict,
    InnerProductInteraction,
    LogisticRegression,
    MLP_Block,
)
from fuxictr.pytorch.models import BaseModel
from peer_server import Built, Spec, Weight, in_float32, linears, output, same, serve, stacked, transposed

MODELS = ("lr", "fm", "mlp", "wide_deep", "deepfm", "pnn", "cin", "xdeepfm", "dcn", "dcn_v2")
LABEL = "label"
HISTORY = "history"


def feature_map(spec: Spec) -> FeatureMap:
    """Returns the feature map that FuxiCTR's preprocessing would write for categorical fields."""
    described = FeatureMap("benchmark", ".")
    described.default_emb_dim = spec.dim
    described.labels = [LABEL] if spec.tasks == 1 else [f"{LABEL}_{task}" for task in range(spec.tasks)]
    described.features = OrderedDict(
        (f"f{index}", {"source": _source(index, spec), "type": "categorical", "vocab_size": size})
        for index, size in enumerate(spec.sizes)
    )
    if spec.history:
        described.features[HISTORY] = {"source": "", "type": "sequence", "vocab_size": spec.sizes[0], "padding_idx": 0}
        described.features[HISTORY] |= {"max_len": spec.history, "share_embedding": "f0"}
        described.features["f0"]["padding_idx"] = 0
        if spec.item:
            described.features[HISTORY] |= {"source": "user", "feature_encoder": "layers.MaskedAveragePooling()"}
    described.num_fields = described.get_num_fields()
    described.total_features = sum(spec.sizes)
    described.set_column_index()
    return described


def _source(index: int, spec: Spec) -> str:
    """Returns "item" or "user" for a field of a model with separate networks, "" otherwise."""
    if not spec.item:
        return ""
    return "item" if index < spec.item else "user"


class Model(BaseModel):
    """The base class of the models here, as in the zoo; with `logits` the output has no sigmoid."""

    def __init__(self, spec: Spec, logits: bool):
        super().__init__(
            feature_map(spec),
            task="regression" if logits else "binary_classification",
            gpu=int(spec.device.removeprefix("cuda:")) if spec.device != "cpu" else -1,
            verbose=0,
            model_root=".",
            metrics=[],
        )
        self.spec = spec
        self.fields = len(spec.sizes)
        self.width = self.feature_map.sum_emb_out_dim()

    def finish(self) -> None:
        """Compiles and initialises the model, as at the end of the zoo's constructors."""
        self.compile("adam", "binary_crossentropy", 1e-3)
        self.reset_parameters()
        self.model_to_device()

    def dnn(self, width: int) -> MLP_Block:
        return MLP_Block(input_dim=width, hidden_units=list(self.spec.hidden), output_dim=1)

    def forward(self, inputs):
        """Maps tensors (batch_size) by name to {"y_pred": (batch_size, 1)}."""
        ids = self.get_inputs(inputs)
        return {"y_pred": self.output_activation(self.logit(ids))}

    def weights(self) -> dict[str, Weight]:
        """Returns the weights of the model's layers."""
        weights: dict[str, Weight] = {}
        for name, layer in self.named_children():
            weights |= WEIGHTS[name](layer, self) if name in WEIGHTS else {}
        return weights


def tables(layer: FeatureEmbedding) -> list[torch.Tensor]:
    return [table.weight for table in layer.embedding_layer.embedding_layers.values()]


def linear_weights(layer: LogisticRegression) -> dict[str, Weight]:
    weights = {"linear": stacked(tables(layer.embedding_layer))}
    return weights if layer.bias is None else weights | {"bias": same(layer.bias)}


def dnn_weights(layer: MLP_Block) -> dict[str, Weight]:
    *hidden, last = [part for part in layer.mlp if isinstance(part, torch.nn.Linear)]
    return linears(hidden) | output(last)


def cin_weights(layer: CompressedInteractionNet, fields: int) -> dict[str, Weight]:
    """Returns the CIN's weights. The peer orders channels by x_0's field first, then by the previous layer's map."""
    weights, before = {}, fields
    for index, convolution in enumerate(layer.cin_layer.values()):
        maps = convolution.out_channels
        weights[f"cin/filter_{index}"] = transposed(convolution.weight, (maps, before, fields), (0, 2, 1))
        weights[f"cin/bias_{index}"] = same(convolution.bias)
        before = maps
    return weights | output(layer.fc, "cin_out")


def cross_weights(layer: CrossNet | CrossNetV2) -> dict[str, Weight]:
    weights = {}
    if isinstance(layer, CrossNetV2):
        return linears(list(layer.cross_layers), "cross")
    for index, cross in enumerate(layer.cross_net):
        weights[f"cross/kernel_{index}"] = same(cross.weight.weight, cross.weight.in_features)
        weights[f"cross/bias_{index}"] = same(cross.bias)
    return weights


def tower_weights(layer: MLP_Block) -> dict[str, Weight]:
    return linears([part for part in layer.mlp if isinstance(part, torch.nn.Linear)])


WEIGHTS = {
    "embedding": lambda layer, model: {"embedding": stacked(tables(layer), model.spec.dim)},
    "lr": lambda layer, model: linear_weights(layer),
    "fm": lambda layer, model: linear_weights(layer.lr_layer),
    "deep": lambda layer, model: dnn_weights(layer),
    "tower": lambda layer, model: tower_weights(layer),
    "cin": lambda layer, model: cin_weights(layer, model.fields),
    "cross": lambda layer, model: cross_weights(layer),
    "fc": lambda layer, model: output(layer),
}


class LR(Model):
    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        self.lr = LogisticRegression(self.feature_map, use_bias=True)
        self.finish()

    def logit(self, ids):
        return self.lr(ids)


class FM(Model):
    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        self.embedding = FeatureEmbedding(self.feature_map, spec.dim)
        self.fm = FactorizationMachine(self.feature_map)
        self.finish()

    def logit(self, ids):
        return self.fm(ids, self.embedding(ids))


class MLP(Model):
    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        self.embedding = FeatureEmbedding(self.feature_map, spec.dim)
        self.deep = self.dnn(self.width)
        self.finish()

    def logit(self, ids):
        return self.deep(self.embedding(ids, flatten_emb=True))


class WideDeep(Model):
    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        self.embedding = FeatureEmbedding(self.feature_map, spec.dim)
        self.lr = LogisticRegression(self.feature_map, use_bias=True)
        self.deep = self.dnn(self.width)
        self.finish()

    def logit(self, ids):
        return self.lr(ids) + self.deep(self.embedding(ids, flatten_emb=True))


class DeepFM(Model):
    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        self.embedding = FeatureEmbedding(self.feature_map, spec.dim)
        self.fm = FactorizationMachine(self.feature_map)
        self.deep = self.dnn(self.width)
        self.finish()

    def logit(self, ids):
        rows = self.embedding(ids)
        return self.fm(ids, rows) + self.deep(rows.flatten(start_dim=1))


class PNN(Model):
    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        self.embedding = FeatureEmbedding(self.feature_map, spec.dim)
        self.products = InnerProductInteraction(self.fields, output="inner_product")
        self.deep = self.dnn(self.width + self.products.interaction_units)
        self.finish()

    def logit(self, ids):
        rows = self.embedding(ids)
        return self.deep(torch.cat([rows.flatten(start_dim=1), self.products(rows)], dim=1))


class CIN(Model):
    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        self.embedding = FeatureEmbedding(self.feature_map, spec.dim)
        self.cin = CompressedInteractionNet(self.fields, list(spec.cin), output_dim=1)
        self.finish()

    def logit(self, ids):
        return self.cin(self.embedding(ids))


class XDeepFM(Model):
    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        self.embedding = FeatureEmbedding(self.feature_map, spec.dim)
        self.deep = self.dnn(self.width)
        self.lr = LogisticRegression(self.feature_map, use_bias=False)
        self.cin = CompressedInteractionNet(self.fields, list(spec.cin), output_dim=1)
        self.finish()

    def logit(self, ids):
        rows = self.embedding(ids)
        return self.lr(ids) + self.cin(rows) + self.deep(rows.flatten(start_dim=1))


class DCN(Model):
    """The parallel structure: a cross network and a DNN, with one linear layer over both."""

    network = CrossNet

    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        self.embedding = FeatureEmbedding(self.feature_map, spec.dim)
        self.cross = self.network(self.width, spec.cross)
        self.tower = MLP_Block(input_dim=self.width, hidden_units=list(spec.hidden)) if spec.hidden else None
        self.fc = torch.nn.Linear(self.width + sum(spec.hidden[-1:]), 1)
        self.finish()

    def logit(self, ids):
        rows = self.embedding(ids, flatten_emb=True)
        parts = [self.cross(rows)] + ([self.tower(rows)] if self.tower else [])
        return self.fc(torch.cat(parts, dim=-1))


class DCNv2(DCN):
    network = CrossNetV2


class Units(Model):
    """The layers of HSTU's authors over a history and the candidate behind it, and an MLP."""

    def __init__(self, spec: Spec, logits: bool):
        super().__init__(spec, logits)
        authors = authors_layers(spec.zoo)
        width, tokens = spec.settings["width"], spec.history + 1
        self.embedding_layer = FeatureEmbeddingDict(self.feature_map, spec.dim)
        self.project = torch.nn.Linear(spec.dim, width)
        layers = [
            authors.SequentialTransductionUnitJagged(
                embedding_dim=width,
                linear_hidden_dim=width // spec.heads,
                attention_dim=width // spec.heads,
                dropout_ratio=0.0,
                attn_dropout_ratio=0.0,
                num_heads=spec.heads,
                linear_activation="silu",
                relative_attention_bias_module=authors.RelativePositionalBias(tokens),
                epsilon=spec.settings["epsilon"],
            )
            for _ in range(spec.settings["layers"])
        ]
        self.stack = authors.HSTUJagged(layers, autocast_dtype=None)
        self.deep = self.dnn(len(spec.sizes) * spec.dim + width)
        self.finish()

    def logit(self, ids):
        embedded = self.embedding_layer(ids)
        fields = [embedded[f"f{index}"] for index in range(self.fields)]
        lengths = (ids[HISTORY] > 0).sum(dim=1)
        rows, tokens = len(lengths), self.spec.history + 1
        places = torch.arange(tokens, device=lengths.device)
        states = torch.cat([embedded[HISTORY], torch.zeros_like(fields[0])[:, None]], dim=1)
        states = torch.where((places == lengths[:, None])[..., None], fields[0][:, None], states)
        offsets = torch.nn.functional.pad(torch.cumsum(lengths + 1, dim=0), (1, 0))
        seen = torch.ones(tokens, tokens, device=lengths.device).tril()
        times = torch.zeros(rows, tokens, dtype=torch.int64, device=lengths.device)
        states, _ = self.stack(self.project(states), offsets, times, seen)
        candidate = states[torch.arange(rows, device=lengths.device), lengths]
        return self.deep(torch.cat([*fields, candidate], dim=1))

    def weights(self) -> dict[str, Weight]:
        tables = self.embedding_layer.embedding_layers
        rows = [tables[f"f{index}"].weight for index in range(self.fields)]
        weights = {"embedding": stacked(rows, self.spec.dim)}
        weights |= linears([self.project], "project") | dnn_weights(self.deep)
        layers = list(self.stack._attention_layers)
        weights |= linears([layer._o for layer in layers], "output")
        for index, layer in enumerate(layers):
            weights[f"uvqk/kernel_{index}"] = same(layer._uvqk)
            # The second half is of tokens that come later, which no token sees.
            distances = layer._rel_attn_bias._w[: self.spec.history + 1]
            weights[f"places_{index}"] = Weight(tuple(distances.shape), (distances,), lambda value: [value[::-1]])
        return weights


def authors_layers(folder: str) -> types.ModuleType:
    """Returns the module of HSTU's authors with their layers.

    It calls two operators of fbgemm, which PyTorch's own functions replace here.
    """
    path = "generative_recommenders.research.modeling.sequential.hstu"
    if path in sys.modules:
        return sys.modules[path]
    library = torch.library.Library("fbgemm", "DEF")
    library.define(
        "jagged_to_padded_dense(Tensor values, Tensor[] offsets, int[] max_lengths, float padding_value=0.0) -> Tensor"
    )
    library.define("dense_to_jagged(Tensor dense, Tensor[] offsets) -> (Tensor, Tensor[])")
    library.impl("jagged_to_padded_dense", padded_rows, "CompositeImplicitAutograd")
    library.impl("dense_to_jagged", packed_rows, "CompositeImplicitAutograd")
    sys.path.insert(0, folder)
    module = importlib.import_module(path)
    module.library = library  # a library's operators go with it
    return module


def padded_rows(
    values: torch.Tensor, offsets: list[torch.Tensor], max_lengths: list[int], padding_value: float = 0.0
) -> torch.Tensor:
    """Returns the rows (sum of lengths, width) as (batch_size, max_lengths[0], width)."""
    (starts,), (longest,) = offsets, max_lengths
    parts = list(values.split(starts.diff().tolist()))
    padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=padding_value)
    return torch.nn.functional.pad(padded, (0, 0, 0, longest - padded.shape[1]), value=padding_value)


def packed_rows(dense: torch.Tensor, offsets: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Returns the rows of (batch_size, length, width) without padding, (sum of lengths, width), and the offsets."""
    (starts,) = offsets
    is_token = torch.arange(dense.shape[1], device=dense.device) < starts.diff()[:, None]
    return dense[is_token], offsets


CLASSES = (LR, FM, MLP, WideDeep, DeepFM, PNN, CIN, XDeepFM, DCN, DCNv2)


# By model: the folder of its class in FuxiCTR's repository, the class, and the argument for the hidden units.
ZOO = {
    "lr": ("LR", "LR", ""),
    "fm": ("FM", "FM", ""),
    "deepfm": ("DeepFM/DeepFM_torch", "DeepFM", "hidden_units"),
    "dcn_v2": ("DCNv2", "DCNv2", "parallel_dnn_hidden_units"),
    "xdeepfm": ("xDeepFM", "xDeepFM", "dnn_hidden_units"),
    "autoint": ("AutoInt", "AutoInt", "dnn_hidden_units"),
    "din": ("DIN", "DIN", "dnn_hidden_units"),
    "bst": ("BST", "BST", "dnn_hidden_units"),
    "dien": ("DIEN", "DIEN", "dnn_hidden_units"),
    "sim": ("LongCTR/SIM", "SIM", "dnn_hidden_units"),
    "twin": ("LongCTR/TWIN", "TWIN", "dnn_hidden_units"),
    "eta": ("LongCTR/ETA", "ETA", "dnn_hidden_units"),
    "mmoe": ("multitask/MMoE", "MMoE", "tower_hidden_units"),
    "ple": ("multitask/PLE", "PLE", "tower_hidden_units"),
    "two_tower": ("DSSM", "DSSM", ""),
    "gdcn": ("GDCN", "GDCNP", ""),
    "gdcn_stacked": ("GDCN", "GDCN", ""),
    "fibinet": ("FiBiNET", "FiBiNET", ""),
    "mask_net": ("MaskNet", "MaskNet", ""),
    "edcn": ("EDCN", "EDCN", ""),
    "final_mlp": ("FinalMLP", "FinalMLP", ""),
    "final_net": ("FinalNet", "FinalNet", ""),
    "wukong": ("WuKong", "WuKong", ""),
    "qnn": ("QNN", "QNN_alpha", ""),
    "ppnet": ("PEPNet", "PPNet", ""),
    "fcn": ("", "DCNv3", ""),
}
# Those whose weights are named by their modules. Of some the file has another name than the class.
BY_MODULE = (
    "gdcn",
    "gdcn_stacked",
    "fibinet",
    "mask_net",
    "edcn",
    "final_mlp",
    "final_net",
    "wukong",
    "qnn",
    "ppnet",
    "fcn",
)
FILES = {"GDCNP": "GDCN"}
# Models of long histories, which take a history as additional rows of the candidate's columns, not as a column.
LONG = ("sim", "twin", "eta")


def of_history(name: str, spec: Spec) -> dict[str, object]:
    """Returns the settings of the zoo's history models; the candidate is the first field."""
    settings: dict[str, object] = {f"{name}_target_field": ["f0"], f"{name}_sequence_field": [HISTORY]}
    if name == "din":
        return settings | {"attention_hidden_units": list(spec.unit), "attention_hidden_activations": "sigmoid"}
    if name == "bst":
        return settings | {"num_heads": spec.heads, "seq_pooling_type": "target"}
    if name in LONG:  # a short sequence of length 1 holds only the candidate, no item
        return {"num_heads": spec.heads, "attention_dim": spec.attention, "topk": spec.found, "short_seq_len": 1}
    if name == "two_tower":
        return {}
    return settings | {"dien_neg_seq_field": [], "batch_norm": False}


def zoo_weights(name: str, model: BaseModel, spec: Spec) -> dict[str, Weight]:
    """Returns the weights of the zoo's history, multi-task and two-tower models."""
    embedded = model.embedding_layer
    tables = getattr(embedded, "embedding_layer", embedded).embedding_layers
    weights = {"embedding": stacked([tables[f"f{index}"].weight for index in range(len(spec.sizes))], spec.dim)}
    if spec.tasks > 1:
        return weights | expert_weights(name, model)
    if name == "two_tower":
        return weights | task_network(model.user_tower, "tower_0") | task_network(model.item_tower, "tower_1")
    weights |= dnn_weights(model.dnn)
    if name in LONG:
        attention = model.long_attention
        layers = {"attention/query": attention.W_q, "attention/value": attention.W_v, "attention/output": attention.W_o}
        layers["attention/key"] = attention.W_h if name == "twin" else attention.W_k
        if name == "sim":
            layers |= {"search/candidate": model.W_a, "search/item": model.W_b}
        if name == "eta":
            weights["search/planes"] = same(model.random_rotations, *model.random_rotations.shape[1:])
        return weights | {name: transposed(layer.weight) for name, layer in layers.items()}
    if name == "din":
        *hidden, last = [
            part for part in model.attention_layers[0].attention_layer.mlp if isinstance(part, torch.nn.Linear)
        ]
        return weights | linears(hidden, "unit") | output(last, "unit_out")
    if name == "dien":
        first, second = model.extraction_modules[0], model.evolving_modules[0].gru_cell
        weights |= {"extraction/input": transposed(first.weight_ih_l0), "extraction/input_bias": same(first.bias_ih_l0)}
        weights |= {"extraction/state": transposed(first.weight_hh_l0), "extraction/state_bias": same(first.bias_hh_l0)}
        weights |= {"evolution/input": transposed(second.x2h.weight), "evolution/input_bias": same(second.x2h.bias)}
        weights |= {"evolution/state": transposed(second.h2h.weight), "evolution/state_bias": same(second.h2h.bias)}
        return weights | {"bilinear": same(model.attention_modules[0].W_kernel)}
    encoder = model.transformer_encoders[0]
    (block,) = encoder.transformer_blocks
    weights |= {"positions": same(encoder.position_emb)}
    kernels, biases = block.attention.in_proj_weight.chunk(3), block.attention.in_proj_bias.chunk(3)
    for part, kernel, bias in zip(("query", "key", "value"), kernels, biases, strict=True):
        weights |= {f"{part}/kernel": transposed(kernel), f"{part}/bias": same(bias)}
    projection = block.attention.out_proj
    weights |= {"projection/kernel": transposed(projection.weight), "projection/bias": same(projection.bias)}
    weights |= linears([block.ffn[0], block.ffn[2]], "ffn")
    for index, norm in enumerate((block.layer_norm1, block.layer_norm2)):
        weights |= {f"norm/scale_{index}": same(norm.weight), f"norm/shift_{index}": same(norm.bias)}
    return weights


def module_weights(model: BaseModel, spec: Spec) -> dict[str, Weight]:
    """Returns all weights of a model by the names of its modules."""
    weights: dict[str, Weight] = {}
    for path, module in model.named_modules():
        if isinstance(module, FeatureEmbedding):
            place = {"lr_layer.embedding_layer": "linear", "gate_embed_layer": "gate_embed_layer/table"}
            rows = tables(module)
            width = () if rows[0].shape[1] == 1 else (rows[0].shape[1],)
            weights[place.get(path, "embedding")] = stacked(rows, *width)
        elif isinstance(module, torch.nn.Linear):
            weights[f"{path}/kernel"] = transposed(module.weight)
            if module.bias is not None:
                weights[f"{path}/bias"] = same(module.bias)
        elif isinstance(module, torch.nn.LayerNorm | torch.nn.BatchNorm1d):
            weights |= {f"{path}/scale": same(module.weight), f"{path}/shift": same(module.bias)}
            if isinstance(module, torch.nn.BatchNorm1d):
                weights |= {f"{path}/mean": same(module.running_mean), f"{path}/variance": same(module.running_var)}
        elif not any(name in path for name in ("embedding_layer", "gate_embed_layer")):
            own = module.named_parameters(recurse=False)
            weights |= {f"{path}/{name}": same(one) for name, one in own if one.requires_grad}
    return weights


def task_network(network: MLP_Block, name: str) -> dict[str, Weight]:
    """Returns the weights of a network whose last layer is the output layer."""
    *hidden, last = [part for part in network.mlp if isinstance(part, torch.nn.Linear)]
    return linears(hidden, name) | output(last, name)


def expert_weights(name: str, model: BaseModel) -> dict[str, Weight]:
    """Returns the weights of MMoE, or of PLE with one level."""
    weights: dict[str, Weight] = {}
    for task, tower in enumerate(model.tower):
        weights |= task_network(tower, f"tower_{task}")
    if name == "mmoe":
        experts, gates = list(model.mmoe_layer.experts), model.mmoe_layer.gate
    else:
        (level,) = model.cgc_layers
        experts = [expert for own in level.specific_experts for expert in own] + list(level.shared_experts)
        gates = level.gate[: len(model.tower)]
    weights |= linears([gate.mlp[0] for gate in gates], "gate_0")
    for number, expert in enumerate(experts):
        layers = [part for part in expert.mlp if isinstance(part, torch.nn.Linear)]
        weights |= linears(layers, f"expert_0_{number}")
    return weights


def of_tasks(name: str, spec: Spec) -> dict[str, object]:
    """Returns the settings of the zoo's multi-task models, whose gates have no hidden layers."""
    settings: dict[str, object] = {"num_tasks": spec.tasks, "expert_hidden_units": list(spec.expert)}
    settings |= {"gate_hidden_units": []}
    if name == "mmoe":
        return settings | {"num_experts": spec.experts}
    return settings | {"num_shared_experts": spec.experts, "num_specific_experts": spec.experts, "num_layers": 1}


def padded_before(items: torch.Tensor) -> torch.Tensor:
    """Returns histories (batch_size, length) with the padding moved from the end to the start."""
    length = items.shape[1]
    empty = (items == 0).sum(dim=1, keepdim=True)
    return items.gather(1, (torch.arange(length, device=items.device) - empty) % length)


def zoo_model(name: str, spec: Spec, logits: bool) -> BaseModel:
    """Returns a model of the zoo with the sizes and the regularisation of `spec`, and its defaults otherwise."""
    folder, class_name, hidden = ZOO[name]
    place = pathlib.Path(spec.zoo) / "model_zoo" / folder
    if not folder:  # the repository of the authors
        place = pathlib.Path(spec.zoo)
    path = (place / "src" if (place / "src").is_dir() else place) / f"{FILES.get(class_name, class_name)}.py"
    loaded = importlib.util.spec_from_file_location(class_name, path)
    module = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(module)
    settings = {"gpu": -1, "verbose": 0, "model_root": ".", "metrics": []}
    settings |= {"task": "regression" if logits else "binary_classification"}
    settings |= {"optimizer": "adam", "loss": "binary_crossentropy", "embedding_dim": spec.dim}
    settings |= spec.settings
    if name in BY_MODULE:
        pass
    elif hidden:
        settings |= {"embedding_regularizer": spec.l2, "net_regularizer": spec.network_l2}
        settings |= {"net_dropout": spec.dropout, hidden: list(spec.hidden)}
    else:
        settings["regularizer"] = spec.l2
    if spec.history:
        settings |= of_history(name, spec)
    if spec.tasks > 1:
        settings |= of_tasks(name, spec) | {"task": [settings["task"]] * spec.tasks}
    if name == "two_tower":
        units = [*spec.hidden, spec.hidden[-1]]
        settings |= {"user_tower_units": units, "item_tower_units": units}
    if name == "xdeepfm":
        settings["cin_hidden_units"] = list(spec.cin)
    if name == "dcn_v2":
        settings["num_cross_layers"] = spec.cross
    if name == "autoint":
        settings |= {"attention_layers": spec.layers, "num_heads": spec.heads, "attention_dim": spec.dim}
    described = dataclasses.replace(spec, history=0, item=1) if name in LONG else spec
    if name == "fcn":  # its widths are those of a head
        described = dataclasses.replace(spec, dim=settings["embedding_dim"])
    model = getattr(module, class_name)(feature_map(described), **settings)
    if name == "qnn":  # it calls the package's embedding, and is called for its loss, with arguments of another release
        embed, loss = model.embedding_layer.forward, type(model).add_loss
        model.embedding_layer.forward = lambda ids, dynamic_emb_dim: embed(ids, flatten_emb=dynamic_emb_dim)

        def add_loss(predictions, labels):
            known = {"forward": lambda _: predictions, "get_labels": lambda _: labels, "loss_fn": model.loss_fn}
            return loss(types.SimpleNamespace(**known), None)

        model.add_loss = add_loss
    return model


def build(name: str, spec: Spec, logits: bool) -> Built:
    if name == "hstu":
        model: BaseModel = Units(spec, logits)
    elif spec.zoo:
        model = zoo_model(name, spec, logits)
    else:
        model = dict(zip(MODELS, CLASSES, strict=True))[name](spec, logits)

    def inputs(ids: torch.Tensor, labels: torch.Tensor) -> Any:
        univalent = ids[:, : len(spec.sizes)].unbind(1)
        columns = {f"f{index}": column.contiguous() for index, column in enumerate(univalent)}
        if spec.history:
            items = ids[:, len(spec.sizes) :]
            if name in LONG:
                candidate = columns.pop("f0")
                searched = {"f0": torch.cat([items, candidate[:, None]], dim=1).reshape(-1)}
                return columns | {LABEL: labels}, searched, items > 0
            # BST's positions count from the oldest item; ours, as in the paper, count from the candidate.
            columns[HISTORY] = padded_before(items) if name == "bst" else items.contiguous()
        return columns | dict.fromkeys(model.feature_map.labels, labels)

    weights = model.weights() if isinstance(model, Model) else None
    if weights is None and (spec.history or spec.tasks > 1):
        weights = zoo_weights(name, model, spec)
    elif name in BY_MODULE:
        weights = module_weights(model, spec)
    short = "short_attention."
    unused = {
        "sim": ("dnn_aux.", short),
        "twin": (short,),
        "eta": (short,),
        "ple": (f"cgc_layers.0.gate.{spec.tasks}.",),
    }

    def outputs(batch: Any) -> torch.Tensor:
        predicted = model(batch)
        return torch.cat([predicted[f"{label}_pred"] for label in model.feature_map.labels], dim=1)

    def single(batch: Any) -> torch.Tensor:
        return model(batch)["y_pred"]

    def loss(batch: Any) -> torch.Tensor:
        predicted = model(batch)
        with in_float32(spec.device):
            wide = {key: value.float() if torch.is_tensor(value) else value for key, value in predicted.items()}
            return model.compute_loss(wide, model.get_labels(batch))

    return Built(
        module=model,
        inputs=inputs,
        loss=loss,
        logits=outputs if spec.tasks > 1 else single,
        weights=weights,
        unused=unused.get(name, ()) if spec.zoo else (),
        probabilities=None if spec.tasks > 1 else single,
    )


if __name__ == "__main__":
    serve(build, dict.fromkeys(MODELS, True))
