"""The real-valued parts of packed rows, which a model's gradients are taken by: embeddings, dense features, tokens."""

from typing import TYPE_CHECKING

from keras import ops

from ctrpipe.models.base.tensors import Inputs, Tensor

if TYPE_CHECKING:
    from ctrpipe.models.base.ctr_model import CTRModel

DENSE = "dense"


def row_parts(model: "CTRModel", inputs: Inputs) -> dict[str, Tensor]:
    """Returns what the model looks up for packed rows, and their dense features, by name.

    A part is (batch_size, units, width), or (batch_size, units) for the dense features: a slot's row of each table, a
    token's row of the token table. The rows of padding are zero.

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
    text = model.text_model()
    return parts if text is None else {**parts, **text.token_parts(inputs)}


def logits_by_parts(model: "CTRModel", inputs: Inputs, parts: Inputs) -> Tensor:
    """Returns the logits, float32 (batch_size, tasks), with the parts in place of what the model would look up.

    Args:
        model: A built model.
        inputs: The packed tensors, which say what is padding.
        parts: What `row_parts` returns, of as many rows.
    """
    gathered = {table.name: parts[table.name] for table in model.tables() if table.name in parts}
    others = {name: part for name, part in parts.items() if name not in gathered}
    return model({**inputs, **others}, training=False, gathered=gathered or None)
