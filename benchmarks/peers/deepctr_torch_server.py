"""Serves DeepCTR-Torch's own model classes by the line protocol of `peer_server`.

Names and shapes of the weights for `forward`, with V total ids, F fields, embedding width d, last hidden size H, CIN
sizes C_k, n = F*d, and P = F*(F-1)/2 pairs in the order (0,1), (0,2), ... Every model has `bias` [1], added to its
logit, and every model except pnn has `linear` [V]:

    wide_deep   embedding [V, d], dnn/kernel_i [in, out], dnn/bias_i [out], out/kernel [H, 1]
    deepfm      as wide_deep
    pnn         as wide_deep without linear; dnn/kernel_0 [n + P (inner) + P (outer), H_0] in this order; with
                outer=True also outer/kernel [P, d, d]: p_i @ kernel @ p_j for the pair (i, j). Options: inner, outer.
    dcn         as wide_deep, plus cross/kernel_l [n], cross/bias_l [n]; out/kernel [n + H, 1]: the cross network, then
                the DNN
    dcn_v2      as dcn with cross/kernel_l [n, n]: x_(l+1) = x_0 * (x_l @ kernel + bias) + x_l
    xdeepfm     as wide_deep, plus cin/filter_k [C_k, maps passed on by layer k-1 (F before the first), F],
                cin/bias_k [C_k], cin_out/kernel [maps pooled, 1]. Options: split_half (the first half of a layer's maps
                is passed on, the second is pooled; the last layer pools all), cin_activation.
    autoint     as wide_deep, plus attention/query_l, attention/key_l, attention/value_l, attention/residual_l [d, d],
                x @ W; head h has the columns h*d/heads ...; out/kernel [n + H, 1]: the attention, then the DNN.
                Without dnn/*: the attention alone. Option: heads.
    ccpm        as wide_deep, plus conv/kernel_i [width, in, out], conv/bias_i [out]; dnn/kernel_0
                [filters * 3 * d, H_0] in the order (filter, rank, d)
    afm         embedding, linear, attention/kernel [d, A], attention/bias [A], attention/projection [A, 1],
                out/kernel [d, 1]

Models of several `tasks` (see peer_server.Spec) have no `bias` and `linear`, except as listed; the logits are ordered
row by row:

    mmoe        embedding; expert_0_i/kernel_j, expert_0_i/bias_j: the layers of each expert; gate_0/kernel_k
                [n, experts]; tower_k/kernel_j, tower_k/bias_j, tower_k/kernel [H, 1], tower_k/bias [1] of the
                task k. Options: experts, expert.
    ple         as mmoe, with expert_l_i and gate_l of the level l: the experts of each task in turn, then the shared
                experts, as many as of one task; the last gate, of the shared experts, covers all experts. Option:
                levels.
    esmm        embedding; tower_0 of the click and tower_1 of the conversion, as in mmoe without tower_k/bias; bias [1]
                shared by both
"""

from typing import Any

import torch
from deepctr_torch.inputs import SparseFeat
from deepctr_torch.models import AFM, CCPM, DCN, ESMM, MMOE, PLE, PNN, WDL, AutoInt, DeepFM, xDeepFM
from peer_server import Built, Spec, Weight, linears, output, same, serve, stacked, transposed
from torch.nn import functional

MODELS = ("wide_deep", "deepfm", "pnn", "dcn", "dcn_v2", "xdeepfm", "autoint", "ccpm", "afm")


def columns(spec: Spec) -> list[SparseFeat]:
    return [SparseFeat(f"f{index}", size, embedding_dim=spec.dim) for index, size in enumerate(spec.sizes)]


def model_of(name: str, spec: Spec, common: dict[str, Any]) -> torch.nn.Module:
    """Returns the peer's class with the sizes and the regularisation of `spec`, and its defaults otherwise."""
    if spec.tasks > 1:
        return of_tasks(name, spec, common)
    both = {"linear_feature_columns": columns(spec), "dnn_feature_columns": columns(spec), "l2_reg_linear": spec.l2}
    deep = common | {"dnn_hidden_units": spec.hidden, "dnn_dropout": spec.dropout, "l2_reg_dnn": spec.network_l2}
    cross = {"cross_num": spec.cross, "l2_reg_cross": spec.network_l2}
    if name == "wide_deep":
        return WDL(**both, **deep)
    if name == "deepfm":
        return DeepFM(**both, **deep)
    if name == "pnn":
        return PNN(columns(spec), use_inner=spec.inner, use_outter=spec.outer, **deep)
    if name in ("dcn", "dcn_v2"):
        return DCN(**both, **cross, cross_parameterization="vector" if name == "dcn" else "matrix", **deep)
    if name == "xdeepfm":
        cin = {"cin_layer_size": spec.cin, "cin_split_half": spec.split_half, "cin_activation": spec.cin_activation}
        cin["l2_reg_cin"] = spec.network_l2
        return xDeepFM(**both, **cin, **deep)
    if name == "autoint":
        heads = {"att_layer_num": spec.layers, "att_head_num": spec.heads}
        return AutoInt(columns(spec), columns(spec), **heads, **deep)
    if name == "ccpm":
        return CCPM(**both, conv_kernel_width=spec.conv_width, conv_filters=spec.conv_filters, **deep)
    return AFM(**both, attention_factor=spec.attention, l2_reg_att=0, **common)


def of_tasks(name: str, spec: Spec, common: dict[str, Any]) -> torch.nn.Module:
    """Returns the peer's class for several tasks; its gates have no hidden layers."""
    task = common["task"]
    names = [f"task_{index}" for index in range(spec.tasks)]
    settings = {"l2_reg_embedding": spec.l2, "device": spec.device, "tower_dnn_hidden_units": spec.hidden}
    settings |= {"dnn_dropout": spec.dropout, "task_names": names}
    if name == "esmm":
        return ESMM(columns(spec), **settings)
    settings |= {"task_types": [task] * spec.tasks, "expert_dnn_hidden_units": spec.expert, "gate_dnn_hidden_units": ()}
    if name == "mmoe":
        return MMOE(columns(spec), num_experts=spec.experts, **settings)
    settings |= {"shared_expert_num": spec.experts, "specific_expert_num": spec.experts, "num_levels": spec.levels}
    return PLE(columns(spec), **settings)


def task_weights(name: str, model: torch.nn.Module, spec: Spec) -> dict[str, Weight]:
    """Returns the weights of a multi-task model."""
    weights = {"embedding": stacked([table.weight for table in model.embedding_dict.values()], spec.dim)}
    if name == "esmm":
        parts = ((model.ctr_dnn, model.ctr_dnn_final_layer), (model.cvr_dnn, model.cvr_dnn_final_layer))
        for task, (network, last) in enumerate(parts):
            weights |= linears(list(network.linears), f"tower_{task}") | output(last, f"tower_{task}")
        return weights | {"bias": same(model.out.bias)}
    for task in range(spec.tasks):
        last = model.tower_dnn_final_layer[task]
        weights |= linears(list(model.tower_dnn[task].linears), f"tower_{task}") | output(last, f"tower_{task}")
        weights[f"tower_{task}/bias"] = same(model.out[task].bias)
    if name == "mmoe":
        levels = [(list(model.expert_dnn), list(model.gate_dnn_final_layer))]
    else:
        levels = []
        for level in range(spec.levels):
            own = [expert for experts in model.specific_experts[level] for expert in experts]
            gates = list(model.specific_gate_dnn_final_layer[level])
            if level < spec.levels - 1:
                gates.append(model.shared_gate_dnn_final_layer[level])
            levels.append((own + list(model.shared_experts[level][0]), gates))
    for level, (experts, gates) in enumerate(levels):
        weights |= linears(gates, f"gate_{level}")
        for number, expert in enumerate(experts):
            weights |= linears(list(expert.linears), f"expert_{level}_{number}")
    return weights


def logits_of(name: str, outputs: torch.Tensor) -> torch.Tensor:
    """Returns the logits of a model's outputs; ESMM's outputs are products of probabilities."""
    return torch.logit(outputs.double()) if name == "esmm" else outputs


def cin_weights(model: torch.nn.Module, fields: int) -> dict[str, Weight]:
    """Returns the CIN's weights. The peer orders channels by the previous layer's map first, then by x_0's field."""
    weights = {}
    for index, (before, convolution) in enumerate(zip(model.cin.field_nums, model.cin.conv1ds, strict=False)):
        weights[f"cin/filter_{index}"] = same(convolution.weight, convolution.out_channels, before, fields)
        weights[f"cin/bias_{index}"] = same(convolution.bias)
    return weights | output(model.cin_linear, "cin_out")


def cross_weights(model: torch.nn.Module) -> dict[str, Weight]:
    """Returns the cross layers' weights: slices of two tensors, one per layer."""
    weights, kernels, biases = {}, model.crossnet.kernels, model.crossnet.bias
    matrix = kernels.shape[2] > 1
    for index in range(len(kernels)):
        kernel = transposed(kernels[index]) if matrix else same(kernels[index], kernels.shape[1])
        weights[f"cross/kernel_{index}"] = kernel
        weights[f"cross/bias_{index}"] = same(biases[index], biases.shape[1])
    return weights


def attention_weights(model: torch.nn.Module) -> dict[str, Weight]:
    weights = {}
    for index, layer in enumerate(model.int_layers):
        weights[f"attention/query_{index}"] = same(layer.W_Query)
        weights[f"attention/key_{index}"] = same(layer.W_key)
        weights[f"attention/value_{index}"] = same(layer.W_Value)
        weights[f"attention/residual_{index}"] = same(layer.W_Res)
    return weights


def convolution_weights(model: torch.nn.Module) -> dict[str, Weight]:
    weights = {}
    layers = [layer for layer in model.conv_layer.conv_layer if isinstance(layer, torch.nn.Conv2d)]
    for index, layer in enumerate(layers):
        shape = (layer.kernel_size[0], layer.in_channels, layer.out_channels)
        weights[f"conv/kernel_{index}"] = transposed(layer.weight, shape, (2, 1, 0))
        weights[f"conv/bias_{index}"] = same(layer.bias)
    return weights


def weights_of(name: str, model: torch.nn.Module, spec: Spec) -> dict[str, Weight]:
    weights = {"embedding": stacked([table.weight for table in model.embedding_dict.values()], spec.dim)}
    weights["bias"] = same(model.out.bias)
    if name != "pnn":
        weights["linear"] = stacked([table.weight for table in model.linear_model.embedding_dict.values()])
    if name == "afm":
        weights |= {"attention/kernel": same(model.fm.attention_W), "attention/bias": same(model.fm.attention_b)}
        return weights | {
            "attention/projection": same(model.fm.projection_h),
            "out/kernel": same(model.fm.projection_p),
        }
    if spec.hidden:
        weights |= linears(list(model.dnn.linears))
    if name == "pnn" and spec.outer:
        kernel = model.outterproduct.kernel  # (d of the second, pairs, d of the first)
        weights["outer/kernel"] = transposed(kernel, (kernel.shape[1], spec.dim, spec.dim), (2, 0, 1))
    if name in ("dcn", "dcn_v2"):
        weights |= cross_weights(model)
    if name == "xdeepfm":
        weights |= cin_weights(model, len(spec.sizes))
    if name == "autoint":
        weights |= attention_weights(model)
    if name == "ccpm":
        weights |= convolution_weights(model)
    return weights | (output(model.dnn_linear) if hasattr(model, "dnn_linear") else {})


def build(name: str, spec: Spec, logits: bool) -> Built:
    common = {"l2_reg_embedding": spec.l2, "task": "regression" if logits else "binary", "device": spec.device}
    model = model_of(name, spec, common)
    return Built(
        module=model,
        inputs=lambda ids, labels: (ids.float(), labels),
        loss=lambda batch: functional.binary_cross_entropy(model(batch[0]), batch[1][:, None].expand(-1, spec.tasks)),
        logits=lambda batch: logits_of(name, model(batch[0])),
        weights=task_weights(name, model, spec) if spec.tasks > 1 else weights_of(name, model, spec),
        # The gate of the shared experts on the last level has no effect.
        unused=(f"shared_gate_dnn_final_layer.{spec.levels - 1}.",) if name == "ple" else (),
        # As in BaseModel.fit: the sum over the batch, the regularisation, and the layers' auxiliary losses.
        fit_loss=lambda batch: (
            functional.binary_cross_entropy(model(batch[0]).squeeze(-1), batch[1], reduction="sum")
            + model.get_regularization_loss().sum()
            + model.aux_loss.sum()
        ),
        probabilities=lambda batch: model(batch[0]).squeeze(-1),
    )


if __name__ == "__main__":
    serve(build, dict.fromkeys(MODELS, True))
