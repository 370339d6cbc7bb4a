"""The real-valued parts of packed rows, for gradients: embeddings, dense features, token embeddings."""

from typing import TYPE_CHECKING

from keras import ops

from ctrpipe.models.base.tensors import Inputs, Tensor

if TYPE_CHECKING:
    from ctrpipe.models.base.ctr_model import CTRModel

DENSE = "dense"


def row_parts(model: "CTRModel", inputs: Inputs) -> dict[str, Tensor]:
    """Returns the embeddings and the dense features of packed rows, by name.

    A part is (batch_size, units, width), or (batch_size, units) for the dense features. A unit is a slot, for each
    embedding table, or a token, for the token table. The embeddings of padding slots are zero.

    Args:
        model: A built model.
        inputs: The packed tensors.
    """
    parts: dict[str, Tensor] = {}
    if "ids" in inputs:
        is_item = ops.expand_dims(ops.convert_to_tensor(inputs["ids"]) > 0, -1)
        for table in model.tables():
            rows = ops.take(table.table, inputs["ids"], axis=0)
            parts[table.name] = rows * ops.cast(is_item, rows.dtype)
    if DENSE in inputs:
        parts[DENSE] = ops.convert_to_tensor(inputs[DENSE])
    return {**parts, **model.token_parts(inputs)}


def logits_by_parts(model: "CTRModel", inputs: Inputs, parts: Inputs) -> Tensor:
    """Returns the logits, float32 (batch_size, tasks), from given parts instead of looked-up embeddings.

    Args:
        model: A built model.
        inputs: The packed tensors, which determine the padding.
        parts: Parts as returned by `row_parts`, for the same number of rows.
    """
    gathered = {table.name: parts[table.name] for table in model.tables() if table.name in parts}
    others = {name: part for name, part in parts.items() if name not in gathered}
    return model({**inputs, **others}, training=False, gathered=gathered or None)
