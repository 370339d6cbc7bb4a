"""The kind `text`."""

from typing import Literal

import pydantic

from ctrpipe.transforms.log.kinds.kind import Kind
from ctrpipe.transforms.log.section import ColumnNames

RANDOM = "random"  # encoder with random initial weights


class Text(Kind):
    """One or two texts, read as one sequence of tokens: [CLS] a [SEP], or [CLS] a [SEP] b [SEP].

    A configuration has at most one feature of this kind, for models that read a text.

    Example:
        features:
          - {columns: [query, title], kind: text, length: 16, tokens: vocabulary, separator: " ", top_k: 500}
    """

    kind: Literal["text"]
    """The kind of feature."""
    columns: ColumnNames = pydantic.Field(min_length=1, examples=[["query", "title"]])
    """One or two columns of text."""
    encoder: str = pydantic.Field("random", min_length=1, examples=["checkpoints/bert", "hf://owner/name@4f3e1c0"])
    """Initial weights of the model's text encoder: the folder of a HuggingFace checkpoint (BERT or RoBERTa),
    `hf://owner/name@revision`, or `random`. The revision is a commit, tag or branch. Without one the newest commit is
    used, which may change between runs. The lineage of a run records the commit.
    """
    length: int = pydantic.Field(ge=4, le=1 << 14, examples=[64])
    """Length of the sequence in tokens, special tokens included. Longer texts are truncated, shorter ones padded. Of
    a text at most 32 bytes for each of these tokens are read; with `tokens: vocabulary`, 8 tokens for each.
    """
    tokens: Literal["checkpoint", "vocabulary"] = "checkpoint"
    """`checkpoint` uses the checkpoint's tokenizer. `vocabulary` splits at `separator` and keeps the `top_k` tokens of
    the training rows; their ids follow the special tokens.
    """
    separator: str | None = pydantic.Field(None, min_length=1, examples=["|", " "])
    """Separator between two tokens (`tokens: vocabulary` only, which requires it)."""
    top_k: int | None = pydantic.Field(None, ge=1, examples=[300_000])
    """Maximum number of tokens in the vocabulary; null: no limit (`tokens: vocabulary` only)."""
    min_count: int = pydantic.Field(1, ge=1)
    """Tokens that occur less often than this in the training rows are not kept (`tokens: vocabulary` only)."""
    rank_by: Literal["count", "tf_idf"] = "count"
    """How `top_k` ranks the tokens: by count or by TF x IDF (`tokens: vocabulary` only)."""

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Text":
        if len(self.columns) > 2:
            raise ValueError(f"a text has one or two columns, not {len(self.columns)}; join them before")
        learnt = (self.separator, self.top_k, self.min_count, self.rank_by)
        if self.tokens == "checkpoint":
            if self.encoder == RANDOM:
                raise ValueError("encoder: random has no tokenizer; give a checkpoint, or tokens: vocabulary")
            if learnt != (None, None, 1, "count"):
                raise ValueError("separator, top_k, min_count and rank_by apply to tokens: vocabulary")
        elif self.separator is None:
            raise ValueError("tokens: vocabulary needs separator, such as '|' or ' '")
        return self

    @property
    def list_separator(self) -> str | None:
        return self.separator

    @property
    def counts_documents(self) -> bool:
        return self.rank_by == "tf_idf"

    def has_vocabulary(self, column: str) -> bool:
        return self.tokens == "vocabulary"

    def slots(self, column: str) -> dict[str, int]:
        return {}

    def meaning(self, column: str) -> tuple[object, ...]:
        return (self.kind, self.tokens, self.separator, self.length)
