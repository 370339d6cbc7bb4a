"""Shared by the peers' servers: the line protocol, the training loop and the weights. Needs torch and numpy only.

One request per line on stdin, one JSON object per line on stdout:

    {"cmd": "train", "model": "xdeepfm", "steps": 10, "batch": 2048, "threads": 2, ...options}
        -> {"samples_per_s": float, "seconds": float, "loss": float}
    {"cmd": "memory", "model": "cin", "batch": 4096, "threads": 2, ...options}
        -> {"baseline_bytes": int, "peak_bytes": int}, before the model is built and after two training steps
    {"cmd": "shapes", "model": "xdeepfm", ...options} -> {"shapes": {weight name: shape}}
    {"cmd": "forward", "model": "xdeepfm", "in": "weights.npz", "out": "logits.npz", ...options} -> {}
    {"cmd": "fit", "model": "xdeepfm", "data": "rows.npz", "out": "predictions.npz", "seed": 1, "learning_rate": 1e-3,
     "batch_size": 1024, "epochs": 10, "evaluations_per_epoch": 4, "patience": 4, "monitor": "log_loss",
     "plateau": {"factor": 0.3, "patience": 2, "minimum": 1e-6}, ...options}
        -> {"seconds": float, "log_loss": float, "evaluations": int}: log_loss is the best on the validation rows, or
        "auc" with monitor: "auc"; without "plateau" the learning rate is constant; with "keep": "model.pth" the weights
        are written in the format of RecBole's checkpoints
    {"cmd": "models"} -> {"models": {name: whether `forward` supports it}}

A failed request gets {"error": text}. The options are the fields of `Spec`.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from drawn_ids import draw_ids
from line_server import serve_lines
from peak_memory import peak_bytes

BATCHES = 8  # distinct batches, repeated by the training loop
SEED = 20


@dataclasses.dataclass(frozen=True)
class Spec:
    """The sizes of a model and of its data.

    Args:
        sizes: Number of ids of each univalent field.
        history: Maximum length of a history: ids of the first field, placed after the fields, padded with 0 at the end;
            0 for data without a history.
        least_history: Minimum length of a history.
        zipf: Exponent of Zipf's law for the ids of a field; None: uniform.
        item: Number of leading fields that belong to the item, for models with a separate item network.
        tasks: Number of labels.
        dim: Width of an embedding.
        hidden: Units of the DNN's hidden layers.
        cin, cin_activation, split_half: Feature maps of the CIN's layers, their activation, and whether a layer passes
            on only half of its maps.
        cross: Number of cross layers.
        layers, heads: Layers and heads of AutoInt's self-attention; heads also of BST and SIM.
        attention: Width of the attention of AFM, NAIS and SIM.
        unit: Widths of the network that weights a history's items.
        found: Number of items that SIM's search selects from a history.
        experts, expert, levels: Number of experts per task and of shared experts, the widths of their layers, and the
            number of PLE's levels.
        conv_width, conv_filters: Widths and filters of CCPM's convolutions.
        inner, outer: Whether PNN has inner and outer products.
        concat: Whether NAIS's attention reads both vectors concatenated instead of their product.
        pretrained: File of FISM weights, written by `fit` with keep, from which NAIS starts; "": random embeddings.
        dropout: Rate after the DNN's hidden layers.
        l2: Strength of the peer's own regularisation: of its embeddings, or of all weights if it uses weight decay.
        network_l2: Strength of its regularisation of the other weights, if separate from `l2`.
        zoo: A folder of FuxiCTR's model zoo, whose classes are used; "" for the peer's package alone.
        settings: Arguments of the zoo's class, for models whose arguments no other field has.
        device: PyTorch's name of the device.
        autocast: Whether the timed training computes forward and loss with `torch.autocast` in bfloat16.
    """

    sizes: tuple[int, ...] = (5000,) * 39
    history: int = 0
    least_history: int = 1
    zipf: float | None = None
    item: int = 0
    tasks: int = 1
    dim: int = 16
    hidden: tuple[int, ...] = (400, 400)
    cin: tuple[int, ...] = (64, 64, 64)
    cin_activation: str = "relu"
    split_half: bool = False
    cross: int = 3
    layers: int = 3
    heads: int = 2
    attention: int = 8
    unit: tuple[int, ...] = (80, 40)
    found: int = 50
    experts: int = 2
    expert: tuple[int, ...] = (64,)
    levels: int = 1
    conv_width: tuple[int, ...] = (6, 5)
    conv_filters: tuple[int, ...] = (4, 4)
    inner: bool = True
    outer: bool = False
    concat: bool = False
    pretrained: str = ""
    dropout: float = 0.0
    l2: float = 0.0
    network_l2: float = 0.0
    zoo: str = ""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    device: str = "cpu"
    autocast: bool = False

    @classmethod
    def from_request(cls, request: dict[str, Any]) -> "Spec":
        names = {field.name for field in dataclasses.fields(cls)}
        values = {name: value for name, value in request.items() if name in names}
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})

    def fitted(self, weights: dict[str, np.ndarray]) -> "Spec":
        """Returns the spec with the sizes of the given weights."""

        def widths(name: str, axis: int) -> tuple[int, ...]:
            sizes = []
            while f"{name}_{len(sizes)}" in weights:
                sizes.append(weights[f"{name}_{len(sizes)}"].shape[axis])
            return tuple(sizes)

        hidden = widths("dnn/kernel", 1) or widths("tower_0/kernel", 1)
        fields: dict[str, Any] = {"hidden": hidden, "cin": widths("cin/filter", 0)}
        fields["unit"] = widths("unit/kernel", 1)
        fields |= {"cross": len(widths("cross/kernel", 0)), "layers": len(widths("attention/query", 0))}
        fields |= {"conv_width": widths("conv/kernel", 0), "conv_filters": widths("conv/kernel", 2)}
        if "embedding" in weights:
            fields["dim"] = weights["embedding"].shape[-1]
        if "attention/kernel" in weights:
            fields["attention"] = weights["attention/kernel"].shape[1]
        if "attention/kernel_0" in weights:
            fields["attention"] = weights["attention/kernel_0"].shape[1]
        if "candidates" in weights:
            fields["dim"] = weights["candidates"].shape[1]
        return dataclasses.replace(self, **fields)


@dataclasses.dataclass(frozen=True)
class Weight:
    """A named weight in the layout of the protocol, and the peer's tensors that store it."""

    shape: tuple[int, ...]
    tensors: tuple[torch.Tensor, ...]
    split: Callable[[np.ndarray], list[np.ndarray]]

    def put(self, name: str, value: np.ndarray) -> None:
        if value.shape != self.shape:
            raise ValueError(f"Weight '{name}' should have shape {self.shape}. Received: {value.shape}")
        for tensor, part in zip(self.tensors, self.split(value), strict=True):
            tensor.copy_(torch.from_numpy(np.ascontiguousarray(part, np.float32)))


def same(tensor: torch.Tensor, *shape: int) -> Weight:
    """Returns a weight that the peer stores in the same order, possibly in another shape."""
    return Weight(shape or tuple(tensor.shape), (tensor,), lambda value: [value.reshape(tensor.shape)])


def transposed(tensor: torch.Tensor, shape: tuple[int, ...] = (), axes: tuple[int, ...] = (1, 0)) -> Weight:
    """Returns a weight that the peer stores with axes permuted by `axes`, then reshaped: (in, out) -> (out, in)."""
    stored_shape = shape or tuple(tensor.shape[axis] for axis in np.argsort(axes))
    return Weight(stored_shape, (tensor,), lambda value: [value.transpose(axes).reshape(tensor.shape)])


def stacked(tensors: list[torch.Tensor], *row: int) -> Weight:
    """Returns the tables of several fields as one weight, concatenated: (sum of sizes, *row)."""
    sizes = [len(tensor) for tensor in tensors]
    shape = (sum(sizes), *row)

    def split(value: np.ndarray) -> list[np.ndarray]:
        parts = np.split(value, np.cumsum(sizes)[:-1])
        return [part.reshape(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    return Weight(shape, tuple(tensors), split)


def linears(layers: list[torch.nn.Linear], name: str = "dnn") -> dict[str, Weight]:
    """Returns `name`/kernel_i (in, out) and `name`/bias_i (out)."""
    weights = {}
    for index, layer in enumerate(layers):
        weights[f"{name}/kernel_{index}"] = transposed(layer.weight)
        if layer.bias is not None:
            weights[f"{name}/bias_{index}"] = same(layer.bias)
    return weights


def output(layer: torch.nn.Linear, name: str = "out") -> dict[str, Weight]:
    """Returns `name`/kernel (in, 1) and, if the peer has one, `name`/bias (1)."""
    weights = {f"{name}/kernel": transposed(layer.weight)}
    return weights if layer.bias is None else weights | {f"{name}/bias": same(layer.bias)}


@dataclasses.dataclass(frozen=True)
class Built:
    """A peer's model with the functions to call it.

    Args:
        module: The peer's model.
        inputs: Makes the model's input from ids, int64 (batch_size, fields), and labels, float32 (batch_size).
        loss: Returns the mean binary cross-entropy of such an input.
        logits: Returns the logits (batch_size) of such an input, if the model was built for logits.
        weights: All trainable weights that the output depends on; None if `forward` is not supported.
        unused: Name prefixes of parameters that the peer's model has but does not use.
        fit_loss: The peer's own training objective, including regularisation; None for `loss`.
        probabilities: Returns the probabilities (batch_size) of such an input; None if `fit` is not supported.
        weight_decay: Weight decay of the peer's optimizer.
    """

    module: torch.nn.Module
    inputs: Callable[[torch.Tensor, torch.Tensor], Any]
    loss: Callable[[Any], torch.Tensor]
    logits: Callable[[Any], torch.Tensor] | None = None
    weights: dict[str, Weight] | None = None
    unused: tuple[str, ...] = ()
    fit_loss: Callable[[Any], torch.Tensor] | None = None
    probabilities: Callable[[Any], torch.Tensor] | None = None
    weight_decay: float = 0.0

    def named(self) -> dict[str, Weight]:
        """Returns the weights after checking that all parameters of the peer are covered."""
        if self.weights is None:
            raise ValueError("`forward` and `shapes` are not offered for this model")
        bound = {tensor.data_ptr() for weight in self.weights.values() for tensor in weight.tensors}
        left = [
            name
            for name, parameter in self.module.named_parameters()
            if parameter.requires_grad and parameter.data_ptr() not in bound and not name.startswith(self.unused)
        ]
        if left:
            raise ValueError(f"Parameters of the peer without a name here: {left}")
        return self.weights


def in_float32(device: str) -> torch.autocast:
    """Returns a context that disables `torch.autocast`.

    On a GPU, PyTorch rejects the peers' cross-entropy of probabilities in bfloat16.
    """
    return torch.autocast(device.split(":")[0], enabled=False)


Build = Callable[[str, Spec, bool], Built]  # (model, spec, whether the output is the logit)


def drawn_ids(spec: Spec, random: np.random.Generator, batch: int) -> np.ndarray:
    """Returns random ids (batch_size, fields, then history), with uniform history lengths from the minimum on."""
    ids = draw_ids(random, spec.sizes, batch, spec.zipf).astype(np.int64)
    if not spec.history:
        return ids
    items = 1 + draw_ids(random, (spec.sizes[0] - 1,) * spec.history, batch, spec.zipf).astype(np.int64)  # 0 is padding
    items[np.arange(spec.history) >= random.integers(spec.least_history, spec.history + 1, (batch, 1))] = 0
    return np.concatenate([ids, items], axis=1)


class Training:
    """A model with its optimizer and a few batches of random rows, kept between requests."""

    def __init__(self, built: Built, spec: Spec, batch: int):
        self.built, self.device, self.step_index = built, spec.device, 0
        self.autocast = torch.autocast(spec.device.split(":")[0], torch.bfloat16, enabled=spec.autocast)
        self.optimizer = torch.optim.Adam(built.module.parameters(), lr=1e-3)
        random = np.random.default_rng(SEED)
        self.batches = []
        for _ in range(BATCHES):
            ids = torch.from_numpy(drawn_ids(spec, random, batch)).to(spec.device)
            labels = torch.from_numpy((random.random(batch) < 0.25).astype(np.float32)).to(spec.device)
            self.batches.append(built.inputs(ids, labels))
        built.module.train()

    def run(self, steps: int) -> float:
        """Runs `steps` training steps (forward, loss, backward, update), and returns the last loss."""
        loss = torch.tensor(float("nan"))
        for _ in range(steps):
            inputs = self.batches[self.step_index % BATCHES]
            self.step_index += 1
            self.optimizer.zero_grad()
            with self.autocast:
                loss = self.built.loss(inputs)
            loss.backward()
            self.optimizer.step()
        if self.device != "cpu":
            torch.cuda.synchronize()
        return loss.item()


class Fitting:
    """Trains on given rows and keeps the weights with the best validation metric of METRICS."""

    def __init__(self, built: Built, learning_rate: float, batch: int):
        self.built, self.batch = built, batch
        self.loss = built.fit_loss or built.loss
        parameters = built.module.parameters()
        self.optimizer = torch.optim.Adam(parameters, lr=learning_rate, weight_decay=built.weight_decay)

    def run(self, ids: torch.Tensor, labels: torch.Tensor) -> None:
        """Trains for one pass over the rows, split evenly: a small last batch would weigh as much as a full one."""
        self.built.module.train()
        batches = -(-len(ids) // self.batch)
        for some, clicks in zip(ids.tensor_split(batches), labels.tensor_split(batches), strict=True):
            if len(some) < 2:  # batch normalisation needs two rows
                continue
            self.optimizer.zero_grad()
            self.loss(self.built.inputs(some, clicks)).backward()
            self.optimizer.step()

    @torch.no_grad()
    def predict(self, ids: torch.Tensor) -> np.ndarray:
        """Returns the probabilities of rows, float64 (rows)."""
        self.built.module.eval()
        parts = [
            self.built.probabilities(self.built.inputs(part, torch.zeros(len(part)))).reshape(-1)
            for part in ids.split(8192)
        ]
        return torch.cat(parts).double().numpy()

    def best(
        self,
        train: tuple,
        validation: tuple,
        epochs: int,
        evaluations: int,
        patience: int,
        monitor: str,
        plateau: dict[str, float] | None,
    ) -> tuple[float, int]:
        """Trains to the best weights, loads them, and returns their metric and the number of evaluations.

        As in `training.plateau`, the learning rate is multiplied by the plateau's `factor`, down to its `minimum`,
        after `patience` evaluations without an improvement since the best one or the last reduction.
        """
        sign, metric = METRICS[monitor]
        best, weights, count, waited, lowered_at = float("inf"), None, 0, 0, 0
        for _ in range(epochs):
            for rows in torch.randperm(len(train[0])).chunk(evaluations):
                self.run(train[0][rows], train[1][rows])
                count, waited = count + 1, waited + 1
                loss = sign * metric(validation[1].numpy(), self.predict(validation[0]))
                if loss < best:
                    best, waited, lowered_at = loss, 0, 0
                    weights = {name: value.clone() for name, value in self.built.module.state_dict().items()}
                if waited >= patience:
                    break
                if plateau and waited - lowered_at >= plateau["patience"]:
                    lowered_at = waited
                    for group in self.optimizer.param_groups:
                        group["lr"] = max(group["lr"] * plateau["factor"], plateau["minimum"])
            if waited >= patience:
                break
        self.built.module.load_state_dict(weights)
        return sign * best, count


def log_loss(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Returns the mean log loss in nats; probabilities are clipped to [1e-7, 1 - 1e-7]."""
    clipped = np.clip(probabilities, 1e-7, 1 - 1e-7)
    return float(-np.mean(np.where(labels > 0.5, np.log(clipped), np.log(1 - clipped))))


def auc(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Returns the area under the ROC curve; equal probabilities count as half. A peer's environment has no ctrpipe."""
    _, places, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    clicked = labels > 0.5
    clicks = np.sum(clicked)
    return float((ranks[clicked].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(labels) - clicks)))


# Sign and function of each metric; the sign is 1 if lower is better, else -1.
METRICS = {"log_loss": (1, log_loss), "auc": (-1, auc)}


class Server:
    """Answers requests with the models made by `build`; `models` maps each name to whether `forward` supports it."""

    def __init__(self, build: Build, models: dict[str, bool]):
        self.build, self.models = build, models
        self.key: str | None = None
        self.training: Training | None = None
        # As in TensorFlow and JAX on a GPU; PyTorch's default, float32, would put the peers at an unfair disadvantage.
        torch.backends.cuda.matmul.allow_tf32 = True

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request.pop("cmd")
        if command == "models":
            return {"models": self.models}
        more = request.get("zoo") or request.get("history") or request.get("tasks", 1) > 1
        if request["model"] not in self.models and not more:
            raise ValueError(f"model should be one of {sorted(self.models)}. Received: {request['model']!r}")
        torch.set_num_threads(request.pop("threads", 1))
        commands = {"train": self.train, "memory": self.memory, "shapes": self.shapes, "forward": self.forward}
        commands["fit"] = self.fit
        return commands[command](request)

    def train(self, request: dict[str, Any]) -> dict[str, Any]:
        steps, warmup = request.pop("steps"), request.pop("warmup", 2)
        training = self.prepared(request)
        training.run(warmup)
        start = time.perf_counter()
        loss = training.run(steps)
        seconds = time.perf_counter() - start
        return {"samples_per_s": steps * request["batch"] / seconds, "seconds": seconds, "loss": loss}

    def prepared(self, request: dict[str, Any]) -> Training:
        """Returns the request's model; reuses the last model if the request is the same, because building is slow."""
        key = json.dumps(request, sort_keys=True)
        if self.key != key or self.training is None:
            self.key, self.training = key, None
            spec = Spec.from_request(request)
            self.training = Training(self.build(request["model"], spec, False), spec, request["batch"])
        return self.training

    def memory(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the peak bytes before the model is built and after two steps; the first step creates Adam's state."""
        peak = torch.cuda.max_memory_allocated if request.get("device", "cpu") != "cpu" else peak_bytes
        baseline = peak()
        self.prepared(request).run(2)
        return {"baseline_bytes": baseline, "peak_bytes": peak()}

    def fit(self, request: dict[str, Any]) -> dict[str, Any]:
        """Trains on the rows of a file to the best validation metric, and writes the test rows' probabilities."""
        with np.load(request["data"]) as file:
            arrays = dict(file)
        parts = {
            name: (torch.from_numpy(arrays[f"{name}_ids"].astype(np.int64)), torch.from_numpy(arrays[f"{name}_labels"]))
            for name in ("train", "validation", "test")
        }
        torch.manual_seed(request["seed"])
        built = self.build(request["model"], Spec.from_request(request | {"sizes": arrays["sizes"].tolist()}), False)
        if built.probabilities is None:
            raise ValueError("`fit` is not offered for this model")
        fitting = Fitting(built, request["learning_rate"], request["batch_size"])
        torch.manual_seed(request["seed"])  # peers set their own seed while building
        start = time.perf_counter()
        often = (request["epochs"], request["evaluations_per_epoch"], request["patience"])
        monitor = request.get("monitor", "log_loss")
        plateau = request.get("plateau")
        value, evaluations = fitting.best(parts["train"], parts["validation"], *often, monitor, plateau)
        seconds = time.perf_counter() - start
        np.savez(request["out"], probabilities=fitting.predict(parts["test"][0]))
        if "keep" in request:
            torch.save({"state_dict": built.module.state_dict()}, request["keep"])
        return {"seconds": seconds, monitor: value, "evaluations": evaluations}

    def shapes(self, request: dict[str, Any]) -> dict[str, Any]:
        built = self.build(request["model"], Spec.from_request(request), True)
        return {"shapes": {name: weight.shape for name, weight in built.named().items()}}

    @torch.no_grad()
    def forward(self, request: dict[str, Any]) -> dict[str, Any]:
        with np.load(request["in"]) as file:
            arrays = dict(file)
        ids = torch.from_numpy(arrays.pop("ids").astype(np.int64))
        spec = Spec.from_request(request | {"sizes": arrays.pop("sizes").tolist()}).fitted(arrays)
        built = self.build(request["model"], spec, True)
        named = built.named()
        if set(named) != set(arrays):
            expected = {name: weight.shape for name, weight in named.items()}
            raise ValueError(f"'{request['model']}' takes the weights {expected}. Received: {sorted(arrays)}")
        for name, weight in named.items():
            weight.put(name, arrays[name])
        built.module.eval()
        ids = ids.to(spec.device)
        logits = built.logits(built.inputs(ids, torch.zeros(len(ids), device=spec.device)))
        np.savez(request["out"], logits=logits.cpu().numpy().reshape(-1))
        return {}


def serve(build: Build, models: dict[str, bool]) -> None:
    """Answers requests until stdin ends."""
    serve_lines(lambda: Server(build, models).answer)
