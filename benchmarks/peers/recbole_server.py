"""Serves RecBole's own model classes, configuration and interactions by the line protocol of `peer_server`.

Only its dataset is replaced, by an object with the fields' names and sizes. Names and shapes of the weights for
`forward` (V ids in all, F fields, d the embedding's width, H the last hidden size):

    lr          linear [V], bias [1]
    fm          embedding [V, d], linear, bias
    ffm         embedding [V, F, d], row v's vector against each field; linear, bias
    fnn         embedding [V, d], dnn/kernel_i [in, out], dnn/bias_i [out], out/kernel [H, 1], out/bias [1]; tanh

The other models support training only, for comparisons of speed.
"""

from typing import Any

import torch
from peer_server import Built, Spec, Weight, linears, output, same, serve
from recbole.config import Config
from recbole.data.interaction import Interaction
from recbole.model import context_aware_recommender as zoo
from recbole.utils import FeatureType

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
WITH_FORWARD = ("lr", "fm", "ffm", "fnn")
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
    """Returns the peer's defaults with the sizes of `spec`, and its dropout; the optimizer decays weights."""
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
    """Returns the tables (V, d), one for each field that a row is multiplied with, as one weight (V, F, d)."""
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


def build(name: str, spec: Spec, logits: bool) -> Built:
    if logits and name not in WITH_FORWARD:
        raise ValueError(f"`forward` is offered for {WITH_FORWARD}. Received: {name!r}")
    settings = config(name, spec)
    model = MODELS[name](settings, Dataset(spec.sizes)).to(settings["device"])

    def inputs(ids: torch.Tensor, labels: torch.Tensor) -> Interaction:
        columns = {f"f{index}": column.contiguous() for index, column in enumerate(ids.unbind(1))}
        return Interaction(columns | {LABEL: labels})

    unused = {"fnn": ("first_order_linear",), "ffm": ("token_embedding_table",), "lr": ("token_embedding_table",)}
    return Built(
        module=model,
        inputs=inputs,
        # Not `calculate_loss`: it computes the norms of its regularisation even at weight zero.
        loss=lambda batch: model.loss(model(batch), batch[LABEL]),
        logits=model,
        weights=weights_of(name, model) if name in WITH_FORWARD else None,
        unused=unused.get(name, ()),
        probabilities=model.predict,
        weight_decay=spec.l2,
    )


if __name__ == "__main__":
    serve(build, {name: name in WITH_FORWARD for name in MODELS})
