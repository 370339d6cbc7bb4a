"""A table of vectors that another model computed, one for each value of a column."""

from typing import Literal

import pydantic

from ctrpipe.transforms.log.section import Section


class Pretrained(Section):
    """A file of vectors by key, such as the embeddings of all items, which the model reads beside the column's own ids.

    The vectors are frozen: they become one dense feature of the column, of `length` numbers, as of `kind: vector`. The
    model learns what to make of them, in a projection where it embeds its dense features. They travel in the exported
    graph, and a value that no training row has finds its vector too. A value without one has the vector 0; a run says
    how many values and training rows that are.

    Example:
        features:
          - columns: [item]
            kind: categorical
            pretrained: {path: vectors.parquet, length: 64, key: item_id, vector: embedding}
    """

    path: str = pydantic.Field(min_length=1, examples=["vectors.parquet", "vectors.npz"])
    """The file: Parquet with a column of keys and one of lists, or an .npz file of NumPy with an array of keys [rows]
    and one of vectors [rows, length]. No key may be there twice.
    """
    length: int = pydantic.Field(ge=1, le=1 << 14, examples=[64])
    """Number of elements of each vector."""
    key: str = "key"
    """Column or array of the keys, which are compared with the log's values: texts, or whole numbers."""
    vector: str = "vector"
    """Column or array of the vectors."""
    transform: Literal["none", "unit"] = "none"
    """`unit` scales each vector to length 1."""
