"""Serves RecBole's own model classes, configuration and interactions by the line protocol of `peer_server`.

Only its dataset is replaced, by an object with the fields' names and sizes. Names and shapes of the weights for
`forward`, with V total ids, F fields, embedding width d, last hidden size H:

    lr          linear [V], bias [1]
    fm          embedding [V, d], linear, bias
    ffm         embedding [V, F, d], the vector of row v for each field; linear, bias
    fnn         embedding [V, d], dnn/kernel_i [in, out], dnn/bias_i [out], out/kernel [H, 1], out/bias [1]; tanh
    fism        candidates [V_0, d] and items [V_0, d] of the first field, the item; linear [V_0 + V_1] of the first
                field and of the second, the user; row 0 of items is the history's padding
    nais        as fism with linear [V_0]; attention/kernel_0 [d, A], or [2d, A] of an item, then the candidate, with
                concat=True; attention/bias_0 [A], attention/projection [A, 1]. Option: concat.

fism and nais need a `history` (see peer_server.Spec), and each row has its own; `fit` supports them too. The other
models support training only, for speed comparisons.
"""

from typing import Any

import torch
from peer_server import Built, Spec, Weight, in_float32, linears, output, same, serve, stacked
from recbole.config import Config
from recbole.data.interaction import Interaction
from recbole.model import context_aware_recommender as zoo
from recbole.model import general_recommender
from recbole.utils import FeatureType
from torch.nn import functional

MODELS = {
    "lr": zoo.LR,
    "fm": zoo.FM,
    "ffm": zoo.FFM,
    "fnn": zoo.FNN,
    "afm": zoo.AFM,
    "wide_deep": zoo.WideDeep,
    "deepfm": zoo.DeepFM,
    "pnn": zoo.PNN,
    "dcn": zoo.DCN,
    "dcn_v2": zoo.DCNV2,
    "xdeepfm": zoo.xDeepFM,
    "autoint": zoo.AutoInt,
}
HISTORIES = {"fism": general_recommender.FISM, "nais": general_recommender.NAIS}
WITH_FORWARD = ("lr", "fm", "ffm", "fnn", *HISTORIES)
LABEL = "label"


class Dataset:
    """The part of RecBole's Dataset that its models read."""

    def __init__(self, sizes: tuple[int, ...]):
        self.sizes = {f"f{index}": size for index, size in enumerate(sizes)}
        self.field2type = dict.fromkeys(self.sizes, FeatureType.TOKEN)

    def fields(self, source: Any = None) -> list[str]:
        return list(self.sizes)

    def num(self, field: str) -> int:
        return self.sizes[field]


def config(name: str, spec: Spec) -> Config:
    """Returns the peer's defaults with the sizes and dropout of `spec`; the optimizer applies weight decay."""
    values = {"LABEL_FIELD": LABEL, "embedding_size": spec.dim, "mlp_hidden_size": list(spec.hidden), "reg_weight": 0.0}
    values |= {
        "gpu_id": "" if spec.device == "cpu" else spec.device.removeprefix("cuda:"),
        "dropout_prob": spec.dropout,
    }
    if name == "autoint":
        values |= {"attention_size": spec.dim, "n_layers": spec.layers, "num_heads": spec.heads}
        values |= {"dropout_probs": [spec.dropout] * 3, "has_residual": True}
    if name == "afm":
        values["attention_size"] = spec.attention
    if name in ("dcn", "dcn_v2"):
        values |= {"cross_layer_num": spec.cross, "structure": "parallel", "mixed": False}
    if name == "pnn":
        values |= {"use_inner": spec.inner, "use_outer": spec.outer}
    if name == "xdeepfm":
        values |= {"cin_layer_size": list(spec.cin), "direct": not spec.split_half}
    return Config(model=MODELS[name], dataset="benchmark", config_dict=values)


def field_aware(tables: torch.nn.ModuleList) -> Weight:
    """Returns the tables (V, d), one per interacting field, as one weight (V, F, d)."""
    tensors = tuple(table.weight for table in tables)
    rows, dim = tensors[0].shape
    return Weight((rows, len(tensors), dim), tensors, lambda value: list(value.transpose(1, 0, 2)))


def weights_of(name: str, model: torch.nn.Module) -> dict[str, Weight]:
    linear = model.first_order_linear
    table = linear.token_embedding_table.embedding.weight
    weights = {"linear": same(table, len(table)), "bias": same(linear.bias)}
    rows = {"embedding": same(model.token_embedding_table.embedding.weight)}
    if name == "fm":
        return weights | rows
    if name == "ffm":
        return weights | {"embedding": field_aware(model.ffm.token_embeddings)}
    if name == "fnn":
        hidden = [layer for layer in model.mlp_layers.mlp_layers if isinstance(layer, torch.nn.Linear)]
        return rows | linears(hidden) | output(model.predict_layer)
    return weights


class ByRow:
    """Replaces a tensor that a history model indexes by the batch's users: each row has its own value."""

    def __init__(self, values: torch.Tensor):
        self.values = values

    def __getitem__(self, users: torch.Tensor) -> torch.Tensor:
        return self.values


class Interactions:
    """The part of RecBole's Dataset that its history models read; the histories come with the rows."""

    def __init__(self, spec: Spec):
        self.sizes = {"item_id": spec.sizes[0], "user_id": spec.sizes[1]}

    def num(self, field: str) -> int:
        return self.sizes[field]

    def history_item_matrix(self) -> tuple[torch.Tensor, None, torch.Tensor]:
        users = self.sizes["user_id"]
        return torch.zeros(users, 1, dtype=torch.int64), None, torch.ones(users, dtype=torch.int64)


def of_history(name: str, spec: Spec) -> Built:
    """Returns FISM or NAIS with each row's own history."""
    values = {"LABEL_FIELD": LABEL, "USER_ID_FIELD": "user_id", "ITEM_ID_FIELD": "item_id", "NEG_PREFIX": "neg_"}
    values |= {"embedding_size": spec.dim, "split_to": 0, "gpu_id": "", "alpha": 0.5 if name == "fism" else 0.0}
    values |= {"reg_weights": [0.0] * (2 if name == "fism" else 3), "pretrain_path": spec.pretrained or None}
    values |= {"algorithm": "concat" if spec.concat else "prod", "weight_size": spec.attention, "beta": 0.5}
    described = Config(model=HISTORIES[name], dataset="benchmark", config_dict=values)
    model = HISTORIES[name](described, Interactions(spec))

    def logits(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        ids, _ = batch
        # An empty history counts as one padding item with a zero embedding; the peer would divide by zero.
        lengths = (ids[:, 2:] > 0).sum(dim=1).clamp(min=1)
        model.history_item_matrix, model.history_lens = ByRow(ids[:, 2:]), ByRow(lengths)
        model.mask_mat = ByRow((torch.arange(ids.shape[1] - 2) < lengths[:, None]).float())
        scores = model(ids[:, 1], ids[:, 0])
        return torch.logit(scores.double()) if name == "fism" else scores

    weights = {"candidates": same(model.item_dst_embedding.weight), "items": same(model.item_src_embedding.weight)}
    if name == "fism":
        weights["linear"] = stacked([model.item_bias, model.user_bias])
    else:
        hidden = [layer for layer in model.mlp_layers.mlp_layers if isinstance(layer, torch.nn.Linear)]
        weights |= {"linear": same(model.bias), "attention/projection": same(model.weight_layer)}
        weights |= linears(hidden, "attention")
    loss = functional.binary_cross_entropy_with_logits
    return Built(
        module=model,
        inputs=lambda ids, labels: (ids, labels),
        loss=lambda batch: loss(logits(batch).float(), batch[1]),
        logits=logits,
        weights=weights,
        probabilities=lambda batch: torch.sigmoid(logits(batch)),
    )


def build(name: str, spec: Spec, logits: bool) -> Built:
    if name in HISTORIES:
        return of_history(name, spec)
    if logits and name not in WITH_FORWARD:
        raise ValueError(f"`forward` is offered for {WITH_FORWARD}. Received: {name!r}")
    settings = config(name, spec)
    model = MODELS[name](settings, Dataset(spec.sizes)).to(settings["device"])

    def inputs(ids: torch.Tensor, labels: torch.Tensor) -> Interaction:
        columns = {f"f{index}": column.contiguous() for index, column in enumerate(ids.unbind(1))}
        return Interaction(columns | {LABEL: labels})

    def loss(batch: Interaction) -> torch.Tensor:
        # Not `calculate_loss`, which computes the norms of its regularisation even at weight zero.
        outputs = model(batch)
        with in_float32(spec.device):
            return model.loss(outputs.float(), batch[LABEL])

    unused = {"fnn": ("first_order_linear",), "ffm": ("token_embedding_table",), "lr": ("token_embedding_table",)}
    return Built(
        module=model,
        inputs=inputs,
        loss=loss,
        logits=model,
        weights=weights_of(name, model) if name in WITH_FORWARD else None,
        unused=unused.get(name, ()),
        probabilities=model.predict,
        weight_decay=spec.l2,
    )


if __name__ == "__main__":
    serve(build, {name: name in WITH_FORWARD for name in MODELS})
