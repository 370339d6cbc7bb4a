"""The sections `data` and `features` of a configuration, which describe a log.

The reader, the transforms and the servable share this description.
"""

import collections
import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pydantic
import pydantic_core

from ctrpipe.transforms.log.derived.cross import Cross
from ctrpipe.transforms.log.derived.expression import Expression
from ctrpipe.transforms.log.derived.lookup import Lookup
from ctrpipe.transforms.log.derived.vector import VectorOf
from ctrpipe.transforms.log.derived.weighted import WeightedLists
from ctrpipe.transforms.log.first_bytes import codec_of, is_utf8_codec
from ctrpipe.transforms.log.impression_lists import ImpressionLists
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.kinds.kind import Kind
from ctrpipe.transforms.log.kinds.multivalent import Multivalent
from ctrpipe.transforms.log.kinds.numeric import Numeric
from ctrpipe.transforms.log.kinds.sequence import ItemSequence
from ctrpipe.transforms.log.kinds.text import Text
from ctrpipe.transforms.log.kinds.time import Time
from ctrpipe.transforms.log.kinds.vector import Vector
from ctrpipe.transforms.log.section import ColumnNames, Section
from ctrpipe.transforms.log.side_tables import Join
from ctrpipe.transforms.log.split import Split
from ctrpipe.transforms.log.times import time_rules
from ctrpipe.transforms.log.words import INFINITE, NUMBER, USUAL_MISSING
from ctrpipe.transforms.log.written import Written

FORMAT_NAMES = ("tsv", "csv", "jsonl", "json", "parquet", "orc", "avro")
TEXT = "text"  # name of all columns of the text together, in explanations


# A value of the log in a configuration. YAML parses yes, 5 and NULL as bool, int and None; see `spellings`.
Word = bool | int | float | str | None


class Label(Section):
    """The label of a task: its column, and which values are positive.

    Example:
        data:
          labels:
            ctr: {column: clicked, positive: [click], negative: [noclick]}
            liked: {column: rating, threshold: 4}
            order: {column: ordered, after: ctr}
            seconds: {column: watch_time, predicts: count}
    """

    column: str = pydantic.Field(min_length=1, examples=["clicked"])
    """Column of the log. Without `positive`, `negative` and `threshold`, its values must be 0 and 1, or false and true.
    """
    positive: list[Word] = pydantic.Field([], examples=[["click"], [2]])
    """Values of positive rows. 2 also matches 2.0. `yes` and `true` are the same value in YAML: both match yes, true,
    on and 1. Empty with `negative` given: every value that is not negative. `negative: [""]` makes a column such as the
    time of the click a label: a row is positive if it has one.
    """
    negative: list[Word] = pydantic.Field([], examples=[["noclick"], [1]])
    """Values of negative rows; rows with any other value are malformed. Empty: every value that is not positive.
    A row is malformed if its value differs from a positive value only in case or blanks.
    """
    threshold: float | None = pydantic.Field(None, examples=[4])
    """Rows whose number is at least this threshold are positive. Replaces `positive` and `negative`."""
    predicts: Literal["click", "mean", "median", "count"] = pydantic.Field("click", examples=["mean"])
    """What the model predicts. `click`: the probability of a positive row. The others predict a number,
    such as a watch time or the value of an order, in the number's own unit: `mean` its mean (squared error), `median`
    its median (absolute error, which large values sway less), `count` the mean of a number of at least 0 (Poisson's
    deviance; the prediction is never negative). Losses are in units of the training rows' standard deviation, or of
    their mean for `count`. The first task is a click.
    """
    after: str | None = pydantic.Field(None, examples=["click"])
    """Task that must have been positive for this event to be possible: an order after a click. A row whose label of
    that task is 0 or missing is left out of this task's loss and metrics: the model predicts P(order | click). A row
    with the event but without that task is malformed. That task must be listed before. null: every row counts.
    """

    @pydantic.model_validator(mode="before")
    @classmethod
    def _from_column(cls, value: object) -> Any:
        return {"column": value} if isinstance(value, str) else value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Label":
        if self.is_number and (self.positive or self.negative or self.threshold is not None):
            raise ValueError(f"predicts: {self.predicts} takes a number as it is; remove positive, negative, threshold")
        if self.threshold is not None and (self.positive or self.negative):
            raise ValueError("threshold replaces positive and negative; give one or the other")
        both = sorted(spellings(self.positive) & spellings(self.negative))
        if both:
            raise ValueError(f"{', '.join(both)} is both positive and negative")
        return self

    @property
    def is_number(self) -> bool:
        """Whether the model predicts a number, not a probability."""
        return self.predicts != "click"


class LabelDelay(Section):
    """Labels that arrive after their rows, such as clicks and conversions: where they are, and how long they may take.

    A row is positive if its label arrives within `delay` of the row's time, and negative after that. A row whose delay
    has not passed at the end of the log is left out, even if its label is known. Keeping only the known positives would
    raise their share, because the negatives of the same period are not known yet. With
    `training.fake_negative_weighting` or `fake_negative_calibration`, training rows do not wait: a row is a negative at
    once, and is repeated as a positive when its label arrives.

    Example:
        data:
          format: parquet
          labels: {ctr: label}
          label_delay: {time: shown_at, delay: 3d, labels: ["clicks/*.csv"], key: id, label_time: clicked_at}
        features: [{kind: categorical, columns: [device]}]
    """

    time: str = pydantic.Field(min_length=1, examples=["shown_at"])
    """Column of the row's time: a date or moment, or an epoch of seconds, ms, us or ns. Times without a zone are UTC.
    """
    delay: str = pydantic.Field(examples=["90m", "3d"])
    """How long a label may take, in minutes, hours or days: `90m`, `12h`, `3d`. Labels that arrive later are ignored,
    because older rows would otherwise have had more time to become positive.
    """
    labels: list[str] = pydantic.Field([], examples=[["clicks/*.csv"]])
    """Files and globs of the labels, which a run joins with the log. Empty: the log contains its labels, and only rows
    that are too new are left out.
    """
    key: str | None = pydantic.Field(None, examples=["id"])
    """Column to join by, which both the log and the labels have."""
    label_time: str | None = pydantic.Field(None, examples=["clicked_at"])
    """Column of the label's time in `labels`. null: every label counts, however late it arrived."""
    unmatched: str = "0"
    """Label of the rows whose key is not in `labels`."""
    until: str | None = pydantic.Field(None, examples=["2026-11-02T00:00:00Z"])
    """Time at which the log was cut: labels are known up to then. null: the newest time in the log and the labels."""
    since: str | None = pydantic.Field(None, examples=["2026-11-01T00:00:00Z"])
    """Time at which the log of the previous training run was cut. What was known by then is left out: a warm start
    reads every row once, even if its label arrives days later. null: nothing is left out.
    """
    time_format: str = pydantic.Field("auto", examples=["iso8601", "%d/%b/%Y:%H:%M:%S %z"])
    """How the times are written: see `format` of kind `time`."""
    validation: float = pydantic.Field(0.1, ge=0, lt=1)
    """With fake negatives: share of the rows that wait for their labels and become validation rows. They are drawn by a
    hash of the key.
    """
    test: float = pydantic.Field(0.1, ge=0, lt=1)
    """With fake negatives: share of the rows that wait for their labels and become test rows."""

    @property
    def minutes(self) -> float:
        """The delay in minutes."""
        return float(self.delay[:-1]) * {"m": 1, "h": 60, "d": 1440}[self.delay[-1]]

    @pydantic.field_validator("delay")
    @classmethod
    def _positive(cls, value: str) -> str:
        if not re.fullmatch(r"\d+(\.\d+)?[mhd]", value) or not float(value[:-1]):
            raise ValueError(f"'{value}' is not a delay above 0; write minutes, hours or days, such as 90m, 12h or 3d")
        return value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "LabelDelay":
        time_rules(self.time_format)
        if self.labels and self.key is None:
            raise ValueError("labels are joined by a key; name the column that both have")
        if self.label_time is not None and not self.labels:
            raise ValueError("label_time is a column of labels, and there are no labels; name their files")
        if self.label_time is not None and self.label_time == self.key:
            raise ValueError("key and label_time must be two columns")
        if self.validation + self.test >= 1:
            raise ValueError("validation and test together must be below 1, or nothing is left for training")
        return self


def spellings(values: Sequence[Word]) -> set[str]:
    """Returns the texts that match a configuration's values: '2' and '2.0' for 2, all YAML 1.1 words for true."""
    texts: set[str] = set()
    for value in values:
        if isinstance(value, bool):
            words = ("1", "true", "yes", "on") if value else ("0", "false", "no", "off")
            texts |= {spelt for word in words for spelt in (word, word.capitalize(), word.upper())}
        elif value is None:
            texts |= {"null", "Null", "NULL", "~"}
        elif isinstance(value, str):
            texts.add(value)
        else:
            texts |= {str(int(value)), f"{int(value)}.0"} if value == int(value) else {str(value)}
    return texts


class Data(Section):
    """The raw log: its files, their format, the labels and the split.

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
    """Files, globs, and folders of files or of subfolders such as `day=2026-11-01`, in the log's order. The files of a
    glob or folder are ordered by their names, in which numbers count as numbers: `day_2` before `day_10`. `--data` on
    the command line replaces them.
    """
    format: str = "tsv"
    """Format of the files: tab- or comma-separated text, JSON lines, a JSON array of objects, Parquet, ORC or Avro. A
    text is plain or compressed with gzip, bz2 or zstd, which a file's first bytes tell, whatever its name. Fields of
    nested objects are named with dots: `ad.campaign`. `tsv`, `csv`, `jsonl`, `json`, `parquet`, `orc` or `avro`, or the
    name of an installed package's reader (docs/hooks.md).
    """
    encoding: str = pydantic.Field("utf-8", examples=["utf-16", "cp1252", "latin-1", "gb18030"])
    """Encoding of the text, by Python's name of it. `utf-16` is read with and without a byte order mark. The values are
    UTF-8 from then on, in vocabularies and requests. Each file of another encoding than UTF-8 is read by a single
    process.
    """
    header: bool = False
    """Whether the first line of each file of `tsv` or `csv` names the columns. All other formats name theirs."""
    columns: ColumnNames = pydantic.Field([], examples=[["label", "I1..I13"]])
    """Column names of files without a header, in order; `I1..I13` expands to thirteen names. Optional for files that
    name their columns: if given, a header must have all of them.
    """
    partitions: list[str] = pydantic.Field([], examples=[["day"]])
    """Columns whose value is part of the folder names, as in `day=2026-11-01/part-0.parquet`."""
    quoted_line_breaks: bool = False
    """Whether quoted values of `csv` may contain line breaks (RFC 4180). Each file is then read by a single process."""
    delimiter: str | None = pydantic.Field(None, examples=[";", "|", "::"])
    """What stands between two values of a line: one character or several. null: a tab for `tsv`, a comma for `csv`.
    Values of `csv` may be quoted; values of `tsv` are taken literally.
    """
    escape: Literal["\\"] | None = pydantic.Field(None, examples=["\\"])
    """A backslash before a delimiter, a quote or a backslash means that sign itself, as Spark, Hive and MySQL write it.
    In `tsv`, `\\t`, `\\n` and `\\r` are a tab and line breaks too, and `\\N` alone is a missing value in both formats.
    null: a backslash is a sign as any other.
    """
    trim_spaces: bool = False
    """Whether blanks before and after a value that is not quoted are no part of it, as in `1, Berlin, 7.5`."""
    decimal: Literal[".", ","] = "."
    """Decimal separator of numbers."""
    missing_values: list[Word] | None = pydantic.Field(None, examples=[["NULL", "unknown", -1]])
    """Words that mean a missing value, in addition to the empty value, in every column except the labels. null: the
    usual words (NULL, NaN, NA, N/A, None, \\N, -, ? and similar) in columns of numbers and times, no words in others.
    """
    labels: dict[str, Label] = pydantic.Field(
        min_length=1, examples=[{"ctr": "click"}, {"ctr": {"column": "clicked", "positive": ["click"]}}]
    )
    """Maps each task to its label column of 0 and 1, or to a mapping that defines the positive values. The first task
    is the primary one, which gates and early stopping use. With several labels, a row may lack some of them (an empty
    value, or a word that means a missing one): it counts for the others, in training, calibration and metrics. A row
    without any label is malformed. A number between 0 and 1 is a rate, such as the clicks of a row's impressions;
    `weight` then names the column of the impressions.
    """
    weight: str | None = pydantic.Field(None, min_length=1, examples=["weight"])
    """Column of the rows' weights, numbers of at least 0. A row of weight 2 counts twice in training, metrics and
    gates. The weight is not a feature, and requests do not contain it. null: every row counts once.
    """
    split: Split = Split()
    """How rows are divided into training, validation and test rows."""
    label_delay: LabelDelay | None = None
    """How labels that arrive later are joined with the log. `data` then describes the joined log (`format: parquet`,
    all columns as text). null: the log contains its labels, and all rows count.
    """
    impressions: ImpressionLists | None = None
    """Lists of impressions, each item of which becomes a row. `data` then describes these rows (`format: parquet`, all
    columns as text). null: a row of the log is an impression already.
    """
    join: Join | None = None
    """Side tables that the log is joined with. `data` then describes the joined log (`format: parquet`, all columns as
    text). null: the log has all columns.
    """
    negative_sampling: float = pydantic.Field(1.0, gt=0, le=1, examples=[0.1])
    """Share of the negatives that training reads, drawn by the seed; all positives stay. Training and validation rows
    are sampled. Test rows are not, and vocabularies and statistics are computed from all training rows. The logits of
    the trained model are corrected by the logarithm of this share: its probabilities hold for the unsampled log.
    """
    max_bad_row_rate: float = pydantic.Field(0.01, ge=0, le=1)
    """Share of malformed rows above which the run stops. Malformed rows are written to `dead_letter/`. Above twice this
    share, the run stops before it has read the whole log.
    """
    max_distinct_values: int = pydantic.Field(2_000_000, ge=1)
    """Maximum number of distinct values of a column with exact counts. Above it, counts are too low by at most the
    column's rows / (max_distinct_values + 1), and the rarest values are lost. The run prints this bound.
    """

    @pydantic.field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            codec_of(value)
        except (LookupError, ValueError) as error:
            raise ValueError(f"'{value}' is not a text encoding; write utf-8, utf-16, latin-1 or cp1252") from error
        return value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Data":
        if self.is_table and not self.header and not self.columns:
            raise ValueError(
                "columns must be listed when the file has no header; list them, or set header: true if its first line "
                "names them"
            )
        repeated = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if repeated:
            raise ValueError(f"columns are listed twice: {', '.join(repeated)}")
        if self.delimiter is not None:
            if not self.is_table:
                raise ValueError(f"delimiter applies to csv and tsv, not to {self.format}")
            if not self.delimiter or set(self.delimiter) & set('"\r\n'):
                raise ValueError(f"delimiter must be characters other than quotes and line ends: {self.delimiter!r}")
        if self.has_typed_columns and not is_utf8_codec(self.encoding):
            raise ValueError(f"encoding applies to text formats; text in {self.format} is UTF-8: {self.encoding}")
        for key, value in (("escape", self.escape), ("trim_spaces", self.trim_spaces)):
            if value and not self.is_table:
                raise ValueError(f"{key} applies to csv and tsv, not to {self.format}; remove it")
        if self.escape and "\\" in (self.delimiter or ""):
            raise ValueError("escape: the delimiter has a backslash itself; remove escape")
        if self.quoted_line_breaks and self.format != "csv":
            raise ValueError(f"quoted_line_breaks applies to csv, not to {self.format}")
        if self.split.files and self.split.files.train and self.paths:
            raise ValueError("paths and split.files.train both name the training files; remove one of them")
        if self.split.files and self.label_delay:
            raise ValueError("label_delay joins the files of paths and cannot be combined with split: {by: files}")
        for key, section in (("join", self.join), ("impressions", self.impressions)):
            if section and self.split.files:
                raise ValueError(f"{key} reads the files of paths and cannot be combined with split: {{by: files}}")
            if section and self.format != "parquet":
                raise ValueError(f"{key}: a run writes Parquet and reads it; write format: parquet, not {self.format}")
        both = sorted(set(self.partitions) & set(self.columns))
        if both:
            raise ValueError(f"columns lists {', '.join(both)}, which partitions takes from the folders' names")
        if self.label_delay and self.format != "parquet":
            raise ValueError(f"label_delay: the joined log is Parquet; write format: parquet, not {self.format}")
        if self.negative_sampling < 1 and len(self.labels) > 1:
            raise ValueError("negative_sampling needs a single label: no constant corrects the logits of several")
        for task in self.labels:
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", task):
                raise ValueError(f"'{task}' is not a task name: use letters, digits and _")
        return self

    @pydantic.model_validator(mode="after")
    def _events_follow_one_another(self) -> "Data":
        before: list[str] = []
        for task, label in self.labels.items():
            if label.after is not None and (label.after not in before or self.labels[label.after].is_number):
                known = ", ".join(name for name in before if not self.labels[name].is_number) or "no task"
                raise ValueError(
                    f"labels.{task}: after: {label.after} is no task of clicks that is listed before; "
                    f"before {task} there is {known}"
                )
            before.append(task)
        if (first := self.labels[before[0]]).is_number:
            raise ValueError(
                f"labels: the first task, {before[0]}, predicts: {first.predicts}; early stopping and the gates "
                "need clicks; list a task of clicks before it"
            )
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
        """The label column of each task."""
        return {task: label.column for task, label in self.labels.items()}

    @property
    def number_tasks(self) -> dict[str, Label]:
        """The labels of the tasks that predict a number, by task."""
        return {task: label for task, label in self.labels.items() if label.is_number}

    @property
    def number_columns(self) -> dict[str, str]:
        """The kind of number that each regression label predicts, by column."""
        return {label.column: label.predicts for label in self.number_tasks.values()}

    @property
    def click_tasks(self) -> list[str]:
        """The tasks that predict a probability, in order."""
        return [task for task, label in self.labels.items() if not label.is_number]

    @property
    def is_table(self) -> bool:
        """Whether the files are delimited text."""
        return self.format in ("tsv", "csv")

    @property
    def has_typed_columns(self) -> bool:
        """Whether the files are Parquet, ORC or Avro."""
        return self.format in ("parquet", "orc", "avro")

    @property
    def separator(self) -> str:
        """The delimiter between values of a line."""
        return self.delimiter or ("," if self.format == "csv" else "\t")


Feature = Annotated[
    Numeric | Categorical | Multivalent | ItemSequence | Time | Vector | Text, pydantic.Field(discriminator="kind")
]


DerivedColumn = Annotated[Cross | Expression | Lookup | VectorOf | WeightedLists, pydantic.Field(discriminator="kind")]


class LogSpec(Section):
    """Description of a log for the reader and the transforms: `data` and `features` together."""

    data: Data
    """The raw log: its files, their format, the labels and the split."""
    features: list[Feature] = pydantic.Field(
        min_length=1, examples=[[{"columns": ["device"], "kind": "categorical", "min_count": 5}]]
    )
    """Groups of columns that the model reads, each with its kind and transform."""
    derived: dict[str, DerivedColumn] = pydantic.Field(
        {}, examples=[{"rate": {"kind": "expression", "of": "log1p(clicks / (shows + 1))"}}]
    )
    """Columns that are computed from others of the same row, by name, for `features` to read like columns of the log.
    The exported graph computes them: a request holds what they are made of.
    """
    raw_numbers: bool = False
    """Whether the model also receives the log's numbers of `numeric` columns, rounded to three significant digits.
    `numbert` and `numbert_uni_attention` receive them without this key; your own model that reads them needs it.
    """
    group: str | None = pydantic.Field(None, examples=["user"])
    """Column whose values group rows, such as users, for metrics and losses within groups. Set by the pipeline
    to `evaluation.group`.
    """

    @pydantic.model_validator(mode="after")
    def _columns_exist(self) -> "LogSpec":
        if len([feature for feature in self.features if feature.kind == "text"]) > 1:
            raise ValueError("features: there are two of kind text; a model reads one, of up to two columns")
        names = [column for feature in self.features for column in feature.columns]
        repeated = sorted(name for name, count in collections.Counter(names).items() if count > 1)
        if repeated:
            raise ValueError(f"features: listed twice: {', '.join(repeated)}")
        unprintable = [name for name in names if not name or any(unicodedata.category(sign) == "Cc" for sign in name)]
        if unprintable:
            raise ValueError(
                f"features: the column {unprintable[0]!r} has a name that cannot be printed on one line; rename it"
            )
        self._check_field_names()
        labels = list(self.data.columns_by_task.values())
        leaked = sorted(set(names) & set(labels))
        if leaked:
            raise ValueError(f"features: the label {', '.join(leaked)} must not be a feature")
        if self.data.weight in names + labels:
            raise ValueError(f"data.weight: {self.data.weight} is also a feature or a label; name a separate column")
        for feature in self.features:
            feature.check_shared(self.feature_by_column)
        self._check_derived()
        _ = self.number_forms  # raises ValueError where one sign is of thousands and of decimals
        names = self.feature_columns
        if leaked := [name for name in names if name in (*labels, self.data.weight)]:
            raise ValueError(f"derived: {leaked[0]} is a label or the weight, which no request has; remove it")
        if self.data.columns:
            if both := sorted(set(self.derived) & set(self.data.columns)):
                raise ValueError(f"derived.{both[0]}: data.columns has this name; choose another")
            needed = names + labels + [c for c in [self.data.split.column, self.data.weight] if c]
            in_log = {*self.data.columns, *self.data.partitions}
            absent = [name for name in needed if name not in in_log]
            if absent:
                listed = ", ".join(absent)
                raise ValueError(f"data.columns does not list {listed}, which features, labels, weight or split need")
        return self

    def _check_derived(self) -> None:
        features, of_candidate = self.feature_by_column, set(self.item_columns)
        for name, derived in self.derived.items():
            if name not in features:
                raise ValueError(f"derived.{name}: no feature reads it; list {name} in columns of one, or remove it")
            inner = [source for source in derived.sources() if source in self.derived]
            if inner:
                raise ValueError(f"derived.{name}: {inner[0]} is derived itself; name columns of the log")
            feature = features[name]
            wrong = [feature.does_not_take_derived, derived.does_not_fit(name, feature), *derived.faults(self.inputs)]
            if fault := next(filter(None, wrong), ""):
                raise ValueError(f"derived.{name}: {fault}")
            item = next((source for source in derived.sources() if source in of_candidate), None)
            if item and not feature.is_item:
                raise ValueError(
                    f"derived.{name}: {item} is a column of the candidate; write role: item for the feature {name}"
                )
        if self.data.columns or not self.derived:
            return
        both = sorted(set(self.derived) & set(self.data.partitions))
        if both:
            raise ValueError(f"derived.{both[0]}: data.partitions has this name; choose another")

    def _check_field_names(self) -> None:
        column_of: dict[str, str] = {}
        for column, feature in self.feature_by_column.items():
            for name in dict.fromkeys([*feature.slots(column), *([column] if feature.dense_width else [])]):
                if name in column_of:
                    first, second = column_of[name], column
                    raise ValueError(f"features: {first} and {second} both make a field {name}; rename one of them")
                column_of[name] = column

    @classmethod
    def of_model(cls, text: str | bytes) -> "LogSpec":
        """Parses a model's description of its log.

        In models of ctrpipe 0.2, only single values have whole_numbers. In their lists, 123.0 differs from 123.

        Raises:
            pydantic.ValidationError: the text is not a valid description.
        """
        described = pydantic_core.from_json(text)
        for feature in described.get("features", ()) if isinstance(described, dict) else ():
            if isinstance(feature, dict) and feature.get("kind") in ("multivalent", "sequence"):
                feature.setdefault("whole_numbers", bool(feature.get("shared_with")))
        return cls.model_validate(described)

    @property
    def line_or_row(self) -> str:
        """The unit of a row number in a message, counted from 1: "line" of a text, "row" of Parquet, ORC and Avro."""
        return "row" if self.data.has_typed_columns else "line"

    def columns_of(self, *kinds: str) -> list[str]:
        """Returns the columns of all features of the given kinds."""
        return [column for feature in self.features if feature.kind in kinds for column in feature.columns]

    @property
    def feature_by_column(self) -> dict[str, Feature]:
        """The feature of each column."""
        return {column: feature for feature in self.features for column in feature.columns}

    @property
    def inputs(self) -> dict[str, Feature]:
        """The kind of each column in a log or request: the features' columns and the sources of derived columns."""
        columns: dict[str, Feature] = {
            column: feature for column, feature in self.feature_by_column.items() if column not in self.derived
        }
        for derived in self.derived.values():
            for column, feature in derived.sources().items():
                columns.setdefault(column, feature)
        return columns

    @property
    def vocabulary_columns(self) -> list[str]:
        """Columns with their own vocabulary, built from the training rows."""
        return [column for column, feature in self.feature_by_column.items() if feature.has_vocabulary(column)]

    @property
    def vocabulary_owners(self) -> dict[str, str]:
        """Maps each column that shares a vocabulary to the column that owns it."""
        owners = {column: feature.owner_of(column) for column, feature in self.feature_by_column.items()}
        return {column: owner for column, owner in owners.items() if owner != column}

    @property
    def counted_columns(self) -> dict[str, str]:
        """Maps each column whose values are counted to the column that owns the vocabulary."""
        counted = {column: column for column in self.vocabulary_columns}
        shared = {column: owner for column, owner in self.vocabulary_owners.items() if owner in counted}
        return counted | shared

    @property
    def text(self) -> Text | None:
        """The feature of kind `text`; None without one."""
        return next((feature for feature in self.features if isinstance(feature, Text)), None)

    @property
    def quantile_columns(self) -> list[str]:
        """Columns whose transform uses quantiles of the training rows."""
        return [column for column, feature in self.feature_by_column.items() if feature.measured == "quantiles"]

    @property
    def measured_columns(self) -> list[str]:
        """Columns whose transform uses quantiles, range or moments of the training rows."""
        return [column for column, feature in self.feature_by_column.items() if feature.measured != "nothing"]

    @property
    def written_columns(self) -> list[str]:
        """Columns whose numbers the model also receives (`raw_numbers`)."""
        return [
            column
            for column, feature in self.feature_by_column.items()
            if self.raw_numbers and feature.is_number and not feature.is_position and column not in self.derived
        ]

    @property
    def feature_columns(self) -> list[str]:
        """The columns of a log or request that the features need, in order; see `inputs`."""
        return list(self.inputs)

    @property
    def item_columns(self) -> list[str]:
        """The candidate's columns, in order: columns of the role `item`, columns that `shared_with` names, and columns
        that are sources only of derived columns with this role.
        """
        owners, features = set(self.vocabulary_owners.values()), self.feature_by_column
        made = [derived for name, derived in self.derived.items() if name in features and features[name].is_item]
        sources = {source for derived in made for source in derived.sources()} - features.keys()
        return [column for column, feature in self.inputs.items() if column in owners | sources or feature.is_item]

    @property
    def item_column(self) -> str | None:
        """The candidate's id: the first column that `shared_with` names, else the first of the role `item`."""
        return next(iter([*self.vocabulary_owners.values(), *self.item_columns]), None)

    @property
    def candidate_columns(self) -> list[str]:
        """The columns that differ between the candidates of one request; empty if a request has one candidate only.

        These are the candidate's columns; all other columns belong to the context. If no column is the candidate's, a
        text is the context and all other columns belong to the candidate.
        """
        columns = self.item_columns
        if not columns and self.text:
            columns = [name for name in self.feature_columns if name not in self.text.columns]
        return columns if len(columns) < len(self.feature_columns) else []

    @property
    def crosses_sides(self) -> str:
        """The first derived column with sources of both the candidate and the context; "" if there is none."""
        items = set(self.item_columns)
        sides = {name: {source in items for source in derived.sources()} for name, derived in self.derived.items()}
        return next((name for name, of_item in sides.items() if len(of_item) > 1), "")

    @property
    def context_columns(self) -> list[str]:
        """The columns that all candidates of one request share; empty if a request has one candidate only."""
        of_candidate = self.candidate_columns
        return [name for name in self.feature_columns if name not in of_candidate] if of_candidate else []

    @property
    def explained_columns(self) -> list[str]:
        """The names in explanations: each column that a feature reads, including derived ones, then `text` for all text
        columns.
        """
        of_text = self.text.columns if self.text else []
        columns = [name for name in self.feature_by_column if name not in of_text]
        return [*columns, TEXT] if self.text else columns

    @property
    def value_columns(self) -> list[str]:
        """The columns of `feature_columns` that do not belong to a text."""
        of_text = self.text.columns if self.text else []
        return [name for name in self.feature_columns if name not in of_text]

    @property
    def numeric_columns(self) -> list[str]:
        """Columns passed as float32."""
        return [name for name, feature in self.inputs.items() if feature.is_number]

    @property
    def text_columns(self) -> list[str]:
        """Columns passed as strings: all except numbers and vectors."""
        return [name for name, each in self.inputs.items() if not each.is_number and not each.vector_length]

    @property
    def compared_columns(self) -> list[str]:
        """Columns whose values are compared as text, so equal values must have equal texts: categories and groups.

        Times and weighted elements are not included, because they are parsed.
        """
        groups = [self.data.split.column] if self.data.split.by == "group" and self.data.split.column else []
        others = {*self.time_formats, *self.weight_separators}
        return [name for name in dict.fromkeys([*self.text_columns, *groups]) if name not in others]

    @property
    def vector_lengths(self) -> dict[str, int]:
        """The vector length of each column that is passed as float32 vectors, in order."""
        lengths = {column: feature.vector_length for column, feature in self.inputs.items()}
        return {column: length for column, length in lengths.items() if length}

    @property
    def label_columns(self) -> list[str]:
        """The label columns, the primary task's first."""
        return list(self.data.columns_by_task.values())

    @property
    def target_columns(self) -> list[str]:
        """The columns for training only, which no request has: the labels, then the weight."""
        return [*self.label_columns, *([self.data.weight] if self.data.weight else [])]

    @property
    def time_formats(self) -> dict[str, str]:
        """The format of each column of times."""
        formats = {column: feature.time_format for column, feature in self.inputs.items()}
        return {column: time_format for column, time_format in formats.items() if time_format}

    @property
    def split_format(self) -> str:
        """The time format of `data.split.column`: the split's own format, else the feature's."""
        feature = self.inputs.get(self.data.split.column or "")
        own = self.data.split.time_format
        return (own == "auto" and feature and feature.time_format) or own

    def missing_words(self, feature: Kind) -> tuple[str, ...]:
        """Returns the words that mean a missing value in a feature's columns, in addition to the empty value."""
        if self.data.missing_values is not None:
            return tuple(sorted(spellings(self.data.missing_values)))
        return USUAL_MISSING if feature.usual_missing else ()

    @property
    def number_forms(self) -> dict[str, Written]:
        """The written form of each column whose numbers are not written as 1234.5, with the decimal separator."""
        forms = {column: feature.number_form for column, feature in self.inputs.items()}
        return {column: form.decided(self.data.decimal) for column, form in forms.items() if form}

    @property
    def text_forms(self) -> dict[str, Written]:
        """`number_forms`, and the form of all numbers, labels and weights if `data.decimal` is a comma."""
        names = [*self.numeric_columns, *self.target_columns] if self.data.decimal == "," else []
        return {**dict.fromkeys(names, Written(decimal=",")), **self.number_forms}

    @property
    def separators(self) -> dict[str, str]:
        """Maps each column that may hold a list to the separator of its elements."""
        separators = {column: feature.list_separator for column, feature in self.inputs.items()}
        return {column: separator for column, separator in separators.items() if separator}

    @property
    def bracketed_columns(self) -> frozenset[str]:
        """Columns whose texts contain lists in brackets."""
        return frozenset(column for column, feature in self.inputs.items() if feature.in_brackets)

    @property
    def weight_separators(self) -> dict[str, str]:
        """Maps each column whose elements have weights to the separator between an element and its weight."""
        separators = {column: feature.weight_separator for column, feature in self.inputs.items()}
        return {column: separator for column, separator in separators.items() if separator}

    @property
    def inner_separators(self) -> dict[str, str]:
        """Maps each column whose items hold several values to the separator of these values."""
        separators = {column: feature.inner_separator(column) for column, feature in self.inputs.items()}
        return {column: separator for column, separator in separators.items() if separator}

    @property
    def whole_number_columns(self) -> list[str]:
        """Columns in which the text 123.0 equals 123. A column with a shared vocabulary follows the vocabulary's
        owner.
        """
        features = self.inputs
        owners = {column: feature.owner_of(column) for column, feature in features.items()}
        return [column for column, owner in owners.items() if features[owner].reads_whole_numbers]

    @property
    def missing_numbers(self) -> tuple[float, ...]:
        """Numbers that mean a missing value, such as -1; infinity if `inf` or `infinity` is listed."""
        words = spellings(self.data.missing_values or [])
        numbers = [float(word) for word in words if NUMBER.fullmatch(word) or INFINITE.fullmatch(word)]
        return tuple(sorted(set(numbers)))
