"""Attributes one row's logit to its columns: with Shapley values for any model, or with gradients."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.common.metrics import EPSILON
from ctrpipe.models.base.feature_map import Text as TextMap
from ctrpipe.models.explain.shapley import draw_orders, shapley
from ctrpipe.pipeline.explain.explained_row import RowExplained, TokenAttribution, attributions_of, shown
from ctrpipe.pipeline.explain.importance import Score
from ctrpipe.transforms.features.derived.values import sources_of, with_derived
from ctrpipe.transforms.log.kinds.text import Text
from ctrpipe.transforms.log.payload import decoded
from ctrpipe.transforms.log.spec import TEXT, LogSpec

if TYPE_CHECKING:
    from ctrpipe.pipeline.explain.gradients import RowGradients


def shapley_of_row(
    score: Score,
    row: pa.Table,
    background: pa.Table | None,
    groups: dict[str, list[str]],
    orders: int,
    random: np.random.Generator,
) -> RowExplained:
    """Returns the Shapley values of a row's groups of columns, by sampling.

    Args:
        score: The model.
        row: The row, a table of one row.
        background: Rows that give the values of absent columns. One row is drawn for each pair of orders. None for
            missing values.
        groups: The columns of each group, by the group's name.
        orders: How many orders of the groups are drawn. The model scores (groups + 1) rows for each.
        random: Draws the orders and the background rows.
    """
    names = [column for members in groups.values() for column in members]
    group_of = [number for number, members in enumerate(groups.values()) for _ in members]
    others = _missing(row) if background is None else background
    together = {name: pa.concat_arrays([_array(row[name]), _array(others[name])]) for name in names}

    def logits(present: npt.NDArray[np.bool_], number: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        columns = {
            name: values.take(pa.array(np.where(present[:, group], 0, number + 1)))
            for (name, values), group in zip(together.items(), group_of, strict=True)
        }
        return logit_of(score(pa.table(columns)))

    drawn = draw_orders(len(groups), orders, random)
    shares = shapley(logits, drawn, np.repeat(random.integers(0, others.num_rows, len(drawn) // 2), 2))
    errors = [float(error) if np.isfinite(error) else None for error in shares.errors]
    attributions = attributions_of(row, groups, [float(value) for value in shares.columns], errors)
    return RowExplained(_probability(shares.logit), shares.logit, shares.baseline, attributions)


def gradients_of_row(
    model: "RowGradients",
    pack: Callable[[pa.Table], Mapping[str, npt.NDArray[Any]]],
    row: pa.Table,
    background: pa.Table | None,
    groups: dict[str, list[str]],
    spec: LogSpec,
) -> RowExplained:
    """Returns the integrated gradients of a row's groups of columns.

    Args:
        model: The model.
        pack: Returns the packed tensors of rows.
        row: The row, a table of one row.
        background: The start of the path: one row, or several rows whose embeddings are averaged. None for a row of
            missing values.
        groups: The columns of each group, by the group's name.
        spec: The description of the log.
    """
    packed = dict(pack(row))
    text = set(spec.text.columns if spec.text else ())
    if background is not None and background.num_rows > 1:
        by_column, tokens, integral = model.from_average(dict(pack(background)), packed)
    else:
        start = _missing(row) if background is None else background
        by_column, tokens, integral = model.between(dict(pack(start)), packed)
    made = {name: [name] for name in spec.derived}
    # A column that only derived ones are made of has no contribution of its own.
    groups = {name: members for name, members in groups.items() if set(members) & spec.feature_by_column.keys()} | made
    values = [
        sum(by_column.get(column, 0.0) for column in members)
        + (by_column.get(TEXT, 0.0) if text & set(members) else 0.0)
        for members in groups.values()
    ]
    attributions = attributions_of(_with_derived(row, spec), groups, values, [None] * len(values))
    names: list[str] = []
    if spec.text and model.feature_map.text:
        names = token_names(row, packed["tokens"][0], spec.text, model.feature_map.text)
    return RowExplained(
        _probability(integral.end),
        integral.end,
        integral.start,
        attributions,
        "gradients",
        # `zip` drops the padding after the names. Its contributions are 0.
        tuple(TokenAttribution(name, float(value)) for name, value in zip(names, tokens, strict=False)),
        integral.jumps,
    )


def token_names(row: pa.Table, tokens: npt.NDArray[Any], feature: Text, text: TextMap) -> list[str]:
    """Returns the text of each token, without padding. Without a vocabulary, it is `token` and the token's id.

    Args:
        row: The raw row.
        tokens: Its tokens, [T].
        feature: The description of the text's columns.
        text: The description of its tokens.
    """
    used = tokens[tokens != text.padding_id]
    if feature.tokens == "vocabulary":
        return _pieces(row, used, feature, text)
    from ctrpipe.transforms.text.tokenize import (
        read_tokenizer,  # lazy: TensorFlow takes 4 s, and a log without a text does not need it
    )

    try:
        vocabulary = read_tokenizer(feature.encoder)[0].vocabulary
    except InputError:
        vocabulary = []
    return [vocabulary[token] if token < len(vocabulary) else f"token {token}" for token in used]


def _pieces(row: pa.Table, used: npt.NDArray[Any], feature: Text, text: TextMap) -> list[str]:
    """Returns the tokens as written in the log: the first column's after [CLS], the second column's after [SEP]."""
    values = [shown(row[column][0].as_py()) or "" for column in feature.columns]
    columns = iter([[piece for piece in value.split(str(feature.separator)) if piece] for value in values])
    special = {text.classify_id: "[CLS]", text.separator_id: "[SEP]"}
    names: list[str] = []
    pieces: Iterator[str] = iter(())
    for token in used:
        if token in special:
            pieces = iter(next(columns, []))
        names.append(special[token] if token in special else next(pieces, f"token {token}"))
    return names


def _probability(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


def logit_of(probabilities: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Returns ln(p / (1 - p)), with p clipped to [1e-7, 1 - 1e-7]."""
    p = np.clip(np.asarray(probabilities, np.float64), EPSILON, 1 - EPSILON)
    return np.asarray(np.log(p) - np.log1p(-p))


def _missing(row: pa.Table) -> pa.Table:
    return pa.table({name: pa.nulls(1, _array(row[name]).type) for name in row.column_names})


def _with_derived(row: pa.Table, spec: LogSpec) -> pa.Table:
    """Returns the row with its derived columns."""
    names = list(spec.derived)
    sources = {name: _array(row[name]) for name in sources_of(names, spec)}
    return pa.table(dict(zip(row.column_names, row.columns, strict=True)) | with_derived(sources, names, spec))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return decoded(column.combine_chunks())
