"""The `data` and `features` parts of a run's configuration: one description of the log, from reader to servable."""

import collections
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pydantic

from ctrpipe.transforms.log.times import time_rules, zone_offsets

RANGE = re.compile(r"^(?P<prefix>.*?)(?P<first>\d+)\.\.(?P=prefix)(?P<last>\d+)$")
MAX_RANGE = 100_000
# What stands for a missing number or time unless a configuration says otherwise.
USUAL_MISSING = (
    *("NULL", "null", "Null", "NaN", "nan", "NAN", "-nan", "NA", "N/A", "n/a", "#N/A", "<NA>"),
    *("None", "none", "\\N", "-", "?"),
)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WHOLE_NUMBER = r"^([+-]?\d+)\.0*$"  # with decimals that are 0; the group is the number without them
RANDOM = "random"  # an encoder that starts from random weights
TEXT = "text"  # the name of the text's columns together, where columns are explained


def expand_names(names: list[str]) -> list[str]:
    """Expands ranges of names: ['label', 'I1..I3'] -> ['label', 'I1', 'I2', 'I3'].

    Raises:
        ValueError: a range is empty, or larger than any log.
    """
    expanded: list[str] = []
    for name in names:
        name_range = RANGE.match(name)
        if name_range:
            first, last = int(name_range["first"]), int(name_range["last"])
            if not 0 <= last - first < MAX_RANGE:
                raise ValueError(f"'{name}' should name 1 to {MAX_RANGE} columns")
            expanded += [f"{name_range['prefix']}{number}" for number in range(first, last + 1)]
        else:
            expanded.append(name)
    return expanded


# A value of the log in a configuration. YAML reads yes, 5 and NULL as what they mean; see `spellings`.
Word = bool | int | float | str | None
ColumnNames = Annotated[list[str], pydantic.AfterValidator(expand_names)]


class Section(pydantic.BaseModel):
    """A part of the configuration: unknown keys are errors, values do not change after validation.

    The docstring below a field is its description in docs/configuration.md, and what follows `Example:` in a class's
    docstring is YAML that a configuration may contain.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Split(Section):
    """How rows are divided into training, validation and test rows.

    Example:
        data: {split: {by: time, column: day, validation_from: "2026-05-01", test_from: "2026-06-01"}}
    """

    by: Literal["order", "hash", "time"] = "order"
    """`order` keeps the log's order: the last rows are the test set, those before them the validation set. `hash` draws
    rows by a hash of the seed, the file's number and the row's line in it. `time` compares `column` with two
    boundaries.
    """
    validation: float = pydantic.Field(0.1, gt=0, lt=1)
    """Share of the rows for validation (`order` and `hash`)."""
    test: float = pydantic.Field(0.1, gt=0, lt=1)
    """Share of the rows for the test (`order` and `hash`)."""
    column: str | None = pydantic.Field(None, examples=["day"])
    """Column that is compared, as text (`time` only)."""
    validation_from: str | None = pydantic.Field(None, examples=["2026-05-01"])
    """Rows from this value on, up to `test_from`, are validation rows (`time` only)."""
    test_from: str | None = pydantic.Field(None, examples=["2026-06-01"])
    """Rows from this value on are test rows (`time` only)."""

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Split":
        if self.validation + self.test >= 1:
            raise ValueError("validation and test together must be below 1, or nothing is left for training")
        times = (self.column, self.validation_from, self.test_from)
        if self.by == "time":
            if None in times:
                raise ValueError("by: time needs column, validation_from and test_from")
            if str(self.validation_from) >= str(self.test_from):
                raise ValueError("validation_from must be before test_from")
        elif times != (None, None, None):
            raise ValueError(f"column, validation_from and test_from go with by: time only, not with by: {self.by}")
        return self

    def seed(self, seed: int) -> int:
        """Returns the seed of the splits: the run's for a hash split, 0 for the others, which draw nothing."""
        return seed if self.by == "hash" else 0


class Label(Section):
    """What makes a row a positive one of a task.

    Example:
        data:
          labels:
            ctr: {column: clicked, positive: [click], negative: [noclick]}
            liked: {column: rating, threshold: 4}
    """

    column: str = pydantic.Field(min_length=1, examples=["clicked"])
    """The column of the log. With neither `positive` nor `threshold` it has 0 and 1, or false and true."""
    positive: list[Word] = pydantic.Field([], examples=[["click"], [2]])
    """Values of positive rows. 2 is also 2.0; `yes` and `true`, which are one value in YAML, are yes, true, on
    and 1.
    """
    negative: list[Word] = pydantic.Field([], examples=[["noclick"], [1]])
    """Values of negative rows, so that all others are malformed; empty: every value that is not positive."""
    threshold: float | None = pydantic.Field(None, examples=[4])
    """In place of `positive`: rows whose number is at least this one are positive."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _from_column(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Label":
        if self.threshold is not None and (self.positive or self.negative):
            raise ValueError("threshold takes the place of positive and negative; give one of them")
        if self.negative and not self.positive:
            raise ValueError("negative goes with positive, which is empty")
        both = sorted(spellings(self.positive) & spellings(self.negative))
        if both:
            raise ValueError(f"{', '.join(both)} is both positive and negative")
        return self


class LabelDelay(Section):
    """Labels that arrive after their rows, as clicks and conversions do: where they are, and how long they may take.

    A row is positive where its label came within `delay` of the row's own time, and a negative once that time is over.
    A row whose time was not over when the log was cut is left out, whatever is known of it: to keep the positives among
    such rows would raise their share, for the negatives beside them are not known yet. With
    `training.fake_negative_weighting` or `fake_negative_calibration` no row waits: it is a negative at once, and a
    positive beside that when its label comes.

    Example:
        data:
          format: parquet
          labels: {ctr: label}
          label_delay: {time: shown_at, delay: 3d, labels: ["clicks/*.csv"], key: id, label_time: clicked_at}
        features: [{kind: categorical, columns: [device]}]
    """

    time: str = pydantic.Field(min_length=1, examples=["shown_at"])
    """The column of the row's time. Times are understood to the minute, without a zone as UTC."""
    delay: str = pydantic.Field(examples=["90m", "3d"])
    """How long a label may take: a number of minutes, hours or days, as 90m, 12h or 3d. A label that comes later does
    not count, so that all rows have had equally long.
    """
    labels: list[str] = pydantic.Field([], examples=[["clicks/*.csv"]])
    """Files and globs of the labels, which a run joins with the log; empty: the log has its labels, and rows that are
    too new are left out.
    """
    key: str | None = pydantic.Field(None, examples=["id"])
    """The column that the log and the labels have in common."""
    label_time: str | None = pydantic.Field(None, examples=["clicked_at"])
    """The column of the label's time in `labels`; null: every label counts, however late it came."""
    unmatched: str = "0"
    """The label of rows that the labels lack."""
    until: str | None = pydantic.Field(None, examples=["2026-11-02T00:00:00Z"])
    """The moment the log was cut, to which labels are known; null: the newest time in the log and the labels."""
    since: str | None = pydantic.Field(None, examples=["2026-11-01T00:00:00Z"])
    """The moment the last training's log was cut: what was known then is left out, so that a warm start reads every row
    once, although its label comes days later; null: nothing was.
    """
    time_format: str = pydantic.Field("auto", examples=["iso8601", "%d/%b/%Y:%H:%M:%S %z"])
    """How the times are written, as `format` of a column of kind `time`."""
    validation: float = pydantic.Field(0.1, ge=0, lt=1)
    """With fake negatives, the share of the rows, drawn by a hash of the key, that wait for their labels and validate.
    """
    test: float = pydantic.Field(0.1, ge=0, lt=1)
    """The same for the test."""

    @property
    def minutes(self) -> float:
        """The delay in minutes."""
        return float(self.delay[:-1]) * {"m": 1, "h": 60, "d": 1440}[self.delay[-1]]

    @pydantic.field_validator("delay")
    @classmethod
    def _positive(cls, value: str) -> str:
        if not re.fullmatch(r"\d+(\.\d+)?[mhd]", value) or not float(value[:-1]):
            raise ValueError(f"'{value}' is no delay above 0; write minutes, hours or days, as 90m, 12h or 3d")
        return value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "LabelDelay":
        time_rules(self.time_format)
        if self.labels and self.key is None:
            raise ValueError("labels are joined by a key; name the column that both have")
        if self.label_time is not None and not self.labels:
            raise ValueError("label_time is a column of labels, which are not given; name their files")
        if self.label_time is not None and self.label_time == self.key:
            raise ValueError("key and label_time must be two columns")
        if self.validation + self.test >= 1:
            raise ValueError("validation and test together must be below 1, or nothing is left for training")
        return self


def spellings(values: Sequence[Word]) -> set[str]:
    """Returns how a log may write values of a configuration: 2 as '2' or '2.0', true as YAML 1.1 writes it."""
    found: set[str] = set()
    for value in values:
        if isinstance(value, bool):
            words = ("1", "true", "yes", "on") if value else ("0", "false", "no", "off")
            found |= {spelt for word in words for spelt in (word, word.capitalize(), word.upper())}
        elif value is None:
            found |= {"null", "Null", "NULL", "~"}
        elif isinstance(value, str):
            found.add(value)
        else:
            found |= {str(int(value)), f"{int(value)}.0"} if value == int(value) else {str(value)}
    return found


class Data(Section):
    """The raw log: where it is, what its lines look like, how it is split.

    Example:
        data:
          paths: ["logs/*.tsv.gz"]
          format: tsv
          columns: [label, I1..I13, C1..C26]
          labels: {ctr: label}
          split: {by: order, validation: 0.1, test: 0.1}
        features: [{columns: [I1..I13], kind: numeric}]
    """

    paths: list[str] = pydantic.Field([], examples=[["logs/2026-05-*.tsv.gz"]])
    """Files and globs, in the log's order; `--data` on the command line takes their place."""
    format: Literal["tsv", "csv", "jsonl", "parquet"] = "tsv"
    """Format of the files: tab- or comma-separated text, or JSON lines, UTF-8, plain, gzip (`.gz`) or zstd (`.zst`); or
    Parquet.
    """
    header: bool = False
    """Whether the first line of each text file names the columns. Parquet and JSON lines always name theirs."""
    columns: ColumnNames = pydantic.Field([], examples=[["label", "I1..I13"]])
    """Names of a headerless file's columns, in order; `I1..I13` is short for thirteen names. With a header, or Parquet,
    it may be left out, or lists columns that the header must have.
    """
    partitions: list[str] = pydantic.Field([], examples=[["day"]])
    """Columns whose value is in the names of the files' folders, as in `day=2026-11-01/part-0.parquet`."""
    quoted_line_breaks: bool = False
    """Whether a quoted value of `csv` may have line breaks in it (RFC 4180). A file is then read by one process."""
    delimiter: str | None = pydantic.Field(None, examples=[";", "|"])
    """One character between two values of a line; null: the tab of `tsv`, the comma of `csv`. Values of `csv` may be
    quoted, those of `tsv` are as they stand.
    """
    decimal: Literal[".", ","] = "."
    """What stands before a number's decimals."""
    missing_values: list[Word] | None = pydantic.Field(None, examples=[["NULL", "unknown", -1]])
    """Words that mean a missing value, in every column but the labels, besides the empty one. null: in columns of
    numbers and times the usual ones (NULL, NaN, NA, N/A, None, \\N, -, ? and their like), in others none.
    """
    labels: dict[str, Label] = pydantic.Field(
        min_length=1, examples=[{"ctr": "click"}, {"ctr": {"column": "clicked", "positive": ["click"]}}]
    )
    """Maps each task to its column of 0 and 1, or to a mapping that says which values are positive; the first task is
    the primary one, which gates and early stopping judge.
    """
    weight: str | None = pydantic.Field(None, min_length=1, examples=["weight"])
    """Column of the rows' weights, numbers of 0 and more: a row of weight 2 counts as the row twice, in the training,
    in metrics and gates. It is no feature, and a request does not have it. null: every row counts once.
    """
    split: Split = Split()
    """How rows are divided into training, validation and test rows."""
    label_delay: LabelDelay | None = None
    """How labels that arrive later are joined with the log, which `data` then describes (`format: parquet`, all columns
    as text); null: the log has its labels, and all rows count.
    """
    negative_sampling: float = pydantic.Field(1.0, gt=0, le=1, examples=[0.1])
    """Share of the negatives that training reads, drawn by the seed; all positives stay. Training and validation rows
    are sampled. Test rows are not, nor are the rows of which vocabularies and statistics are made. The trained model's
    logits are corrected by the logarithm of this share, so that its probabilities are those of all rows.
    """
    max_bad_row_rate: float = pydantic.Field(0.01, ge=0, le=1)
    """Share of malformed rows above which the run stops; below it they go to `dead_letter/`. A log with twice as many
    is not read to its end.
    """
    max_distinct_values: int = pydantic.Field(2_000_000, ge=1)
    """Different values of a column that are counted exactly. With more, rare ones are counted as fewer than they are,
    by at most the column's rows / (max_distinct_values + 1); the run says by how much.
    """

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Data":
        if self.is_table and not self.header and not self.columns:
            raise ValueError("columns must be listed when the file has no header")
        repeated = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if repeated:
            raise ValueError(f"columns are listed twice: {', '.join(repeated)}")
        if self.delimiter is not None:
            if not self.is_table:
                raise ValueError(f"delimiter goes with csv and tsv, not with {self.format}")
            if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
                raise ValueError(f"delimiter must be one ASCII character other than a quote, not {self.delimiter!r}")
        if self.quoted_line_breaks and self.format != "csv":
            raise ValueError(f"quoted_line_breaks goes with csv, whose values may be quoted, not with {self.format}")
        both = sorted(set(self.partitions) & set(self.columns))
        if both:
            raise ValueError(f"columns lists {', '.join(both)}, which partitions takes from the folders' names")
        if self.label_delay and self.format != "parquet":
            raise ValueError(f"label_delay: the joined log is Parquet; write format: parquet, not {self.format}")
        if self.negative_sampling < 1 and len(self.labels) > 1:
            raise ValueError("negative_sampling goes with one label: no constant corrects the logits of several")
        for task in self.labels:
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", task):
                raise ValueError(f"'{task}' is no task name: use letters, digits and _")
        return self

    @pydantic.model_validator(mode="after")
    def _one_rule_a_column(self) -> "Data":
        rules: dict[str, Label] = {}
        for label in self.labels.values():
            if rules.setdefault(label.column, label) != label:
                raise ValueError(f"labels: two tasks read {label.column} in two ways; write it to a second column")
        return self

    @property
    def columns_by_task(self) -> dict[str, str]:
        """The column of each task's label."""
        return {task: label.column for task, label in self.labels.items()}

    @property
    def is_table(self) -> bool:
        """Whether the files are text whose values a delimiter separates."""
        return self.format in ("tsv", "csv")

    @property
    def separator(self) -> str:
        """The character between two values of a line."""
        return self.delimiter or ("," if self.format == "csv" else "\t")


class _Columns(Section):
    columns: ColumnNames = pydantic.Field(min_length=1, examples=[["I1..I13"], ["device", "shop"]])
    """Columns of the log that are treated alike; `I1..I13` is short for thirteen names."""
    role: Literal["feature", "position", "item"] = "feature"
    """`position`: the place where an ad was shown, which is not known when a model is asked: `serving.position` may
    give it one value for every request. `item`: the column is the candidate's, as every column is that `shared_with`
    names; `two_tower` and `starspace` make a vector of these columns and one of the rest, and a request of many
    candidates (`serving_candidates`) has a value of these columns for each and one of the rest.
    """


class Numeric(_Columns):
    """A number, as a bucket or as a dense feature of the training rows' distribution.

    Buckets: `log_bucketize`: floor(ln x); `bars_bucketize`: floor(ln(x)^2) for x > 2, else x (BARS);
    `quantile_bucketize`: `buckets` of equally many rows; `min_max`: floor((x - min) / (max - min) * (buckets - 1)),
    clipped to the first and the last (BERT4CTR, section 3.2).

    Dense: `standardize`: (x - mean) / standard deviation, missing = 0; `quantile_normalize`: to uniform in [0, 1] by
    linear interpolation between 1,000 quantiles, missing = 0.5 (Hiformer, section 3.1.2).

    Example:
        features:
          - {columns: [I1..I13], kind: numeric, transform: quantile_bucketize, buckets: 50}
          - {columns: [age], kind: numeric, transform: standardize}
    """

    kind: Literal["numeric"]
    """The kind of feature."""
    transform: Literal[
        "log_bucketize", "bars_bucketize", "quantile_bucketize", "min_max", "standardize", "quantile_normalize"
    ] = "log_bucketize"
    """What becomes of the number: the first four give a bucket (a field), the last two a dense feature."""
    buckets: int | None = pydantic.Field(None, ge=2, examples=[50])
    """Number of buckets of `quantile_bucketize`, which needs it, and of `min_max`; null: 101 of `min_max`."""

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Numeric":
        if self.transform == "quantile_bucketize" and self.buckets is None:
            raise ValueError("transform: quantile_bucketize needs buckets")
        if self.buckets is not None and self.transform not in ("quantile_bucketize", "min_max"):
            raise ValueError(f"buckets goes with quantile_bucketize and min_max, not with {self.transform}")
        return self

    @property
    def is_dense(self) -> bool:
        """Whether the column becomes a dense feature, not a field."""
        return self.transform in ("standardize", "quantile_normalize")


class _Vocabulary(_Columns):
    """A vocabulary: values of the training rows that have an id of their own; the rest shares the unknown ids."""

    top_k: int | None = pydantic.Field(None, ge=1, examples=[500_000])
    """Size of the vocabulary: so many of the most frequent values of the training rows; null: all of them."""
    min_count: int = pydantic.Field(1, ge=1)
    """A value that occurs less often among the training rows is not in the vocabulary."""
    oov_buckets: int = pydantic.Field(1, ge=1)
    """Ids of values outside the vocabulary, which share them by a hash of the value."""


class Categorical(_Vocabulary):
    """A value out of many.

    Example:
        features:
          - {columns: [device, shop], kind: categorical, top_k: 500000, min_count: 10}
          - {columns: [user], kind: categorical, transform: hash, buckets: 100000}
    """

    kind: Literal["categorical"]
    """The kind of feature."""
    transform: Literal["vocabulary", "hash"] = "vocabulary"
    """`vocabulary` gives the training rows' values ids of their own; `hash` gives one of `buckets` ids by a hash."""
    buckets: int | None = pydantic.Field(None, ge=2, examples=[100_000])
    """Number of ids of `hash`, which needs it."""
    whole_numbers: bool = False
    """Whether 123.0 is the value 123, as ids become where a program read them as numbers."""
    missing_rate: float = pydantic.Field(0.0, ge=0, lt=1)
    """Share of the training rows' values that is made missing, so that the missing id is trained; a value outside the
    vocabulary then takes that id (BERT4CTR's robust training, appendix A.2).
    """

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Categorical":
        if (self.transform == "hash") != (self.buckets is not None):
            raise ValueError("buckets goes with transform: hash, and hash needs it")
        if self.transform == "hash" and (self.top_k, self.min_count, self.oov_buckets) != (None, 1, 1):
            raise ValueError("top_k, min_count and oov_buckets go with transform: vocabulary, not with hash")
        if self.missing_rate and self.oov_buckets > 1:
            raise ValueError("with missing_rate an unknown value is missing, so that oov_buckets must be 1")
        return self


class Multivalent(_Vocabulary):
    """Several values in one string, as `615|1545|75`; the field's embedding is the sum of their embeddings.

    Example:
        features: [{columns: [interests], kind: multivalent, max_length: 10, top_k: 50000}]
    """

    kind: Literal["multivalent"]
    """The kind of feature."""
    separator: str = pydantic.Field("|", min_length=1)
    """What stands between two values."""
    max_length: int = pydantic.Field(ge=1, examples=[10])
    """Values that are read of one string, at most."""


class ItemSequence(_Vocabulary):
    """What a user did before, as `50|172|133`: items in their order, the newest last.

    The columns of one entry are aligned: the values at one place are of one event, so that a row's columns have equally
    many values, and an empty value is a missing one. A row without values is a user without history. The models of
    [histories](models.md#histories) read the items one by one; every other model reads them as one field, by `pooling`.

    Example:
        features:
          - {columns: [item, genre], kind: categorical}
          - {columns: [items, genres], kind: sequence, shared_with: [item, genre], max_length: 50}
    """

    kind: Literal["sequence"]
    """The kind of feature."""
    separator: str = pydantic.Field("|", min_length=1)
    """What stands between two values."""
    max_length: int = pydantic.Field(ge=1, examples=[50])
    """Values that are kept of one row, at most: the last ones."""
    shared_with: list[str | None] = pydantic.Field([], examples=[["item", "genre", None]])
    """The categorical column, or one for each of `columns`, whose vocabulary and embeddings the values share; null or
    empty: a vocabulary of their own. The values of both columns are counted for it. It may be a sequence with a
    vocabulary of its own too, as the words of a document are those of a query; a model of histories then finds no
    candidate in it, `starspace` and `two_tower` read both.
    """
    pooling: Literal["sum", "mean", "attention"] = "mean"
    """What becomes of a sequence in a model that has one embedding a field: sum or mean of the items' embeddings, or
    their mean weighted by the softmax of their dot products with the embedding of `shared_with`'s column.
    """

    @pydantic.field_validator("shared_with", mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "ItemSequence":
        if self.shared_with and len(self.shared_with) != len(self.columns):
            raise ValueError(
                f"shared_with has {len(self.shared_with)} entries for {len(self.columns)} columns; give one for each"
            )
        if self.shared_with and None not in self.shared_with:
            if (self.top_k, self.min_count, self.oov_buckets) != (None, 1, 1):
                raise ValueError(
                    "top_k, min_count and oov_buckets of a shared vocabulary stand with the column in shared_with"
                )
        elif self.pooling == "attention":
            raise ValueError("pooling: attention needs shared_with, the column whose value attends to the sequence")
        return self

    def owner_of(self, column: str) -> str:
        """Returns the column whose vocabulary a column's values have."""
        owner = self.shared_with[self.columns.index(column)] if self.shared_with else None
        return owner or column


class Time(_Columns):
    """A moment. Gives the fields `<column>_hour`, `<column>_weekday` and `<column>_is_weekend`.

    A value that is no time of the format makes its row malformed, as a text in a column of numbers does.

    Example:
        features:
          - {columns: [hour], kind: time}
          - {columns: [shown_at], kind: time, format: iso8601, timezone: Europe/Berlin}
          - {columns: [day], kind: time, format: "%d.%m.%Y"}
    """

    kind: Literal["time"]
    """The kind of feature."""
    format: str = pydantic.Field("auto", examples=["iso8601", "%d/%b/%Y:%H:%M:%S %z"])
    """How times are written: `yymmddhh`; `epoch_seconds`; `epoch_milliseconds`; `iso8601`, a date alone or with a time,
    with a zone or without; a pattern of strptime. `auto` knows each value by its form: the four, and YYYYMMDDHH, where
    an epoch has 9 or 10 digits (12 or 13 in milliseconds) and is before 2033. A date alone has no hour. Parquet's dates
    and timestamps are `iso8601`.
    """
    timezone: str = pydantic.Field("UTC", examples=["Europe/Berlin"])
    """The zone whose hours and weekdays are meant. Epochs and times with a zone are converted to it; times without a
    zone are taken as they stand.
    """

    @pydantic.model_validator(mode="after")
    def _readable(self) -> "Time":
        time_rules(self.format)
        zone_offsets(self.timezone)
        return self


class Text(Section):
    """One or two texts, read as one sequence of tokens: [CLS] a [SEP], or [CLS] a [SEP] b [SEP].

    A configuration has one feature of this kind at most, for the models with a text.

    Example:
        features:
          - {columns: [query, title], kind: text, length: 16, tokens: vocabulary, separator: " ", top_k: 500}
    """

    kind: Literal["text"]
    """The kind of feature."""
    columns: ColumnNames = pydantic.Field(min_length=1, examples=[["query", "title"]])
    """The one or two columns."""
    encoder: str = pydantic.Field("random", min_length=1, examples=["checkpoints/bert", "hf://owner/name@4f3e1c0"])
    """Where the model's text encoder starts from: the folder of a HuggingFace checkpoint (BERT or RoBERTa),
    `hf://owner/name@revision`, or `random`. A revision is a commit, tag or branch; without one the newest is taken,
    which may be another one tomorrow. The lineage of a run has the commit.
    """
    length: int = pydantic.Field(ge=4, le=1 << 14, examples=[64])
    """Tokens of the sequence, special tokens included; a longer one is cut, a shorter one padded."""
    tokens: Literal["checkpoint", "vocabulary"] = "checkpoint"
    """`checkpoint` takes the checkpoint's tokenizer; `vocabulary` splits at `separator` and keeps the `top_k` tokens of
    the training rows, behind the special tokens.
    """
    separator: str | None = pydantic.Field(None, min_length=1, examples=["|", " "])
    """What stands between two tokens (`tokens: vocabulary`, which needs it)."""
    top_k: int | None = pydantic.Field(None, ge=1, examples=[300_000])
    """Tokens that are kept, at most; null: all (`tokens: vocabulary` only)."""
    min_count: int = pydantic.Field(1, ge=1)
    """A token that occurs less often among the training rows is not kept (`tokens: vocabulary` only)."""
    rank_by: Literal["count", "tf_idf"] = "count"
    """Which tokens `top_k` keeps: those of the greatest count, or of the greatest TF x IDF (`tokens: vocabulary` only).
    """

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Text":
        if len(self.columns) > 2:
            raise ValueError(f"a text has one or two columns, not {len(self.columns)}; join them before")
        learnt = (self.separator, self.top_k, self.min_count, self.rank_by)
        if self.tokens == "checkpoint":
            if self.encoder == RANDOM:
                raise ValueError("encoder: random has no tokenizer; give a checkpoint, or tokens: vocabulary")
            if learnt != (None, None, 1, "count"):
                raise ValueError("separator, top_k, min_count and rank_by go with tokens: vocabulary")
        elif self.separator is None:
            raise ValueError("tokens: vocabulary needs separator, as '|' or ' '")
        return self


Feature = Annotated[
    Numeric | Categorical | Multivalent | ItemSequence | Time | Text, pydantic.Field(discriminator="kind")
]


class LogSpec(Section):
    """What the reader and the transform need to know: `data` and `features` together."""

    data: Data
    """The raw log: where it is, what its lines look like, how it is split."""
    features: list[Feature] = pydantic.Field(
        min_length=1, examples=[[{"columns": ["device"], "kind": "categorical", "min_count": 5}]]
    )
    """Groups of columns that the model sees, each with its kind and transform."""
    raw_numbers: bool = False
    """Whether columns of kind `numeric` also reach the model as the numbers of the log, with three significant digits.
    `numbert` and `numbert_uni_attention` have them without this key; a model of your own that reads them needs it.
    """

    @pydantic.model_validator(mode="after")
    def _columns_exist(self) -> "LogSpec":
        if len([feature for feature in self.features if feature.kind == "text"]) > 1:
            raise ValueError("features: there are two of kind text; a model reads one, of up to two columns")
        names = self.feature_columns
        repeated = sorted(name for name, count in collections.Counter(names).items() if count > 1)
        if repeated:
            raise ValueError(f"features: listed twice: {', '.join(repeated)}")
        labels = list(self.data.columns_by_task.values())
        leaked = sorted(set(names) & set(labels))
        if leaked:
            raise ValueError(f"features: the label {', '.join(leaked)} must not be a feature")
        if self.data.weight in names + labels:
            raise ValueError(f"data.weight: {self.data.weight} is a feature or a label too; name a column of its own")
        for column, owner in self.vocabulary_owners.items():
            if owner != column:
                shared = self.feature_by_column.get(owner)
                own_sequence = isinstance(shared, ItemSequence) and shared.owner_of(owner) == owner
                if not (own_sequence or isinstance(shared, Categorical)):
                    raise ValueError(
                        f"features: {column} has shared_with: {owner}, which is no categorical column and no sequence "
                        "with a vocabulary of its own"
                    )
                feature = self.feature_by_column[column]
                if own_sequence and isinstance(feature, ItemSequence) and feature.pooling == "attention":
                    raise ValueError(
                        f"features: {column} has pooling: attention, which {owner}, a sequence, cannot ask for"
                    )
                if isinstance(shared, Categorical) and shared.whole_numbers:
                    raise ValueError(f"features: {owner} has whole_numbers, which {column} cannot share")
        if self.data.columns:
            needed = names + labels + [c for c in [self.data.split.column, self.data.weight] if c]
            in_log = {*self.data.columns, *self.data.partitions}
            absent = [name for name in needed if name not in in_log]
            if absent:
                listed = ", ".join(absent)
                raise ValueError(f"data.columns does not list {listed}, which features, labels, weight or split need")
        return self

    @property
    def line_or_row(self) -> str:
        """What a number in a message counts, from 1: lines of a text file, rows of Parquet."""
        return "row" if self.data.format == "parquet" else "line"

    def columns_of(self, *kinds: str) -> list[str]:
        """Returns the columns of the features of some kinds."""
        return [column for feature in self.features if feature.kind in kinds for column in feature.columns]

    @property
    def feature_by_column(self) -> dict[str, Feature]:
        """The feature of each column."""
        return {column: feature for feature in self.features for column in feature.columns}

    @property
    def vocabulary_columns(self) -> list[str]:
        """Columns whose training values become a vocabulary."""
        return [
            column
            for column, feature in self.feature_by_column.items()
            if isinstance(feature, Multivalent)
            or isinstance(feature, ItemSequence)
            and feature.owner_of(column) == column
            or isinstance(feature, Categorical)
            and feature.transform == "vocabulary"
            or isinstance(feature, Text)
            and feature.tokens == "vocabulary"
        ]

    @property
    def vocabulary_owners(self) -> dict[str, str]:
        """By each sequence's column the column whose vocabulary its values have, which may be itself."""
        return {
            column: feature.owner_of(column)
            for column, feature in self.feature_by_column.items()
            if isinstance(feature, ItemSequence)
        }

    @property
    def counted_columns(self) -> dict[str, str]:
        """By each column whose values are counted for a vocabulary the column that has it."""
        counted = {column: column for column in self.vocabulary_columns}
        shared = {column: owner for column, owner in self.vocabulary_owners.items() if owner in counted}
        return counted | shared

    @property
    def text(self) -> Text | None:
        """The text, where there is one."""
        return next((feature for feature in self.features if isinstance(feature, Text)), None)

    @property
    def quantile_columns(self) -> list[str]:
        """Columns whose transform needs quantiles of the training rows."""
        return self._numeric_with("quantile_bucketize", "quantile_normalize")

    @property
    def measured_columns(self) -> list[str]:
        """Columns whose transform needs numbers of the training rows."""
        return self._numeric_with("quantile_bucketize", "quantile_normalize", "min_max", "standardize")

    def _numeric_with(self, *transforms: str) -> list[str]:
        return [
            column
            for column, feature in self.feature_by_column.items()
            if isinstance(feature, Numeric) and feature.transform in transforms
        ]

    @property
    def written_columns(self) -> list[str]:
        """Columns that also reach the model as the numbers of the log."""
        return [
            column
            for column, feature in self.feature_by_column.items()
            if self.raw_numbers and isinstance(feature, Numeric) and feature.role != "position"
        ]

    @property
    def feature_columns(self) -> list[str]:
        """The columns of all features, in their order."""
        return [column for feature in self.features for column in feature.columns]

    @property
    def item_columns(self) -> list[str]:
        """The candidate's columns, in their order: those of the role item, and those that `shared_with` names."""
        owners = {owner for column, owner in self.vocabulary_owners.items() if owner != column}
        return [
            column
            for column, feature in self.feature_by_column.items()
            if column in owners or getattr(feature, "role", "") == "item"
        ]

    @property
    def item_column(self) -> str | None:
        """The candidate's own column: the first that `shared_with` names, else the first of the role item."""
        shared = [owner for column, owner in self.vocabulary_owners.items() if owner != column]
        return next(iter([*shared, *self.item_columns]), None)

    @property
    def candidate_columns(self) -> list[str]:
        """The columns that differ between the candidates of one request; empty where a request cannot have several.

        They are the candidate's columns, and all other columns are the context's. A text stands for the context where
        no column is the candidate's.
        """
        found = self.item_columns
        if not found and self.text:
            found = [name for name in self.feature_columns if name not in self.text.columns]
        return found if len(found) < len(self.feature_columns) else []

    @property
    def context_columns(self) -> list[str]:
        """The columns that all candidates of one request share; empty where a request cannot have several."""
        of_candidate = self.candidate_columns
        return [name for name in self.feature_columns if name not in of_candidate] if of_candidate else []

    @property
    def explained_columns(self) -> list[str]:
        """What an explanation attributes to: each column, and behind them the text's columns as one, named `text`."""
        columns = [name for name in self.feature_columns if not isinstance(self.feature_by_column[name], Text)]
        return [*columns, TEXT] if self.text else columns

    @property
    def numeric_columns(self) -> list[str]:
        """Columns that travel as float32."""
        return self.columns_of("numeric")

    @property
    def text_columns(self) -> list[str]:
        """Columns that travel as strings: everything that is not a number."""
        return self.columns_of("categorical", "multivalent", "sequence", "time", "text")

    @property
    def label_columns(self) -> list[str]:
        """The columns of the labels, the primary task's first."""
        return list(self.data.columns_by_task.values())

    @property
    def target_columns(self) -> list[str]:
        """The columns of numbers that say what a row teaches, and that no request has: the labels', the weight's."""
        return [*self.label_columns, *([self.data.weight] if self.data.weight else [])]

    def missing_words(self, feature: Feature) -> tuple[str, ...]:
        """Returns the words that mean a missing value in a feature's columns, besides the empty one."""
        if self.data.missing_values is not None:
            return tuple(sorted(spellings(self.data.missing_values)))
        return USUAL_MISSING if isinstance(feature, Numeric | Time) else ()

    @property
    def separators(self) -> dict[str, str]:
        """What stands between the elements of a list, by the columns that may have one."""
        return {
            column: feature.separator
            for column, feature in self.feature_by_column.items()
            if isinstance(feature, Multivalent | ItemSequence | Text) and feature.separator
        }

    @property
    def missing_numbers(self) -> tuple[float, ...]:
        """Numbers that mean a missing one, as -1."""
        return tuple(float(word) for word in spellings(self.data.missing_values or []) if NUMBER.fullmatch(word))
