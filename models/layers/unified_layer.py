"""A causal Transformer layer over items, user tokens and candidate tokens (OneTrans)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.one_history import is_shared

GROUPS = ("items", "user", "candidate")


@keras.saving.register_keras_serializable(package="ctrpipe")
class UnifiedLayer(keras.layers.Layer):
    """One causal Transformer layer over a sequence of [items, oldest first; user tokens; candidate tokens].

    `u = x + Attention(RMSNorm(x)) O`, `output = u + W2 gelu(W1 RMSNorm(u) + b1) + b2`. A token attends to itself and to
    the tokens before it. All items share their weights; every user and candidate token has weights of its own. Items
    and user tokens come before the candidate's, so they can be computed once for many candidates.

    Args:
        heads: int. Number of heads; must divide the width. Defaults to 2.
        ffn_dim: int. Width of the feed-forward networks' hidden layer. Defaults to 64.
        last: bool. Whether to compute only the candidate's tokens, as in the last layer, whose other outputs are not
            used.
            Defaults to False.
        dropout: float. Dropout rate of the attention's and the feed-forward network's outputs. Defaults to 0.

    Example:
        >>> items, user = keras.random.normal((2, 5, 4)), keras.random.normal((2, 2, 4))
        >>> candidate, is_item = keras.random.normal((2, 3, 4)), keras.ops.ones((2, 5), "bool")
        >>> outputs = UnifiedLayer(heads=2, ffn_dim=8)(items, user, candidate, is_item)
        >>> [keras.ops.shape(output) for output in outputs]  # (batch_size, tokens, width) each
        [(2, 5, 4), (2, 2, 4), (2, 3, 4)]

    Raises:
        ValueError: a size is not positive, or `heads` does not divide the width.

    References:
        Zhang et al., "OneTrans: Unified Feature Interaction and Sequence Modeling with One Transformer in Industrial
        Recommender", 2025, sections 3.3 and 3.5.
    """

    def __init__(
        self, heads: int = 2, ffn_dim: int = 64, last: bool = False, dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        require_positive(heads=heads, ffn_dim=ffn_dim)
        self.heads = heads
        self.ffn_dim = ffn_dim
        self.last = last
        self.dropout = dropout
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy) if dropout else None

    def build(
        self,
        items_shape: Shape,
        user_shape: Shape | None = None,
        candidate_shape: Shape | None = None,
        is_item_shape: Shape | None = None,
    ) -> None:
        assert candidate_shape is not None
        width = items_shape[-1]
        if width % self.heads:
            raise ValueError(f"`heads` should divide the width {width}. Received: heads={self.heads}")
        self.width = width
        tokens = {"items": 0, "user": user_shape[1] if user_shape else 0, "candidate": candidate_shape[1]}
        for group in GROUPS:
            if group == "user" and not tokens[group]:
                continue
            own = (tokens[group],) if tokens[group] else ()
            is_query = group == "candidate" or not self.last
            self._add(group, "norm", (width,), "ones")
            self._add(group, "key_value", (*own, width, 2 * width))
            if not is_query:
                continue
            self._add(group, "query", (*own, width, width))
            self._add(group, "out", (*own, width, width))
            self._add(group, "norm_ffn", (width,), "ones")
            self._add(group, "widen", (*own, width, self.ffn_dim))
            self._add(group, "widen_bias", (*own, self.ffn_dim), "zeros")
            self._add(group, "narrow", (*own, self.ffn_dim, width))
            self._add(group, "narrow_bias", (*own, width), "zeros")

    def _add(self, group: str, name: str, shape: Shape, initializer: str = "") -> None:
        # Glorot's limit for one matrix: Keras would take the tokens for a receptive field.
        limit = (6 / sum(shape[-2:])) ** 0.5
        drawn = initializer or keras.initializers.RandomUniform(-limit, limit)
        setattr(self, f"{group}_{name}", self.add_weight(name=f"{group}_{name}", shape=shape, initializer=drawn))

    def call(
        self, items: Tensor, user: Tensor | None, candidate: Tensor, is_item: Tensor, training: bool | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Maps (batch_size, tokens, width) of each group to the same shapes.

        Args:
            items: The states of the items, newest first, (batch_size, length, width), or (1, length, width) for all
                candidates.
            user: The states of the user's tokens, (batch_size, tokens, width), or (1, tokens, width) for all
                candidates; None for no tokens.
            candidate: The states of the candidate's tokens, (batch_size, tokens, width).
            is_item: False for padding, bool (batch_size, length), or (1, length).
            training: Whether dropout is on.

        Returns:
            The new states of the three groups. A last layer returns the items' and the user's states unchanged.
        """
        length = items.shape[1]
        key, value = self._keys_values("items", items)
        sees = is_item[:, None]  # (batch_size, 1, length)
        if not self.last:
            ages = ops.arange(length)
            older = ops.logical_or(ages[None] > ages[:, None], ages[None] == ages[:, None])
            # Padding sees itself alone, so that its softmax is defined; nothing sees padding.
            among = ops.logical_or(ops.logical_and(sees, older[None]), ops.eye(length, dtype="bool")[None])
            new_items = self._updated("items", items, self._attended("items", items, [(key, value, among)]), training)
        parts = [(key, value, sees)]
        new_user = user
        if user is not None:
            count = user.shape[1]
            own_key, own_value = self._keys_values("user", user)
            if not self.last:
                before = ops.tril(ops.ones((1, count, count), "bool"))
                attended = self._attended("user", user, [*parts, (own_key, own_value, before)])
                new_user = self._updated("user", user, attended, training)
            parts.append((own_key, own_value, ops.ones((1, 1, count), "bool")))
        count = candidate.shape[1]
        own_key, own_value = self._keys_values("candidate", candidate)
        before = ops.tril(ops.ones((1, count, count), "bool"))
        attended = self._attended("candidate", candidate, [*parts, (own_key, own_value, before)])
        new_candidate = self._updated("candidate", candidate, attended, training)
        return (items if self.last else new_items), new_user, new_candidate

    def _project(self, group: str, name: str, states: Tensor) -> Tensor:
        kernel = getattr(self, f"{group}_{name}")
        return ops.matmul(states, kernel) if len(kernel.shape) == 2 else ops.einsum("btw,twk->btk", states, kernel)

    def _normalised(self, group: str, name: str, states: Tensor) -> Tensor:
        wide = ops.cast(states, "float32")
        scale = ops.rsqrt(ops.mean(ops.square(wide), axis=-1, keepdims=True) + 1e-6)
        return ops.cast(wide * scale, states.dtype) * getattr(self, f"{group}_{name}")

    def _by_head(self, states: Tensor) -> Tensor:
        """Returns (batch_size, heads, tokens, width / heads)."""
        split = ops.reshape(states, (-1, states.shape[1], self.heads, self.width // self.heads))
        return ops.transpose(split, (0, 2, 1, 3))

    def _keys_values(self, group: str, states: Tensor) -> tuple[Tensor, Tensor]:
        both = self._project(group, "key_value", self._normalised(group, "norm", states))
        key, value = ops.split(both, 2, axis=-1)
        return self._by_head(key), self._by_head(value)

    def _attended(self, group: str, states: Tensor, parts: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        """Returns the attention of a group's tokens to several groups of keys, each with its visibility mask."""
        query = self._by_head(self._project(group, "query", self._normalised(group, "norm", states)))
        scores = []
        for key, _, sees in parts:
            score = self._products(query, ops.transpose(key, (0, 1, 3, 2)))
            score = ops.cast(score, "float32") / (self.width // self.heads) ** 0.5
            scores.append(ops.where(sees[:, None], score, -1e9))
        weights = ops.softmax(ops.concatenate(scores, axis=-1), axis=-1)
        ends = [0]
        for key, _, _ in parts:
            ends.append(ends[-1] + key.shape[2])
        mixed = sum(
            self._products(ops.cast(weights[..., start:end], value.dtype), value)
            for (_, value, _), start, end in zip(parts, ends, ends[1:], strict=False)
        )
        tokens = states.shape[1]
        return self._project(group, "out", ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, tokens, self.width)))

    def _products(self, left: Tensor, right: Tensor) -> Tensor:
        """Returns the matrix products per row and head; all rows may share the right matrix."""
        if not is_shared(left, right):
            return ops.matmul(left, right)
        # One large product per head instead of a small one per candidate.
        tokens = left.shape[2]
        flat = ops.reshape(ops.transpose(left, (1, 0, 2, 3)), (self.heads, -1, left.shape[3]))
        product = ops.reshape(ops.matmul(flat, right[0]), (self.heads, -1, tokens, right.shape[3]))
        return ops.transpose(product, (1, 0, 2, 3))

    def _updated(self, group: str, states: Tensor, attended: Tensor, training: bool | None) -> Tensor:
        if self.drop is not None:
            attended = self.drop(attended, training=training)
        states = states + attended
        hidden = self._project(group, "widen", self._normalised(group, "norm_ffn", states))
        hidden = ops.gelu(hidden + getattr(self, f"{group}_widen_bias"), approximate=False)
        outputs = self._project(group, "narrow", hidden) + getattr(self, f"{group}_narrow_bias")
        if self.drop is not None:
            outputs = self.drop(outputs, training=training)
        return states + outputs

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), heads=self.heads, ffn_dim=self.ffn_dim, last=self.last, dropout=self.dropout)
