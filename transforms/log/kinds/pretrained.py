"""A table of vectors that another model computed, one for each value of a column."""

from typing import Literal

import pydantic

from ctrpipe.transforms.log.section import Section

MOST_TUNED = 4096  # the principal axes of longer vectors take minutes


class Pretrained(Section):
    """A file of pretrained vectors by key, such as item embeddings, which the model reads in addition to the column's
    ids.

    Frozen vectors become one dense feature of the column with `length` numbers, as with `kind: vector`. A model that
    embeds dense features projects it to an embedding. A value without a vector gets zeros.

    With `freeze: false` the vectors are fine-tuned: they initialise the rows of the model's embedding table. A sequence
    with `shared_with: item` reads the same rows. If `embedding_dim` is smaller than `length`, a row is initialised with
    the vector's coordinates on the file's principal axes (without centering), which preserve inner products best. If it
    is larger, the remaining elements are random. A value without a vector is initialised at random.

    In both cases the exported graph contains the vectors, so a value that is not in the training rows has its vector as
    well. A run reports how many values and training rows have none.

    Example:
        features:
          - columns: [item]
            kind: categorical
            pretrained: {path: vectors.parquet, length: 64, key: item_id, vector: embedding}
          - columns: [shop]
            kind: categorical
            pretrained: {path: shops.npz, length: 16, freeze: false}
    """

    path: str = pydantic.Field(min_length=1, examples=["vectors.parquet", "vectors.npz"])
    """The file or its URL in a store: Parquet with a column of keys and one of lists, or an .npz file of NumPy with an
    array of keys [rows] and one of vectors [rows, length]. Keys must be unique.
    """
    length: int = pydantic.Field(ge=1, le=1 << 14, examples=[64])
    """Number of elements of each vector."""
    key: str = "key"
    """Column or array of the keys, which are compared with the log's values: texts, or whole numbers."""
    vector: str = "vector"
    """Column or array of the vectors."""
    transform: Literal["none", "unit"] = "none"
    """`unit` scales each vector to length 1."""
    freeze: bool = True
    """Whether the vectors stay as they are. false: fine-tune them; every key of the file then has an id of its own,
    also beyond `top_k` and below `min_count`, and `length` is at most 4,096.
    """

    @pydantic.model_validator(mode="after")
    def _can_be_tuned(self) -> "Pretrained":
        if not self.freeze and self.length > MOST_TUNED:
            raise ValueError(f"length: at most {MOST_TUNED:,} with freeze: false, found {self.length:,}; freeze it")
        return self
