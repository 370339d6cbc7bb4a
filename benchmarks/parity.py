"""Compares the logits of our models and the peers' (`make peers`) on the same weights and ids.

    python -m benchmarks.parity [--models fm,xdeepfm] [--fuxictr FOLDER] [--fcn FOLDER] [--hstu FOLDER]
        [--output FILE]

Our weights are NaN until a peer's weights replace them, and every weight of a peer must be used: a missing part fails.
The weights have the names of the peers' servers (benchmarks/peers/*_server.py). Prints a table of the largest
differences, and the report as JSON.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import chosen_names, zoo_option
from benchmarks.harness.result_table import Cell, result_table
from benchmarks.peers.client import Peer
from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.models import FeatureMap, create

if TYPE_CHECKING:
    from ctrpipe.models.base.ctr_model import CTRModel

LIMIT = 5e-6
SIZES = (5, 9, 4, 7, 12, 6, 8, 5)  # ids of each field
DIM, HIDDEN, CIN, HEADS = 8, (16, 12), (6, 4, 5), 2
ROWS, SEED, SCALE = 500, 4, 0.5
ITEMS = 7  # maximum length of a history
BITS = 2048  # of a hash

Weights = dict[str, np.ndarray]


class Given(dict):
    """A peer's weights by name; `used` contains the names that were read."""

    def __init__(self, weights: Weights):
        super().__init__(weights)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        self.used.add(name)
        return super().__getitem__(name)

    def or_zero(self, name: str) -> np.ndarray:
        """Returns the weight, or zero if this peer has no such bias."""
        return self[name] if name in self else np.zeros(1, np.float32)


# Functions that copy a part of a peer's weights into our model --------------------------------------------------------

Part = Callable[["CTRModel", Given], None]


def _table(rows: np.ndarray) -> np.ndarray:
    """Returns our table: the padding row, which a univalent field never uses, then the peer's rows."""
    rows = rows.reshape(len(rows), -1)
    return np.concatenate([np.zeros((1, rows.shape[1]), np.float32), rows])


def embedding(model: CTRModel, given: Given) -> None:
    model.table.table.assign(_table(given["embedding"]))


def linear(model: CTRModel, given: Given) -> None:
    model.linear.table.assign(_table(given["linear"]))
    model.linear_dense.kernel.assign(np.zeros(model.linear_dense.kernel.shape))  # there are no dense features
    model.linear_dense.bias.assign(given.or_zero("bias"))


def tower(model: CTRModel, given: Given) -> None:
    _hidden(model.tower, given)


def tower_output(model: CTRModel, given: Given) -> None:
    model.tower.logits.set_weights([given["out/kernel"], given.or_zero("out/bias")])


def _hidden(layer: Any, given: Given, name: str = "dnn") -> None:
    for index, dense in enumerate(layer.hidden):
        dense.set_weights([given[f"{name}/kernel_{index}"], given[f"{name}/bias_{index}"]])


def joint_output(model: CTRModel, given: Given) -> None:
    model.logit.set_weights([given["out/kernel"], given.or_zero("out/bias")])


def bias_on_tower(model: CTRModel, given: Given) -> None:
    model.tower.logits.set_weights([given["out/kernel"], given["bias"]])


def outer_products(model: CTRModel, given: Given) -> None:
    model.products[1].kernel.assign(given["outer/kernel"])


def crosses(model: CTRModel, given: Given) -> None:
    for index, layer in enumerate(model.crosses):
        kernel, bias = given[f"cross/kernel_{index}"], given[f"cross/bias_{index}"]
        if kernel.ndim == 2:
            layer.dense.set_weights([kernel, bias])
        else:
            layer.set_weights([kernel[:, None], bias])


def cin(model: CTRModel, given: Given) -> None:
    for index, [weight] in enumerate(model.cin.weights_of_layers):
        kernel = given[f"cin/filter_{index}"].transpose(1, 2, 0)
        if model.cin.split_half and index < len(model.cin.maps) - 1:
            # The peer passes on the first half of the maps and pools the second; ours, as the authors', the reverse.
            kernel = np.roll(kernel, kernel.shape[2] // 2, axis=2)
        weight.assign(kernel)
        assert not given[f"cin/bias_{index}"].any()
    model.logit.set_weights([given["cin_out/kernel"], given.or_zero("cin_out/bias")])


def attention(model: CTRModel, given: Given) -> None:
    for index, layer in enumerate(model.attention):
        for name in ("query", "key", "value", "residual"):
            getattr(layer, name).assign(given[f"attention/{name}_{index}"])
    width = len(SIZES) * DIM
    kernel = given["out/kernel"]
    model.tower.logits.set_weights([kernel[:width], np.zeros(1)])
    if model.deep is not None:
        _hidden(model.deep, given)
        model.deep.logits.set_weights([kernel[width:], np.zeros(1)])


def convolutions(model: CTRModel, given: Given) -> None:
    for index, layer in enumerate(model.convolutions):
        layer.kernel.assign(given[f"conv/kernel_{index}"])
        layer.bias.assign(given[f"conv/bias_{index}"])
    first = given["dnn/kernel_0"]  # rows (filter, place, d); ours (place, d, filter)
    filters = model.convolutions[-1].filters
    rows = first.reshape(filters, -1, DIM, first.shape[1]).transpose(1, 2, 0, 3).reshape(first.shape)
    for index, dense in enumerate(model.tower.hidden):
        dense.set_weights([given[f"dnn/kernel_{index}"] if index else rows, given[f"dnn/bias_{index}"]])


def attentional_pooling(model: CTRModel, given: Given) -> None:
    model.pooling.hidden.set_weights([given["attention/kernel"], given["attention/bias"]])
    model.pooling.score.set_weights([given["attention/projection"]])
    model.projection.set_weights([given["out/kernel"]])


def activation_unit(model: CTRModel, given: Given) -> None:
    score = model.units[0].score
    for index, dense in enumerate(score.hidden):
        dense.set_weights([given[f"unit/kernel_{index}"], given[f"unit/bias_{index}"]])
    score.logits.set_weights([given["unit_out/kernel"], given["unit_out/bias"]])


def behaviours(model: CTRModel, given: Given) -> None:
    (layer,) = model.transformers
    layer.position_table.assign(given["positions"][::-1])  # the peer's candidate comes last
    ((attention, ffn),) = layer.stack
    parts = ("query", "key", "value")
    kernel = np.concatenate([given[f"{part}/kernel"] for part in parts], axis=1)
    attention.qkv.set_weights([kernel, np.concatenate([given[f"{part}/bias"] for part in parts])])
    attention.out.set_weights([given["projection/kernel"], given["projection/bias"]])
    ffn.widen.set_weights([given["ffn/kernel_0"], given["ffn/bias_0"]])
    ffn.narrow.set_weights([given["ffn/kernel_1"], given["ffn/bias_1"]])
    for index, part in enumerate((attention, ffn)):
        part.norm.set_weights([given[f"norm/scale_{index}"], given[f"norm/shift_{index}"]])
        part.norm.epsilon = 1e-5  # PyTorch's


def evolution(model: CTRModel, given: Given) -> None:
    (layer,) = model.evolutions
    layer.compare.kernel.assign(given["bilinear"].T)
    for name, gru in (("extraction", layer.extraction), ("evolution", layer.evolution)):
        assert not given[f"{name}/state_bias"].any()
        weights = [given[f"{name}/{part}"] for part in ("input", "state", "input_bias")]
        if name == "extraction":  # the peer's z is 1 - u, and r comes first
            weights = [
                np.concatenate([-update, reset, new], axis=-1)
                for reset, update, new in (np.split(weight, 3, axis=-1) for weight in weights)
            ]
        gru.set_weights(weights)
    first, *others = model.tower.hidden
    kernel = np.roll(given["dnn/kernel_0"], -DIM, axis=0)  # the peer's history comes first
    first.set_weights([kernel, given["dnn/bias_0"]])
    for index, dense in enumerate(others, 1):
        dense.set_weights([given[f"dnn/kernel_{index}"], given[f"dnn/bias_{index}"]])


def similar_items(model: CTRModel, given: Given) -> None:
    """Fills both tables, and the biases of items and users; without user biases in the peer, they stay 0."""
    tables = {"candidates": model.table.table, "items": model.history_table.table, "linear": model.linear.table}
    for name, table in tables.items():
        rows = np.zeros(table.shape, np.float32)
        values = given[name].reshape(len(given[name]), -1)
        rows[1 : 1 + len(values)] = values
        table.assign(rows)
    model.linear_dense.kernel.assign(np.zeros(model.linear_dense.kernel.shape))
    model.linear_dense.bias.assign(np.zeros(1))


def smoothed_attention(model: CTRModel, given: Given) -> None:
    (layer,) = model.attentions
    kernel = given["attention/kernel_0"]
    if layer.kind == "concat":
        kernel = np.roll(kernel, DIM, axis=0)  # the peer's item comes before the candidate
    layer.hidden.set_weights([kernel, given["attention/bias_0"]])
    layer.score.set_weights([given["attention/projection"]])


def search(model: CTRModel, given: Given) -> None:
    """Fills the search and the attention to the found items."""
    (layer,) = model.searches
    layer.of_candidate.kernel.assign(given["search/candidate"])
    layer.of_item.kernel.assign(given["search/item"])
    # Ours also has the mean of the found items as an input; the peer uses it in a separate loss.
    _attend(model, given, np.zeros((DIM, HIDDEN[0]), np.float32))


def search_by_hash(model: CTRModel, given: Given) -> None:
    (layer,) = model.searches
    layer.planes.assign(given["search/planes"])
    _attend(model, given)


def search_by_attention(model: CTRModel, given: Given) -> None:
    _attend(model, given)


def _attend(model: CTRModel, given: Given, *others_read: np.ndarray) -> None:
    """Fills the attention and the MLP, whose first layer contains the peer's value and output projections.

    `others_read` are the rows of the first layer for what our model reads before the attention's output.
    """
    (attention,) = model.attentions
    attention.of_candidate.kernel.assign(given["attention/query"] / np.sqrt(attention.key_dim))
    attention.of_item.kernel.assign(given["attention/key"])
    values, outputs = given["attention/value"], given["attention/output"]
    rows = given["dnn/kernel_0"]
    others, candidate, _, history = np.split(rows, [len(rows) - places * DIM for places in (3, 2, 1)])
    parts = [slice(head * attention.key_dim, (head + 1) * attention.key_dim) for head in range(attention.heads)]
    heads = [values[:, part] @ outputs[part] @ history for part in parts]
    first, *more = model.tower.hidden
    first.set_weights([np.concatenate([candidate, others, *others_read, *heads]), given["dnn/bias_0"]])
    for index, dense in enumerate(more, 1):
        dense.set_weights([given[f"dnn/kernel_{index}"], given[f"dnn/bias_{index}"]])


def gated_units(epsilon: float) -> Part:
    """Returns a function that fills HSTU's layers and gives their norms this ε.

    The peer's projections have no bias, and its norms no scale and no shift.
    """

    def fill(model: CTRModel, given: Given) -> None:
        (project,), (stack,) = model.project, model.stacks
        project.set_weights([given["project/kernel_0"], given["project/bias_0"]])
        for index, layer in enumerate(stack):
            kernel = given[f"uvqk/kernel_{index}"]
            layer.project.set_weights([kernel, np.zeros(kernel.shape[1], np.float32)])
            layer.out.set_weights([given[f"output/kernel_{index}"], given[f"output/bias_{index}"]])
            layer.places.assign(given[f"places_{index}"])
            for norm in (layer.norm, layer.norm_read):
                norm.set_weights([np.ones(len(kernel), np.float32), np.zeros(len(kernel), np.float32)])
                norm.epsilon = epsilon

    return fill


def _network(layer: Any, given: Given, name: str, bias: np.ndarray | None = None) -> None:
    """Fills the hidden layers and the output layer of the named network."""
    _hidden(layer, given, name)
    layer.logits.set_weights([given[f"{name}/kernel"], given[f"{name}/bias"] if bias is None else bias])


def task_towers(model: CTRModel, given: Given) -> None:
    for task, layer in enumerate(model.towers):
        _network(layer, given, f"tower_{task}")


def experts(model: CTRModel, given: Given) -> None:
    """Fills the experts and the gates; the first level's experts layer by layer."""
    for number, expert in enumerate(model.interactions):
        for index, dense in enumerate([*expert.tower.hidden, expert.tower.logits]):
            parts = (f"expert_0_{number}/{part}_{index}" for part in ("kernel", "bias"))
            dense.set_weights([given[part] for part in parts])
    for place, dense in enumerate(getattr(model, "experts", ())):
        level, number = divmod(place, len(model.interactions))
        dense.set_weights([given[f"expert_{level + 1}_{number}/{part}_0"] for part in ("kernel", "bias")])
    kernels = [name for name in given if name.startswith("gate_") and "/kernel_" in name]
    for name, gate in zip(sorted(kernels), model.gates, strict=True):
        gate.kernel.assign(given[name])
        assert not np.any(given.or_zero(name.replace("kernel", "bias")))


def funnel(model: CTRModel, given: Given) -> None:
    for task, interaction in enumerate(model.interactions):
        _network(interaction.tower, given, f"tower_{task}", given["bias"])


def two_networks(model: CTRModel, given: Given) -> None:
    _network(model.user_tower, given, "tower_0")
    _network(model.item_tower, given, "tower_1")
    model.bias.assign(np.zeros(1))


def _dense(layer: Any, given: Given, path: str) -> None:
    """Fills a dense layer from a linear layer that is named by its module."""
    layer.set_weights([given[f"{path}/kernel"], *([given[f"{path}/bias"]] if layer.use_bias else [])])


def _norm(layer: Any, given: Given, path: str) -> None:
    """Fills a normalisation."""
    parts = ("scale", "shift", "mean", "variance") if f"{path}/mean" in given else ("scale", "shift")
    layer.set_weights([given[f"{path}/{part}"] for part in parts])


def _modules(layer: Any, given: Given, path: str, step: int = 2) -> None:
    """Fills a tower from an MLP_Block, whose linear layers are `step` modules apart."""
    layers = [*layer.hidden, *([] if layer.logits is None else [layer.logits])]
    for index, dense in enumerate(layers):
        _dense(dense, given, f"{path}.mlp.{step * index}")


def gated_crosses(model: CTRModel, given: Given) -> None:
    for index, layer in enumerate(model.crosses):
        weights = [given[f"cross_net.{part}.{index}/kernel"] for part in ("w", "wg")]
        layer.set_weights([*weights, given[f"cross_net.b/{index}"]])
    _modules(model.tower, given, "dnn")
    if model.logit is not None:
        _dense(model.logit, given, "fc")


def bilinear_products(model: CTRModel, given: Given) -> None:
    for part, layer in zip((0, 2), (model.senet.squeeze, model.senet.excite), strict=True):
        _dense(layer, given, f"senet_layer.excitation.{part}")
    for number, layer in enumerate(model.products, 1):
        kernel = given[f"bilinear_interaction{number}/bilinear_W"]
        layer.kernel.assign(kernel[: layer.kernel.shape[0]])  # it has a matrix of the last field, which is no first one
    _modules(model.tower, given, "dnn")


def masks(model: CTRModel, given: Given) -> None:
    scale, shift = ([given[f"emb_norm.{field}/{part}"] for field in range(len(SIZES))] for part in ("scale", "shift"))
    model.norm.set_weights([np.stack(scale), np.stack(shift)])
    for index, block in enumerate(model.blocks):
        path = f"mask_net.mask_blocks.{index}"
        _dense(block.widen, given, f"{path}.mask_layer.0")
        _dense(block.mask, given, f"{path}.mask_layer.2")
        _dense(block.hidden, given, f"{path}.hidden_layer.0")
        _norm(block.norm, given, f"{path}.hidden_layer.1")
    if model.structure == "parallel":
        _modules(model.tower, given, "mask_net.dnn")
    else:
        _dense(model.logit, given, "mask_net.fc.0")


def bridged(model: CTRModel, given: Given) -> None:
    for index, layer in enumerate(model.regulations):
        layer.gates.assign(np.stack([given[f"regulation_modules.{index}/g{number}"] for number in (1, 2)]))
        kernel, bias = given[f"cross_layers.{index}.weight/kernel"], given[f"cross_layers.{index}/bias"]
        model.crosses[index].set_weights([kernel, bias])
        _modules(model.deep[index], given, f"dense_layers.{index}")
        bridge = model.bridges[index]
        if bridge.kind == "concat":
            _dense(bridge.join, given, f"bridge_modules.{index}.concat_pooling.0")
    _dense(model.logit, given, "fc")


def two_streams(model: CTRModel, given: Given) -> None:
    for number, (gate, stream) in enumerate(zip(model.gates, model.streams, strict=True), 1):
        _modules(gate, given, f"fs_module.fs{number}_gate")
        model.vectors[number - 1].assign(given[f"fs_module/fs{number}_ctx_bias"][0])
        _modules(stream, given, f"mlp{number}")
    fusion, kernel = model.fusion, given["fusion_module/w_xy"]
    bias = given["fusion_module.w_x/bias"] + given["fusion_module.w_y/bias"]
    fusion.first.set_weights([given["fusion_module.w_x/kernel"], bias])
    fusion.second.set_weights([given["fusion_module.w_y/kernel"]])
    fusion.kernel.assign(kernel.reshape(fusion.kernel.shape))


def factorized_blocks(model: CTRModel, given: Given) -> None:
    model.gating.kernel.assign(given["feature_gating.linear/kernel"])
    model.gating.bias.assign(given["feature_gating.linear/bias"])
    for number, (block, logit) in enumerate(zip(model.blocks, model.logits, strict=True), 1):
        for index, (layer, norm) in enumerate(zip(block.hidden, block.norms, strict=True)):
            _dense(layer.dense, given, f"block{number}.layer.{index}.linear")
            _norm(norm, given, f"block{number}.norm.{index}")
        _dense(logit, given, f"fc{number}")


def wukong_layers(model: CTRModel, given: Given) -> None:
    for index, layer in enumerate(model.stack):
        path = f"wukong_stack.{index}"
        layer.project.assign(given[f"{path}.fmb/proj_Y"])
        _norm(layer.norm_products, given, f"{path}.fmb.layer_norm")
        _modules(layer.mlp, given, f"{path}.fmb.mlp")
        layer.compress.assign(given[f"{path}.lcb.linear/kernel"])
        _norm(layer.norm, given, f"{path}.layer_norm")
        if layer.residual is not None:
            layer.residual.assign(given[f"{path}.residual_proj/kernel"])
            _ = given[f"{path}.residual_proj/bias"]  # the layer normalisation takes it away again
    _normalised(model.tower, given, "fc")


def _normalised(layer: Any, given: Given, path: str) -> None:
    """Fills a tower with batch normalisation, which takes the place of the peer's biases before it."""
    for index, (dense, norm) in enumerate(zip(layer.hidden, layer.norms, strict=True)):
        dense.set_weights([given[f"{path}.mlp.{3 * index}/kernel"]])
        _norm(norm, given, f"{path}.mlp.{3 * index + 1}")
        norm.moving_mean.assign(norm.moving_mean - given[f"{path}.mlp.{3 * index}/bias"])
    _dense(layer.logits, given, f"{path}.mlp.{3 * len(layer.hidden)}")


def normalised_tower(model: CTRModel, given: Given) -> None:
    _normalised(model.tower, given, "mlp")


def quadratic_layers(model: CTRModel, given: Given) -> None:
    for index, layer in enumerate(model.quadratic):
        _dense(layer.dense, given, f"qnn.layer.{index}.linear.0")
        _norm(layer.norms[0], given, f"qnn.layer.{index}.linear.1")
    _dense(model.logit, given, "qnn.fc")


def gated_layers(model: CTRModel, given: Given) -> None:
    """Fills the gates and the layers. The peer's second table has the rows of the first."""
    starts = np.cumsum([0, *SIZES])
    rows = np.concatenate([given["embedding"][starts[place] : starts[place + 1]] for place in model.priors])
    np.testing.assert_array_equal(given["gate_embed_layer/table"], rows)
    for index, (layer, gate) in enumerate(zip(model.layers_of[0], model.gates_of[0], strict=True)):
        _dense(layer.hidden[0], given, f"ppn.mlp_layers.{index}.0")
        _dense(gate.hidden, given, f"ppn.gate_layers.{index}.gate.0")
        _dense(gate.gate, given, f"ppn.gate_layers.{index}.gate.2")
    _dense(model.logits[0], given, f"ppn.mlp_layers.{len(model.layers_of[0])}")


def masked_crosses(model: CTRModel, given: Given) -> None:
    networks = (("ECN", model.exponential, model.exponential_logit), ("LCN", model.linear_crosses, model.linear_logit))
    for (path, layers, logit), output in zip(networks, ("dfc", "sfc"), strict=True):
        for index, layer in enumerate(layers):
            layer.kernel.assign(given[f"{path}.w.{index}/kernel"])
            layer.bias.assign(given[f"{path}.b/{index}"])
            _norm(layer.norm, given, f"{path}.layer_norm.{index}")
        _dense(logit, given, f"{path}.{output}")


# The pairs ------------------------------------------------------------------------------------------------------------


def zero(*prefixes: str) -> Callable[[Weights], None]:
    """Returns a function that sets the weights with these prefixes to zero."""

    def change(weights: Weights) -> None:
        for name, value in weights.items():
            if name.startswith(prefixes):
                value[:] = 0

    return change


def positive_variances(weights: Weights) -> None:
    """Makes the variances of batch normalisations positive."""
    for name, value in weights.items():
        if name.endswith("/variance"):
            np.abs(value, out=value)
            value += 0.2


def same_table(*places: int) -> Callable[[Weights], None]:
    """Returns a function that gives the peer's second table the rows that its first table has of some fields."""

    def change(weights: Weights) -> None:
        starts = np.cumsum([0, *SIZES])
        rows = [weights["embedding"][starts[place] : starts[place + 1]] for place in places]
        weights["gate_embed_layer/table"] = np.concatenate(rows)

    return change


def positive(weights: Weights) -> None:
    """Makes every score of a search positive, because the peer gives padding a score of 0."""
    for name in ("embedding", "search/candidate", "search/item"):
        np.abs(weights[name], out=weights[name])


def no_padding(weights: Weights) -> None:
    """Sets the embedding of a history's padding to zero, which the peer does at initialisation."""
    weights["items" if "items" in weights else "embedding"][0] = 0


def descending(weights: Weights) -> None:
    """Changes weights so that a convolution's outputs decrease from field to field in every map.

    Then k-max pooling sorted by size and k-max pooling in field order give the same result.
    """
    rows = weights["embedding"] * 0.05
    weights["embedding"] = rows + np.repeat(0.8 - 0.2 * np.arange(len(SIZES)), SIZES)[:, None].astype(np.float32)
    for name, kernel in weights.items():
        if name.startswith("conv/kernel"):
            kernel *= 0.05
            kernel[(len(kernel) - 1) // 2] += 1 / kernel.shape[1]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and its counterpart in a peer: the settings of both, and the functions that copy the peer's weights."""

    peer: str
    model: str
    parts: tuple[Part, ...]
    hyperparameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # the peer's options
    change: Callable[[Weights], None] = lambda weights: None
    variant: str = ""
    note: str = ""  # the deliberate differences
    history: int = 0  # maximum length of a history of the first field's ids
    least: int = 0  # minimum length of a history, if the peer does not support empty ones
    distinct: bool = False  # whether a history has no item twice
    item: int = 0  # number of leading fields that belong to the item, if the peer needs it
    tasks: int = 1
    sizes: tuple[int, ...] = SIZES
    zoo: bool = False  # whether the peer's class is from FuxiCTR's model zoo, which its package lacks
    checkout: str = "fuxictr"  # the option that names the repository with the peer's class
    peer_model: str = ""  # the peer's name of the model, if it is another


DEEP = {"hidden_units": HIDDEN}
ZOO: dict[str, Any] = {"history": ITEMS, "zoo": True}
# A field with enough ids for a history without repetitions.
DISTINCT: dict[str, Any] = {**ZOO, "sizes": (12, *SIZES[1:]), "distinct": True}
# An item and a user; each row has its own history.
USERS: dict[str, Any] = {"history": ITEMS, "sizes": (30, ROWS), "change": no_padding}
TASKS: dict[str, Any] = {"tasks": 2}
EXPERTS = {"hidden_units": HIDDEN, "expert_units": 10}
DEEP_EXPERTS = EXPERTS | {"interaction": {"name": "mlp", "hidden_units": [12]}}
SHALLOW_EXPERTS = EXPERTS | {"interaction": {"name": "mlp", "hidden_units": []}}
GATE_BIAS = "Its gates have a bias, the paper's none: zero here."
OWN_ITEM = "It does not leave the candidate out of its own history: compared where it is not in it."
CROSS = DEEP | {"layers": 3}
MAPS = {"maps": CIN}
LINEAR = {"use_linear": True}
ATTENTION = {"layers": 2, "heads": HEADS, "attention_dim": DIM, "use_linear": True}
CIN_BIAS = "Its CIN adds a bias to every map, the paper's none: zero here."
EXTRA_LINEAR = "It adds a linear part, the paper none: ours with use_linear."
HALVES = "It hands on the first half of the maps and pools the second, the authors' code the reverse: halves swapped."
BY_SIZE = "Its k-max pooling sorts by size, the paper keeps the fields' order: compared where both are the same."

LENGTHS = "They divide by the maximum length, ours by the items read; the norm cancels both but for its ε, tiny here."
LAST_FIELD = "Its last field has a matrix too, which no pair uses."
NO_RESIDUAL = "Its cross layers do not add their input, the paper's do: ours with residual: false."
OF_ZOO: dict[str, Any] = {"zoo": True}


def settings(**arguments: Any) -> dict[str, Any]:
    """Returns the peer's options for a class of the zoo with these arguments."""
    return {"settings": arguments}


CASES = (
    Case("fuxictr", "lr", (linear,)),
    Case("fuxictr", "fm", (embedding, linear)),
    Case("fuxictr", "mlp", (embedding, tower, tower_output), DEEP),
    Case("fuxictr", "wide_deep", (embedding, linear, tower, tower_output), DEEP),
    Case("fuxictr", "deepfm", (embedding, linear, tower, tower_output), DEEP),
    Case("fuxictr", "pnn", (embedding, tower, tower_output), DEEP),
    Case("fuxictr", "cin", (embedding, cin), MAPS, change=zero("cin/bias"), note=CIN_BIAS),
    Case(
        "fuxictr",
        "xdeepfm",
        (embedding, linear, cin, tower, tower_output),
        DEEP | MAPS,
        change=zero("cin/bias"),
        note=CIN_BIAS,
    ),
    Case("fuxictr", "dcn", (embedding, crosses, tower, joint_output), CROSS),
    Case("fuxictr", "dcn_v2", (embedding, crosses, tower, joint_output), CROSS),
    Case("deepctr_torch", "wide_deep", (embedding, linear, tower, tower_output), DEEP),
    Case("deepctr_torch", "deepfm", (embedding, linear, tower, tower_output), DEEP),
    Case("deepctr_torch", "pnn", (embedding, tower, bias_on_tower), DEEP, variant="inner"),
    Case(
        "deepctr_torch",
        "pnn",
        (embedding, tower, bias_on_tower, outer_products),
        DEEP | {"products": ("inner", "kernel")},
        {"outer": True},
        variant="inner, outer",
        note="Its outer product is the kernel product of the 2018 paper: ours of that name.",
    ),
    Case("deepctr_torch", "dcn", (embedding, linear, crosses, tower, joint_output), CROSS | LINEAR, note=EXTRA_LINEAR),
    Case(
        "deepctr_torch", "dcn_v2", (embedding, linear, crosses, tower, joint_output), CROSS | LINEAR, note=EXTRA_LINEAR
    ),
    Case(
        "deepctr_torch",
        "xdeepfm",
        (embedding, linear, cin, tower, tower_output),
        DEEP | MAPS | {"cin_activation": "relu"},
        {"cin_activation": "relu", "split_half": False},
        zero("cin/bias"),
        note=CIN_BIAS,
    ),
    Case(
        "deepctr_torch",
        "xdeepfm",
        (embedding, linear, cin, tower, tower_output),
        DEEP | MAPS | {"split_half": True},
        {"cin_activation": "linear", "split_half": True},
        zero("cin/bias"),
        variant="split half",
        note=f"{CIN_BIAS} {HALVES}",
    ),
    Case("deepctr_torch", "autoint", (embedding, linear, attention), ATTENTION, {"hidden": ()}, note=EXTRA_LINEAR),
    Case(
        "deepctr_torch",
        "autoint",
        (embedding, linear, attention),
        ATTENTION | {"deep_units": HIDDEN},
        variant="with MLP",
        note=EXTRA_LINEAR,
    ),
    Case(
        "deepctr_torch",
        "ccpm",
        (embedding, linear, convolutions, tower_output),
        DEEP | LINEAR | {"filters": (4, 3), "widths": (6, 5)},
        {"conv_width": (6, 5), "conv_filters": (4, 3)},
        descending,
        note=f"{EXTRA_LINEAR} {BY_SIZE}",
    ),
    Case("deepctr_torch", "afm", (embedding, linear, attentional_pooling), {"attention_units": 6}, {"attention": 6}),
    Case("recbole", "lr", (linear,)),
    Case("recbole", "fm", (embedding, linear)),
    Case("recbole", "ffm", (embedding, linear)),
    Case(
        "recbole",
        "fnn",
        (embedding, tower, tower_output),
        DEEP | {"use_linear": False},
        note="It reads the vectors without the weights w of the FM: ours without use_linear.",
    ),
    Case(
        "fuxictr",
        "din",
        (embedding, activation_unit, tower, tower_output),
        DEEP | {"attention_hidden_units": (6, 3)},
        {"unit": (6, 3)},
        note="Its network over the items has Dice by default: the sigmoid of the authors' code on both sides.",
        **ZOO,
    ),
    Case(
        "fuxictr",
        "bst",
        (embedding, behaviours, tower, tower_output),
        DEEP | {"heads": HEADS, "ffn_dim": 2 * DIM, "position_dim": DIM, "output": "candidate", "activation": "relu"},
        note="Its output of all places keeps the padding's, ours has zeros: the candidate's alone. Its norms' epsilon.",
        **ZOO,
    ),
    Case(
        "fuxictr",
        "dien",
        (embedding, evolution, tower_output),
        DEEP | {"units": DIM},
        change=zero("extraction/state_bias", "evolution/state_bias"),
        note="Its GRUs have a second bias, the paper's one: zero here.",
        **ZOO,
    ),
    Case(
        "fuxictr",
        "sim",
        (embedding, search, tower_output),
        DEEP | {"found": 3, "search_units": 6, "key_dim": 3, "heads": HEADS},
        {"attention": 6, "found": 3},
        positive,
        note="Its search takes padding for an item of score 0, and an empty history for a full one: compared where all "
        "scores are positive and no history is empty. Its search learns from a loss of its own: without ours' mean.",
        **ZOO,
        least=1,
    ),
    Case(
        "fuxictr",
        "sim",
        (embedding, search_by_attention, tower_output),
        DEEP | {"search": "attention", "found": 3, "key_dim": 3, "heads": HEADS},
        {"attention": 6, "found": 3},
        no_padding,
        variant="TWIN",
        peer_model="twin",
        note="Of items with equal scores it keeps as many as are asked for, ours all: compared where no item is twice.",
        **DISTINCT,
    ),
    Case(
        "fuxictr",
        "sim",
        (embedding, search_by_hash, tower_output),
        DEEP | {"search": "hash", "found": 3, "search_units": BITS, "key_dim": 3, "heads": HEADS},
        {"attention": 6, "found": 3} | settings(hash_bits=BITS),
        no_padding,
        variant="ETA",
        peer_model="eta",
        note="Items that share as many bits have no order: hashes of many bits, which differ.",
        **DISTINCT,
    ),
    *(
        Case(
            "fuxictr",
            "hstu",
            (embedding, gated_units(epsilon), tower, tower_output),
            DEEP | {"width": 12, "layers": layers, "heads": HEADS},
            settings(width=12, layers=layers, epsilon=epsilon),
            no_padding,
            variant=variant,
            checkout="hstu",
            note=f"Its authors' layers: projections without a bias, norms without a scale, no bias of time. {note}",
            least=least,
            **ZOO,
        )
        for variant, layers, least, epsilon, note in (
            ("full histories", 1, ITEMS, 1e-6, "One layer."),
            ("all lengths", 2, 0, 1e-12, LENGTHS),
        )
    ),
    Case(
        "fuxictr",
        "two_tower",
        (embedding, two_networks),
        DEEP | {"vector_dim": HIDDEN[-1], "similarity": "dot", "temperature": 1.0},
        change=no_padding,
        item=3,
        note="Its DSSM has the dot product of the vectors, without a temperature: ours with the same.",
        **ZOO,
    ),
    Case(
        "fuxictr",
        "mmoe",
        (embedding, experts, task_towers),
        DEEP_EXPERTS | {"experts": 3},
        {"experts": 3, "expert": (12, 10)},
        zero("gate_0/bias"),
        zoo=True,
        note=GATE_BIAS,
        **TASKS,
    ),
    Case(
        "fuxictr",
        "ple",
        (embedding, experts, task_towers),
        DEEP_EXPERTS | {"levels": 1},
        {"experts": 2, "expert": (12, 10)},
        zero("gate_0/bias"),
        variant="one level",
        zoo=True,
        note=f"{GATE_BIAS} Of several levels, its shared gate sees the shared experts alone, the paper's all experts.",
        **TASKS,
    ),
    Case(
        "deepctr_torch",
        "mmoe",
        (embedding, experts, task_towers),
        DEEP_EXPERTS | {"experts": 3},
        {"experts": 3, "expert": (12, 10)},
        **TASKS,
    ),
    Case(
        "deepctr_torch",
        "ple",
        (embedding, experts, task_towers),
        SHALLOW_EXPERTS | {"levels": 3},
        {"experts": 2, "expert": (10,), "levels": 3},
        variant="three levels",
        **TASKS,
    ),
    Case(
        "deepctr_torch",
        "esmm",
        (embedding, funnel),
        {"interaction": {"name": "mlp", "hidden_units": list(HIDDEN)}},
        note="Its output is a probability; its logit is compared.",
        **TASKS,
    ),
    Case(
        "recbole",
        "fism",
        (similar_items,),
        note=f"{OWN_ITEM} Its forward pass ends in a sigmoid, and its loss takes another one; the first is undone.",
        **USERS,
    ),
    Case(
        "recbole",
        "nais",
        (similar_items, smoothed_attention),
        {"attention_units": 6},
        {"attention": 6},
        variant="prod",
        note=OWN_ITEM,
        **USERS,
    ),
    Case(
        "recbole",
        "nais",
        (similar_items, smoothed_attention),
        {"attention": "concat", "attention_units": 6},
        {"attention": 6, "concat": True},
        variant="concat",
        note=OWN_ITEM,
        **USERS,
    ),
    Case(
        "fuxictr",
        "gdcn",
        (embedding, gated_crosses),
        DEEP | {"layers": 2},
        settings(dnn_hidden_units=[*HIDDEN], num_cross_layers=2),
        **OF_ZOO,
    ),
    Case(
        "fuxictr",
        "gdcn",
        (embedding, gated_crosses),
        DEEP | {"layers": 2, "structure": "stacked"},
        settings(dnn_hidden_units=[*HIDDEN], num_cross_layers=2),
        variant="stacked",
        peer_model="gdcn_stacked",
        **OF_ZOO,
    ),
    *(
        Case(
            "fuxictr",
            "fibinet",
            (embedding, linear, bilinear_products),
            DEEP | {"bilinear": kind},
            settings(hidden_units=[*HIDDEN], bilinear_type=f"field_{kind}"),
            variant=kind,
            note=LAST_FIELD if kind == "each" else "",
            **OF_ZOO,
        )
        for kind in ("all", "each", "interaction")
    ),
    Case(
        "fuxictr",
        "mask_net",
        (embedding, masks),
        DEEP,
        settings(dnn_hidden_units=[*HIDDEN]),
        variant="serial",
        **OF_ZOO,
    ),
    Case(
        "fuxictr",
        "mask_net",
        (embedding, masks),
        DEEP | {"structure": "parallel", "blocks": 2, "block_units": 10},
        settings(
            dnn_hidden_units=[*HIDDEN], model_type="ParallelMaskNet", parallel_num_blocks=2, parallel_block_dim=10
        ),
        variant="parallel",
        **OF_ZOO,
    ),
    *(
        Case(
            "fuxictr",
            "edcn",
            (embedding, bridged),
            {"layers": 2, "bridge": ours, "residual": False},
            settings(num_cross_layers=2, bridge_type=theirs),
            variant=ours,
            note=NO_RESIDUAL,
            **OF_ZOO,
        )
        for ours, theirs in (
            ("product", "hadamard_product"),
            ("sum", "pointwise_addition"),
            ("concat", "concatenation"),
        )
    ),
    Case(
        "fuxictr",
        "final_mlp",
        (embedding, two_streams),
        {"hidden_units": HIDDEN, "second_units": (10, 8), "gate_units": (7,), "heads": 2},
        settings(mlp1_hidden_units=[*HIDDEN], mlp2_hidden_units=[10, 8], fs_hidden_units=[7], num_heads=2),
        **OF_ZOO,
    ),
    *(
        Case(
            "fuxictr",
            "final_net",
            (embedding, factorized_blocks),
            {"hidden_units": HIDDEN, "second_units": (10,), "gating": True, "residual": kind},
            settings(
                block1_hidden_units=[*HIDDEN], block2_hidden_units=[10], use_feature_gating=True, residual_type=kind
            ),
            positive_variances,
            variant=kind,
            **OF_ZOO,
        )
        for kind in ("concat", "sum")
    ),
    Case(
        "fuxictr",
        "wukong",
        (embedding, wukong_layers),
        {
            "layers": 2,
            "products": 5,
            "compressed": 4,
            "rank": 3,
            "block_units": (9,),
            "hidden_units": HIDDEN,
            "normalization": "batch",
        },
        settings(
            num_wukong_layers=2,
            fmb_features=5,
            lcb_features=4,
            fmp_rank_k=3,
            fmb_mlp_units=[9],
            mlp_hidden_units=[*HIDDEN],
        ),
        positive_variances,
        **OF_ZOO,
    ),
    Case(
        "fuxictr",
        "qnn",
        (embedding, quadratic_layers),
        {"layers": 2, "heads": HEADS, "products": 3, "dropout": 0.0, "normalization": "batch"},
        settings(num_layers=2, num_heads=HEADS, num_row=3, batch_norm=True),
        positive_variances,
        **OF_ZOO,
    ),
    Case(
        "fuxictr",
        "ppnet",
        (embedding, gated_layers),
        DEEP | {"priors": ("f1", "f4"), "gate_units": 6},
        settings(hidden_units=[*HIDDEN], gate_priors=["f1", "f4"], gate_emb_dim=DIM, gate_hidden_dim=6),
        same_table(1, 4),
        note="Its gates have a table of their own, ours the model's: the same rows.",
        **OF_ZOO,
    ),
    Case(
        "fuxictr",
        "fcn",
        (embedding, masked_crosses),
        {"exponential_layers": 2, "linear_layers": 3, "heads": HEADS},
        settings(num_deep_cross_layers=2, num_shallow_cross_layers=3, num_heads=HEADS, embedding_dim=DIM // HEADS),
        zoo=True,
        checkout="fcn",
        note="The class of its authors' repository, on FuxiCTR's base class.",
    ),
)


def our_model(case: Case) -> CTRModel:
    fields: list[tuple[Any, ...]] = [
        (f"f{index}", "categorical", size - 2, 1, "item" if index < case.item else "feature")
        for index, size in enumerate(case.sizes)
    ]
    if case.history:
        fields.append(("history", "sequence", case.sizes[0] - 2, case.history, "feature", "mean", "f0"))
    width = {} if case.model == "lr" else {"embedding_dim": DIM}
    tasks = tuple(f"task_{index}" for index in range(case.tasks))
    model = create(case.model, FeatureMap.from_sizes(fields, tasks=tasks), **width, **case.hyperparameters)
    model({"ids": np.ones((1, len(case.sizes) + case.history), np.int32)})
    for weight in model.trainable_variables:
        weight.assign(np.full(weight.shape, np.nan))
    return model


def draw(shapes: dict[str, tuple[int, ...]]) -> Weights:
    """Returns random weights with a scale that roughly keeps a layer's output at the size of its input."""
    random, weights = np.random.default_rng(SEED), {}
    for name, shape in sorted(shapes.items()):
        scale = SCALE
        if "kernel" in name or "filter" in name:
            fan_in = math.prod(shape[1:] if "filter" in name else shape[:-1] or shape)
            scale = 1.5 * fan_in**-0.5
        weights[name] = random.normal(scale=scale, size=shape).astype(np.float32)
    return weights


def rows_of(case: Case) -> np.ndarray:
    """Returns ids (ROWS, fields, then history), counted from 0 within the field; 0 is a history's padding.

    No history contains the row's candidate. All lengths occur from the smallest that the case has. Each user has one
    row.
    """
    random = np.random.default_rng(SEED + 1)
    ids = random.integers(0, case.sizes, (ROWS, len(case.sizes)))
    if not case.history:
        return ids
    candidates = random.integers(1, case.sizes[0], (ROWS, 1))
    others = random.integers(1, case.sizes[0] - 1, (ROWS, case.history))
    if case.distinct:
        others = random.permuted(np.tile(np.arange(1, case.sizes[0] - 1), (ROWS, 1)), axis=1)[:, : case.history]
    items = 1 + (candidates - 1 + others) % (case.sizes[0] - 1)
    items[np.arange(case.history) >= random.integers(case.least, case.history + 1, (ROWS, 1))] = 0
    ids[:, :1] = candidates
    if case.sizes[-1] == ROWS:
        ids[:, -1] = np.arange(ROWS)
    return np.concatenate([ids, items], axis=1)


def packed(case: Case, model: CTRModel, ids: np.ndarray) -> np.ndarray:
    """Returns the rows' ids as packed ids of our model."""
    offsets = [field.offset for field in model.feature_map.fields]
    fields, items = np.split(ids, [len(case.sizes)], axis=1)
    return np.concatenate([fields + offsets[: len(case.sizes)], np.where(items, items + offsets[0], 0)], axis=1)


def compare(case: Case, peer: Peer, zoo: str = "") -> dict[str, Any]:
    """Returns the largest difference of the logits, and the range of the peer's logits."""
    own = case.options | ({"history": case.history} if case.history else {}) | ({"zoo": zoo} if case.zoo else {})
    own |= {name: getattr(case, name) for name in ("item", "tasks")}
    options = {"hidden": HIDDEN, "cin": CIN, "heads": HEADS, "layers": 2, "cross": 3} | own
    name = case.peer_model or case.model
    shapes = peer.shapes(name, sizes=case.sizes, dim=DIM, **options)
    weights = draw(shapes)
    case.change(weights)
    ids = rows_of(case)
    theirs = peer.forward(name, weights, ids, list(case.sizes), heads=HEADS, **own)
    model, given = our_model(case), Given(weights)
    for part in case.parts:
        part(model, given)
    unused = sorted(set(weights) - given.used)
    if unused:
        raise InputError(f"{case.peer} {case.model}: weights without a place in our model: {', '.join(unused)}")
    ours = np.asarray(model({"ids": packed(case, model, ids).astype(np.int32)})).reshape(-1)
    return {
        "peer": case.peer,
        "model": case.model,
        "variant": case.variant,
        "difference": float(np.abs(ours - theirs).max()),  # NaN if a weight of ours was not set
        "logits": [float(theirs.min()), float(theirs.max())],
        "note": case.note,
    }


def chosen_cases(text: str | None) -> list[Case]:
    """Returns the cases of the models in --models. Raises InputError if no peer has a model."""
    known = sorted({case.model for case in CASES})
    names = chosen_names("--models", text, known) if text else known
    return [case for case in CASES if case.model in names]


def agrees(result: dict[str, Any]) -> bool:
    return result["difference"] <= LIMIT


def disagreeing(report: Mapping[str, Any]) -> list[str]:
    """Returns a line for each model whose logits differ by more than the limit."""
    return [
        f"{one['peer']} {one['model']}: the logits differ by {one['difference']:.1e}, above {LIMIT:.0e}"
        for one in report["pairs"]
        if not agrees(one)
    ]


def table(report: Mapping[str, Any]) -> Table:
    columns: dict[str, Cell] = {
        "peer": "{peer}",
        "model": "{model}",
        "variant": "{variant}",
        "difference": lambda one: f"{one['difference']:.1e}{'' if agrees(one) else ' !'}",
        "logits": "{logits[0]:.2f} .. {logits[1]:.2f}",
        "deliberate differences": "{note}",
    }
    title = f"Largest difference of the logits, the same weights and {ROWS} rows of ids on both sides"
    return result_table(title, columns, report["pairs"])


@Benchmark("benchmarks.parity", table, disagreeing)
@click.option("--models", help="Models to compare, separated by commas. Default: all that a peer has.")
@zoo_option
@click.option(
    "--fcn",
    type=click.Path(path_type=pathlib.Path, exists=True, file_okay=False),
    help="A checkout of the repository of FCN's authors.",
)
@click.option(
    "--hstu",
    type=click.Path(path_type=pathlib.Path, exists=True, file_okay=False),
    help="A checkout of the repository of HSTU's authors.",
)
def main(
    report: Report,
    models: str | None,
    fuxictr: pathlib.Path | None,
    fcn: pathlib.Path | None,
    hstu: pathlib.Path | None,
) -> None:
    """Compare our logits with the peers' (`make peers`) on the same weights and ids.

    Prints a table, writes JSON, and prints the JSON on the last line. Exits with 1 if a difference is above 5e-6.
    """
    cases = chosen_cases(models)
    report |= {"limit": LIMIT, "pairs": []}
    checkouts = {"fuxictr": fuxictr, "fcn": fcn, "hstu": hstu}
    for option, folder in checkouts.items():
        missing = [case for case in cases if case.zoo and case.checkout == option and not folder]
        if missing:
            left = ", ".join(dict.fromkeys(case.model for case in missing))
            announce(f"Without --{option}, whose repository has them, these are left out: {left}")
        cases = [case for case in cases if case not in missing]
    zoos = {option: str(folder.resolve()) if folder else "" for option, folder in checkouts.items()}
    load_tensorflow()
    for name in dict.fromkeys(case.peer for case in cases):
        announce(f"{name} ...")
        with Peer(name) as peer:
            report["pairs"] += [compare(case, peer, zoos[case.checkout]) for case in cases if case.peer == name]
        report.write()


if __name__ == "__main__":
    main()
