"""The base class of all models: packed tensors in, logits out."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.candidates import TEXT, join_candidates, rows_by_field
from ctrpipe.models.base.feature_map import SLOT_WEIGHTS, FeatureMap
from ctrpipe.models.base.losses import without_fake_negatives
from ctrpipe.models.base.tensors import Inputs, Shape, Tensor
from ctrpipe.models.layers.dense_embedding import DenseEmbedding
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from ctrpipe.models.layers.number_embedding import NumberEmbedding
from ctrpipe.models.layers.tower import Tower

# Constructor arguments that are not hyperparameters.
NO_OPTIONS = ("name", "embeds")
# How a number of `transform: embed` becomes an embedding.
NUMBER_OPTIONS = ("number_embedding", "number_bins", "number_scale")


class CTRModel(keras.Model):
    """Base class of all models: embeds the ids, combines the embeddings and returns logits.

    `logits = interact(rows(inputs), inputs) + linear part`.

    A subclass defines `interact` and names its last layer `logit`, `tower` or `head`. Its constructor has one argument
    for each of its own hyperparameters and passes `**options` on to this constructor. See docs/how-to/add-a-model.md.

    Args:
        feature_map: FeatureMap. The fields, dense features, tasks and text that the packed tensors hold.
        embedding_dim: int. Width d of an embedding; 0 for a model without embeddings. Defaults to 16.
        embedding_stddev: float. Standard deviation of the initial embeddings. Defaults to 0.001.
        embedding_l2: float. Strength λ of the L2 penalty on the embeddings of a batch (see FieldEmbedding). Defaults to
            0.
        embedding_dropout: float. Dropout rate on the embeddings, before the interaction. Defaults to 0.
        use_linear: bool. Adds a weight per id and per dense feature (a logistic regression) to the logits. Defaults to
            False.
        linear_l2: float. Strength λ of the L2 penalty on the linear weights of a batch's ids. Defaults to 0.
        linear_rate: float. Factor on the linear part. Its weights start from zero: with Adam, the factor multiplies
            their learning rate. A wide part needs larger steps than a deep part; the Wide & Deep paper therefore trains
            it with its own optimizer. Defaults to 1.
        number_embedding: str. "periodic" or "autodis": how a number of `transform: embed` becomes an embedding (see
            NumberEmbedding). Defaults to "periodic".
        number_bins: int. Number of frequencies, or of vectors that AutoDis mixes, for each such number. Defaults to 16.
        number_scale: float. Standard deviation of the initial frequencies, or the temperature of AutoDis. Defaults to
            1.
        normalization: str. "batch", "layer" or "none": normalisation of the hidden layers of the MLPs that end the
            model (see Tower). Defaults to "none".
        normalization_place: str. Whether that normalisation comes "before" or "after" the activation. Defaults to
            "before".
        embeds: bool. Whether the model has embeddings and a linear part. False for a model nested in another model that
            supplies the embeddings (see MultiTaskModel). Not a hyperparameter. Defaults to True.
        name: str. Name of the Keras model.

    Example:
        >>> class SumOfEmbeddings(CTRModel):
        ...     def interact(self, rows, inputs, training=None):
        ...         return ops.sum(rows, axis=(1, 2))[:, None]
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = SumOfEmbeddings(feature_map, embedding_dim=4, use_linear=True)
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # (batch_size, tasks)
        (2, 1)
    """

    # Whether each dense feature becomes an embedding x_d v_d, as in a factorisation machine, and a vector one embedding
    # in all. Otherwise `flatten` appends the raw values to the embeddings.
    embeds_dense: bool = False
    # Whether the model, which does not embed dense features, embeds them all if one is a number of `transform: embed`.
    may_embed_dense: bool = False
    # Whether the data must have a text.
    needs_text: bool = False
    # Whether the model accepts one text for all rows of a batch, as tokens (1, T).
    shares_text: bool = False
    # Whether `rows` returns one embedding per field; otherwise one per slot, (batch_size, slots, embedding_dim).
    pools: bool = True
    # Whether the data must have a sequence that shares its vocabulary with the candidate's column.
    needs_history: bool = False
    # Whether the data must mark the candidate's columns, with `role: item` or a sequence's `shared_with`.
    needs_items: bool = False
    # Whether the data must have several tasks.
    needs_tasks: bool = False
    # Whether a training step gives the model the labels, and any weights, in its inputs.
    reads_labels: bool = False
    # Whether the model adds a loss on its own logits, so that it cannot be a part of another model.
    own_loss: bool = False
    # Registry names of the models to train first. This model copies their weights (see `take_weights`).
    pretraining: tuple[str, ...] = ()
    # Registry names of the models to train first only if `training.stages` names them.
    optional_pretraining: tuple[str, ...] = ()

    # The last layer, whose bias is added to every row's logits. A subclass assigns one of the three: `logit` is a Dense
    # layer, `tower` and `head` are Towers.
    logit: Any = None
    tower: Any = None
    head: Any = None

    def __new__(cls, *args: Any, **hyperparameters: Any) -> Self:
        model: Self = super().__new__(cls, *args, **hyperparameters)
        given = {key: value for key, value in hyperparameters.items() if key != "feature_map"}
        object.__setattr__(model, "_hyperparameters", given)
        return model

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        embedding_dim: int = 16,
        embedding_stddev: float = 0.001,
        embedding_l2: float = 0.0,
        embedding_dropout: float = 0.0,
        use_linear: bool = False,
        linear_l2: float = 0.0,
        linear_rate: float = 1.0,
        number_embedding: str = "periodic",
        number_bins: int = 16,
        number_scale: float = 1.0,
        normalization: str = "none",
        normalization_place: str = "before",
        embeds: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.feature_map = feature_map
        self.embedding_dim = embedding_dim
        self.tasks = len(feature_map.tasks)
        self.linear_rate = linear_rate
        self._normalization = (normalization, normalization_place)
        self.table = self.dense_table = self.number_table = self.embedding_drop = None
        self.linear: FieldEmbedding | None = None
        self.linear_dense: keras.layers.Dense | None = None
        if feature_map.embedded and embedding_dim:
            self._embed_numbers()
        if not embeds:
            return
        if embedding_dim and feature_map.fields:
            self.table = FieldEmbedding(feature_map, embedding_dim, embedding_stddev, embedding_l2, name="embedding")
        if embedding_dim and feature_map.dense and self.embeds_dense:
            widths = tuple(width for name, width in feature_map.widths.items() if name not in feature_map.embedded)
            if widths:
                widths = widths if feature_map.dense_widths else ()
                self.dense_table = DenseEmbedding(embedding_dim, embedding_stddev, widths, name="dense_embedding")
            if feature_map.embedded:
                ways = number_embedding, number_bins, number_scale, embedding_stddev
                self.number_table = NumberEmbedding(embedding_dim, *ways, name="number_embedding")
        if embedding_dropout:
            self.embedding_drop = keras.layers.Dropout(embedding_dropout)
        if use_linear:
            self.make_linear(linear_l2)

    def _embed_numbers(self) -> None:
        """Makes the model embed its dense features. Raises ValueError if it cannot."""
        if not (self.embeds_dense or self.may_embed_dense):
            require_no_embedded(type(self).__name__, self.feature_map)
        self.embeds_dense = True

    def mlp(
        self,
        hidden_units: Sequence[int],
        outputs: int | None = 1,
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        *,
        name: str,
    ) -> Tower:
        """Returns a multilayer perceptron with the normalisation of the model's options; see Tower."""
        return Tower(hidden_units, outputs, activation, dropout, l2, *self._normalization, name=name)

    def check_used(self, name: str) -> None:
        """Raises ValueError if `normalization` is given and no layer is normalised, or an option of numbers and no
        number is embedded.

        Args:
            name: The model's name, for the error.
        """
        asked = self._normalization[0] != "none"
        if asked and not any(getattr(layer, "norms", None) for layer in self._flatten_layers()):
            raise ValueError(f"{name}: there is no hidden layer that `normalization` could normalise; remove it")
        defaults = CTRModel.options()
        changed = [key for key in NUMBER_OPTIONS if self._hyperparameters.get(key, defaults[key]) != defaults[key]]
        if changed and self.number_table is None:
            raise ValueError(
                f"{name}: {changed[0]} is for numbers that it embeds, and there are none; give them transform: embed, "
                f"or remove {changed[0]}"
            )

    def make_linear(self, l2: float) -> None:
        """Creates the layers of the linear part: `linear` for the ids and `linear_dense` for the dense features.

        Args:
            l2: The strength λ of the L2 penalty on the weights of a batch's ids.
        """
        self.linear = self.weight_per_id(l2)
        self.linear_dense = keras.layers.Dense(self.tasks, kernel_initializer="zeros", name="linear_dense")

    def weight_per_id(self, l2: float) -> FieldEmbedding | None:
        """Returns a layer with a weight per id and task, initially zero; None for data without fields."""
        if not self.feature_map.fields:
            return None
        return FieldEmbedding(self.feature_map, self.tasks, stddev=0.0, l2=l2, attends=False, name="linear")

    def rows(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor | None:
        """Returns the embeddings, (batch_size, fields, embedding_dim); None for a model without embeddings.

        With `embeds_dense`, the embeddings of the dense features follow the embeddings of the fields.

        Args:
            inputs, training, gathered: See `call`.
        """
        parts = [] if self.table is None else [self._embedded(self.table, inputs, gathered)]
        if "dense" in inputs and (self.dense_table is not None or self.number_table is not None):
            parts.append(self.dense_rows(inputs["dense"]))
        if not parts:
            return None
        rows = ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        return self.embedding_drop(rows, training=training) if self.embedding_drop else rows

    def dense_rows(self, dense: Tensor) -> Tensor:
        """Returns the embeddings of the dense features, in their order, (batch_size, features, embedding_dim)."""
        embedded = self.feature_map.embedded
        if self.dense_table is None:
            assert self.number_table is not None
            return self.number_table(dense)
        if self.number_table is None:
            return self.dense_table(dense)
        columns = [place for place, name in enumerate(self.feature_map.dense_columns) if name in embedded]
        others = [place for place, name in enumerate(self.feature_map.dense_columns) if name not in embedded]
        rows = [
            self.dense_table(ops.take(dense, others, axis=1)),
            self.number_table(ops.take(dense, columns, axis=1)),
        ]
        names = sorted(self.feature_map.dense, key=lambda name: name in embedded)
        order = [names.index(name) for name in self.feature_map.dense]
        return ops.take(ops.concatenate(rows, axis=1), order, axis=1)

    def flat_width(self, embedding_dim: int) -> int:
        """Returns the width of `flatten`'s result for rows of this width."""
        fields, dense = len(self.feature_map.fields), len(self.feature_map.dense)
        if self.embeds_dense:
            return (fields + dense) * embedding_dim
        return fields * embedding_dim + self.feature_map.dense_width

    def _embedded(self, table: FieldEmbedding, inputs: Inputs, gathered: Inputs | None) -> Tensor:
        return table(
            inputs["ids"],
            gathered=(gathered or {}).get(table.name),
            pooled=self.pools,
            weights=inputs.get(SLOT_WEIGHTS),
        )

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        """Returns the logits without the linear part, (batch_size, tasks). Every subclass defines this method.

        Args:
            rows: The output of `rows`.
            inputs, training: See `call`.
        """
        raise NotImplementedError

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        """Returns the logits, float32 (batch_size, tasks).

        Args:
            inputs: The packed tensors: `ids` int32 (batch_size, slots) and `dense` float32 (batch_size, width), if
                the data has any; `slot_weights` float32 (batch_size, weighted slots), if a field is weighted; `tokens`
                and `segments` int32 (batch_size, T), or (1, T) for a text that all rows share, if the model
                `shares_text`; `numbers` int32 (batch_size, 2 * numbers), if the feature map names any.
            training: Whether dropout is on.
            gathered: Embedding rows that the caller has already looked up, keyed by the name of the embedding layer:
                (batch_size, slots, width), or a mapping by field (see FieldEmbedding).
        """
        rows = self.rows(inputs, training, gathered)
        logits = ops.cast(self.interact(rows, inputs, training=training), "float32")
        if self.linear_dense is not None:
            logits += self.linear_logits(inputs, gathered)
        return self.answered(logits, training)

    def answered(self, logits: Tensor, training: bool | None) -> Tensor:
        """Returns the logits, corrected for fake negatives outside training.

        The correction applies only with `FeatureMap.fake_negatives` (see `without_fake_negatives`).
        """
        return logits if training or not self.feature_map.fake_negatives else without_fake_negatives(logits)

    def candidate_logits(self, context: Inputs, candidates: Inputs) -> Tensor:
        """Returns the logits of many candidates for one context, float32 (candidates, tasks).

        The result equals `call` on each candidate joined with the context. The context's embeddings are looked up and
        pooled once. A subclass that can share more computation overrides this method.

        Args:
            context, candidates: Packed tensors of one row and of many rows; see ctrpipe.models.base.candidates.
        """
        inputs = join_candidates(self.feature_map, context, candidates)
        if not self.shares_text:
            rows = batch_size(candidates)
            texts = {name: inputs[name] for name in TEXT if name in inputs}
            inputs |= {name: ops.broadcast_to(text, (rows, text.shape[1])) for name, text in texts.items()}
        if "ids" not in context or "ids" not in candidates:
            return self(inputs, training=False)
        gathered = {
            table.name: rows_by_field(self.feature_map, table.table, context, candidates) for table in self.tables()
        }
        return self(inputs, training=False, gathered=gathered)

    def linear_logits(self, inputs: Inputs, gathered: Inputs | None = None) -> Tensor:
        """Returns the linear part of the logits, float32 (batch_size, tasks)."""
        assert self.linear_dense is not None
        batch = batch_size(inputs)
        dense = inputs["dense"] if "dense" in inputs else ops.zeros((batch, 1))
        logits = ops.cast(self.linear_dense(dense), "float32")
        if self.linear is not None:
            weights = self.linear_weights(inputs, gathered)
            logits = logits + ops.sum(ops.cast(weights, "float32"), axis=1)
        return self.linear_rate * logits

    def linear_weights(self, inputs: Inputs, gathered: Inputs | None = None) -> Tensor:
        """Returns the weight of each field in the linear part, (batch_size, fields, tasks)."""
        assert self.linear is not None
        given = (gathered or {}).get("linear")
        return self.linear(inputs["ids"], gathered=given, weights=inputs.get(SLOT_WEIGHTS))

    def build(self, input_shape: Shape | None = None) -> None:
        """Does nothing: the first call builds the layers. Without this method, Keras traces the model before that."""

    def tables(self) -> list[FieldEmbedding]:
        """Returns the embedding layers, whose weights grow with the vocabulary."""
        return [table for table in (self.table, self.linear) if table is not None]

    def value_tables(self) -> list[FieldEmbedding]:
        """Returns the tables whose rows are embeddings of the fields' values; [] for a model without any."""
        return [] if self.table is None else [self.table]

    def weights_by_row(self) -> list[tuple[keras.Variable, str]]:
        """Returns the weights that have one row per value of the data, each with the kind of its rows.

        The kinds are "ids": all ids of the feature map; "tokens": the text's tokens, followed by any tokens that the
        model adds; "positions": the ids of the fields with the role position, field by field.
        """
        return [(table.table, "ids") for table in self.tables()]

    def token_parts(self, inputs: Inputs) -> dict[str, Tensor]:
        """Returns the token-table rows that the model reads, keyed by the input that overrides them."""
        return {}

    def encoder_weights(self) -> list[keras.Variable]:
        """Returns the trainable weights that a language model's checkpoint sets."""
        return []

    def flatten(self, rows: Tensor | None, inputs: Inputs) -> Tensor:
        """Returns the concatenated embeddings and dense features, (batch_size, width)."""
        parts = [] if rows is None else [ops.reshape(rows, (-1, rows.shape[1] * rows.shape[2]))]
        if "dense" in inputs and not self.embeds_dense:
            parts.append(ops.cast(inputs["dense"], parts[0].dtype if parts else "float32"))
        return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def output_biases(self) -> list[keras.Variable]:
        """Returns the biases that are added to every row's logits; concatenated they have the shape (tasks,).

        If the logits are the mean of several layers' outputs, these are the biases of each layer in turn. The model
        must be built. A subclass whose last layer is not `logit`, `tower` or `head` overrides this method.

        Raises:
            ValueError: the model has no such bias.
        """
        towers = [tower.logits for tower in (self.tower, self.head) if tower is not None]
        for layer in (self.linear_dense, self.logit, *towers):
            if layer is not None:
                return [layer.bias]
        raise ValueError(f"{type(self).__name__} has no bias of its own without `use_linear=True`")

    def start_at(self, rates: np.ndarray) -> None:
        """Sets the output biases to the log-odds of the base rates, which an untrained model then predicts.

        Args:
            rates: Mean label of each task, (tasks,); clipped to [1e-6, 1 - 1e-6].

        Raises:
            ValueError: the model has no such bias.
        """
        rates = np.clip(rates, 1e-6, 1 - 1e-6)
        log_odds = np.log(rates / (1 - rates))
        if self.linear_dense is not None:
            log_odds = log_odds / self.linear_rate
        biases = self.output_biases()
        sizes = [int(np.prod(bias.shape)) for bias in biases]
        # A model whose logits are the mean of several layers' has the biases of each.
        values = np.tile(log_odds, sum(sizes) // len(log_odds))
        for bias, own in zip(biases, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
            bias.assign(own)

    def shift_logits(self, shift: float) -> None:
        """Adds a constant to the logits of every row and task, by shifting the output biases.

        Raises:
            ValueError: the model has no such bias.
        """
        rate = 1.0 if self.linear_dense is None else self.linear_rate
        for bias in self.output_biases():
            bias.assign(ops.convert_to_numpy(bias) + shift / rate)

    def shared_layers(self) -> dict[str, keras.layers.Layer | None]:
        """Returns the layers whose weights `take_weights` copies, keyed by a name that both models use."""
        return {
            "embedding": self.table,
            "linear": self.linear,
            "dense_embedding": self.dense_table,
            "number_embedding": self.number_table,
        }

    def taken_weights(self, pretrained: "CTRModel") -> dict[str, tuple[list[keras.Variable], list[keras.Variable]]]:
        """Returns the weights that `take_weights` copies: by shared layer, this model's and the pretrained model's."""
        shared = pretrained.shared_layers()
        pairs = {name: (layer, shared.get(name)) for name, layer in self.shared_layers().items()}
        return {
            name: (list(mine.weights), list(trained.weights))
            for name, (mine, trained) in pairs.items()
            if mine is not None and trained is not None
        }

    def take_weights(self, pretrained: "CTRModel") -> None:
        """Copies the weights of the shared layers from a trained model of `pretraining`."""
        for mine, trained in self.taken_weights(pretrained).values():
            for weight, value in zip(mine, trained, strict=True):
                weight.assign(value)

    def fold(self) -> None:
        """Precomputes values that depend only on the weights, for a model that is exported and not trained further."""

    def get_config(self) -> dict[str, Any]:
        return {"feature_map": self.feature_map.to_json(), **self._hyperparameters}

    def build_from_config(self, config: dict[str, Any]) -> None:
        # By default Keras would call the model with float ids, fail, and load a .keras file without its weights.
        self(empty_row(self.feature_map))

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Self:
        return cls(**{**config, "feature_map": FeatureMap.from_json(config["feature_map"])})

    @classmethod
    def options_of_stage(cls, later: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the non-default hyperparameters with which this model is trained before a later model.

        Args:
            later: All hyperparameters of the later model, including defaults. Using them gives shared layers the same
                shape.
        """
        defaults = cls.options()
        unused = () if "hidden_units" in defaults else ("normalization", "normalization_place")
        of_own = {key: value for key, value in later.items() if key in defaults and key not in unused}
        return {key: value for key, value in of_own.items() if value != defaults[key]}

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Returns all hyperparameters with their defaults, including those of base classes that receive `**options`."""
        defaults: dict[str, Any] = {}
        for parameters in _constructors(cls):
            for parameter in parameters:
                if parameter.default is not parameter.empty and parameter.name not in NO_OPTIONS:
                    defaults.setdefault(parameter.name, parameter.default)
        return defaults

    @classmethod
    def options_without_default(cls) -> tuple[str, ...]:
        """Returns the hyperparameters without a default, including those of base classes that receive `**options`."""
        return tuple(name for parameters in _constructors(cls) for name in _without_default(parameters))

    @classmethod
    def required_options(cls) -> tuple[str, ...]:
        """Returns the hyperparameters without a default in the class's own constructor.

        That constructor may itself give those of its base classes.
        """
        return tuple(_without_default(list(inspect.signature(cls.__init__).parameters.values())))


def _constructors(model: type) -> Iterator[list[inspect.Parameter]]:
    """Yields the parameters of a class's constructor, and then of each base class's that receives `**options`."""
    for owner in model.__mro__:
        parameters = list(inspect.signature(vars(owner).get("__init__", object.__init__)).parameters.values())
        yield parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return


def _without_default(parameters: Sequence[inspect.Parameter]) -> Iterator[str]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for each in parameters[2:]:  # without self and the FeatureMap
        if each.default is each.empty and each.kind in named and each.name not in NO_OPTIONS:
            yield each.name


def batch_size(inputs: Inputs) -> Tensor:
    """Returns the number of rows of packed tensors."""
    return ops.shape(next(inputs[name] for name in ("ids", "dense", "tokens") if name in inputs))[0]


def empty_row(feature_map: FeatureMap) -> dict[str, np.ndarray]:
    """Returns one row of packed tensors, all zero, to build a model with."""
    inputs: dict[str, np.ndarray] = {}
    if feature_map.fields:
        inputs["ids"] = np.zeros((1, feature_map.total_slots), np.int32)
    if feature_map.dense:
        inputs["dense"] = np.zeros((1, feature_map.dense_width), np.float32)
    if feature_map.weighted_slots:
        inputs[SLOT_WEIGHTS] = np.zeros((1, len(feature_map.weighted_slots)), np.float32)
    if feature_map.text:
        inputs |= {name: np.zeros((1, feature_map.text.length), np.int32) for name in ("tokens", "segments")}
    if feature_map.numbers:
        inputs["numbers"] = np.zeros((1, 2 * len(feature_map.numbers)), np.int32)
    return inputs


def attention_of(layers: Iterable[keras.layers.Layer], rows: Tensor) -> list[Tensor]:
    """Returns the attention weights of each layer in a stack, (batch_size, heads, queries, tokens) each."""
    maps = []
    for layer in layers:
        rows, attention = layer(rows, return_attention=True)
        maps.append(attention)
    return maps


def fields_named(model: str, feature_map: FeatureMap, names: Sequence[str]) -> list[int]:
    """Returns the places of the named fields among all fields.

    Raises:
        ValueError: there is no such field, or one is named twice.
    """
    known = [field.name for field in feature_map.fields]
    if absent := [name for name in names if name not in known]:
        raise ValueError(f"{model}: {', '.join(map(str, absent))} is not a field; the fields are {', '.join(known)}")
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise ValueError(f"{model}: {twice[0]} is named twice; name each field once")
    return [known.index(name) for name in names]


def require_no_embedded(model: str, feature_map: FeatureMap) -> None:
    """Raises ValueError if the data has numbers of `transform: embed`."""
    if feature_map.embedded:
        raise ValueError(
            f"{model} makes no embeddings of numbers, as `transform: embed` of {', '.join(feature_map.embedded)} asks; "
            "take another transform, or a model that does, such as deepfm, dcn_v2 or mlp"
        )


def require_fields(model: str, feature_map: FeatureMap) -> None:
    """Raises ValueError if the data has only dense features."""
    if not feature_map.fields:
        raise ValueError(f"{model} needs at least one field; all features are dense")


def require_one_task(model: str, feature_map: FeatureMap) -> None:
    """Raises ValueError if the data has several tasks; for a model whose interaction is one number."""
    if len(feature_map.tasks) > 1:
        tasks = ", ".join(feature_map.tasks[:4]) + (", ..." if len(feature_map.tasks) > 4 else "")
        raise ValueError(f"{model} predicts one task; give one label or another model. Received: {tasks}")


def require_several_tasks(model: str, tasks: Sequence[str]) -> None:
    """Raises ValueError if the data has only one task; for a multi-task model."""
    if len(tasks) < 2:
        raise ValueError(f"{model} needs several labels; give a second one or another model. Received: {tasks[0]}")
