"""Load a trained model, from a folder or a server's URL, and predict click probabilities."""

import contextlib
import dataclasses
import decimal
import functools
import json
import math
import os
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.near import did_you_mean, nearest_name
from ctrpipe.data import PathLike, index_of, is_frame, table_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.models.base.saved import is_saved, load_model
from ctrpipe.pipeline.run.trained_model import find_model
from ctrpipe.result import Result
from ctrpipe.runs import Run, folder_of
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.client import RestClient
from ctrpipe.serving.client.columns import Column, Inputs, to_arrays
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.logged_values import own_values
from ctrpipe.table import SHOWN_ROWS, Table
from ctrpipe.transforms.log.bracketed import from_brackets
from ctrpipe.transforms.log.column_types import is_of_numbers, is_of_truths
from ctrpipe.transforms.log.kinds.vector import Vector
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.values import TextNumbers, as_binary, is_list, join_lists, text_numbers, texts_of, to_floats
from ctrpipe.transforms.log.vectors import to_vectors, vector_array
from ctrpipe.transforms.log.weighted import is_pairs, pairs_as_lists
from ctrpipe.transforms.log.whole_numbers import exact_limit, inexact, text_of_float

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from ctrpipe.models.base.ctr_model import CTRModel
    from ctrpipe.models.base.feature_map import FeatureMap
    from ctrpipe.serving.loader import Servable
    from ctrpipe.transforms.log.spec import LogSpec

SIGNATURE = "serving_raw"
TABLE = "the DataFrame"  # name of the input in error messages
ROWS = "the rows"
_NUMBERS = (int, float, np.integer, np.floating, decimal.Decimal)
SHOWN_COLUMNS = 8  # per kind, in the table of a model


@dataclasses.dataclass(frozen=True, repr=False)
class Predictions(Result):
    """Predicted probabilities. The table shows the first rows; `to_pandas` has one row per input row.

    NumPy and scikit-learn accept them as an array, as in `roc_auc_score(labels, model.predict(rows))`. It is `[N]` for
    one task and `[N, tasks]` for several.

    Attributes:
        tasks: The probabilities by task, float32 `[N]`.
        index: The index of the rows' pandas DataFrame; None for other rows.
    """

    tasks: dict[str, np.ndarray]
    index: "pd.Index | None" = None

    def __len__(self) -> int:
        return len(next(iter(self.tasks.values())))

    @in_one_line
    def __getitem__(self, task: str) -> np.ndarray:
        if task not in self.tasks:
            near = did_you_mean(str(task), self.tasks)
            raise InputError(f"no task {task} is predicted, but {', '.join(self.tasks)}{near}")
        return self.tasks[task]

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(np.asarray(self))

    def __array__(self, dtype: "npt.DTypeLike | None" = None, copy: bool | None = None) -> np.ndarray:
        columns = list(self.tasks.values())
        values = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        return np.array(values, dtype, copy=copy)

    @in_one_line
    def to_pandas(self) -> "pd.DataFrame":
        """Returns the probabilities as a pandas DataFrame with one column per task and the index of the rows.

        `frame["ctr"] = predictions.to_pandas()["ctr"]` assigns each row its own prediction, also to a part of a
        DataFrame.
        """
        import pandas as pd  # lazy: takes 0.4 s, and showing predictions does not need it

        return pd.DataFrame(self.tasks, self.index)

    def _table(self) -> Table:
        shown = range(min(len(self), SHOWN_ROWS))
        rows = [[row, *(float(values[row]) for values in self.tasks.values())] for row in shown]
        return Table(["row", *self.tasks], rows, f"... {len(self):,} rows" if len(self) > SHOWN_ROWS else "")


class Model:
    """A trained model that predicts from raw rows. Its table shows the name, the task and the columns that it reads.

    Created by `load`. Close it with `close` or a `with` block.

    Args:
        source: The folder of a version, or the URL of a served model. None for a model of a sweep, which has no
            SavedModel.
        kept: The folder of the Keras model and its weights. None if there is none.
        trust: Whether to import the Keras model's class if it is not a class of ctrpipe.
        version: With a URL, the folder of the served version, which describes the log; None if it is elsewhere.
        folder: The folder given to `load`, for the other functions that take a model; None for a URL.

    Raises:
        InputError: the URL is not the URL of a model.
    """

    def __init__(
        self,
        source: pathlib.Path | str | None,
        kept: pathlib.Path | None = None,
        trust: bool = False,
        version: pathlib.Path | None = None,
        folder: pathlib.Path | None = None,
    ):
        self.source = source
        self._folder = folder
        self._version = pathlib.Path(source) if version is None and isinstance(source, pathlib.Path) else version
        self._kept = kept
        self._trust = trust
        self._client = RestClient(source) if isinstance(source, str) else None

    @property
    def folder(self) -> pathlib.Path:
        """The folder that the model was loaded from.

        Raises:
            InputError: the model was loaded from a URL.
        """
        if self._folder is None:
            raise InputError(f"the model at {self.source}: its folder is needed; give that, or the run")
        return self._folder

    @functools.cached_property
    def keras(self) -> "CTRModel":
        """The Keras model with its best weights, on the backend that the variable KERAS_BACKEND names.

        Maps packed tensors to logits; see `feature_map` for the layout. TensorFlow is imported only if it is the
        backend.

        Raises:
            InputError: the model's weights are not available, or its class is code that was not trusted.
        """
        os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        if os.environ["KERAS_BACKEND"] == "jax":
            require("jax", "KERAS_BACKEND=jax")
        if os.environ["KERAS_BACKEND"] == "tensorflow":
            load_tensorflow()
        if self._kept is None:
            raise InputError(f"{self.source}: its weights are not here; load the run's folder, RUN, that trained it")
        return load_model(self._kept, self._trust)

    @property
    def feature_map(self) -> "FeatureMap":
        """The layout of the packed tensors that `keras` takes as input.

        Raises:
            InputError: see `keras`.
        """
        return self.keras.feature_map

    @functools.cached_property
    def _servable(self) -> "Servable":
        if self.source is None:
            raise InputError(f"{self._kept}: a sweep keeps no SavedModel; call .keras on packed tensors, or run it")
        load_tensorflow()
        from ctrpipe.serving.loader import (
            Servable,  # lazy: TensorFlow takes 3.7 s of CPU time, and a model at a URL does not need it
        )

        return Servable(pathlib.Path(self.source))

    def predict(self, rows: object) -> Predictions:
        """Predicts the click probability of raw rows, and the probability of each further task.

        Args:
            rows: A dict of columns, a list of dicts, a pandas or polars DataFrame or a pyarrow Table; `ctrpipe.score`
                takes files. None, NaN and keys absent from some of the dicts are missing values. A model from a folder,
                and the server of `ctrpipe.serve`, ignore columns that they do not read, and convert the values as in a
                log: times, lists, and numbers in text columns, where 123.0 is "123".

        Returns:
            `Predictions`: float32 `[N]` by task.

        Raises:
            InputError: a column is missing or has the wrong type, or the server does not respond.

        Example:
            >>> model = ctrpipe.load("runs/mine/models/ctr")
            >>> model.predict({"I1": [3.0, None], "C1": ["68fd1e64", ""]})["ctr"]
            array([0.21, 0.18], dtype=float32)
        """
        columns = _columns(rows)
        given = list(columns) if isinstance(columns, Mapping) else columns.schema.names
        if self._client is not None and self._version is None:
            return Predictions(self._client.predict(self._as_served(columns)), index_of(rows))
        if isinstance(columns, Mapping):
            columns = {**columns, **self._texts_of_others(columns)}
        else:
            columns = self._as_in_a_log(columns, TABLE)
        if self._client is not None:
            return Predictions(self._client.predict(columns), index_of(rows))
        return Predictions(self._run(to_arrays(columns, none_is_nan=True), given), index_of(rows))

    def _as_served(self, columns: Inputs) -> Inputs:
        """Returns the columns for a server. Numbers and booleans in text columns become text, as in a log."""
        assert self._client is not None
        is_table = not isinstance(columns, Mapping)
        named: dict[str, Column] = dict(columns if isinstance(columns, Mapping) else _named(columns))
        others = [name for name, values in named.items() if not _are_texts(values)]
        if not others:
            return columns
        texts = self._texts()
        for name in others:
            if texts.get(name) and _has_lists(named[name]):
                raise InputError(
                    f"column '{name}': lists, and the model at {self.source} reads a text with a separator; join each "
                    "list, such as 'a|b', or load the model's folder"
                )
            if texts.get(name):
                values = _arrow(named[name], name)
                if pa.types.is_boolean(values.type):
                    raise InputError(
                        f"column '{name}': booleans, and only the files of the model at {self.source} say how its log "
                        "writes them; give texts, such as 'True' or '1', or load the model's folder"
                    )
                named[name] = as_binary(values, name, TABLE if is_table else ROWS)
        return named

    def _texts_of_others(self, columns: Mapping[str, object]) -> dict[str, pa.Array | np.ndarray]:
        """Converts text columns with values of other types, such as numbers, to text, as in a log.

        Also parses columns that the log has in text form: vectors, and numbers of a column with `written`.
        """
        texts = self._texts()
        others = [
            name
            for name, values in columns.items()
            if (self._is_other(name, values) if texts.get(name) else name in texts and self._is_written(name, values))
        ]
        if not others:
            return {}
        values = [_arrow(columns[name], name) for name in others]
        if len(set(map(len, values))) > 1:
            longest, shortest = (pick(values, key=len) for pick in (max, min))
            raise InputError(f"rows: {len(longest)} values of one column, {len(shortest)} of another; give each row's")
        kinds = {name: _kinds(columns[name]) for name in others if not _is_arrow(columns[name])}
        numbers = [name for name, of_values in kinds.items() if any(issubclass(kind, _NUMBERS) for kind in of_values)]
        truths = [name for name, of_values in kinds.items() if of_values & {bool, np.bool_}]
        return self._as_in_a_log(_with_texts_of_times(pa.table(values, others)), ROWS, numbers, truths)

    def _is_other(self, name: str, values: Column) -> bool:
        """Returns whether a text column may have other types, booleans, or lists in brackets, `['a', 'b']`."""
        return not _are_texts(values) or name in self._log_spec.bracketed_columns or name in self._own.truths

    def _is_written(self, name: str, values: Column) -> bool:
        """Returns whether a column has text instead of lists or numbers: vectors as '0.1 0.2', numbers as '$4.50'."""
        is_read = isinstance(self._log_spec.inputs.get(name), Vector) or name in self._log_spec.text_forms
        if not is_read or not _are_texts(values):
            return False
        if _is_arrow(values):
            return not pa.types.is_null(values.type)
        return any(isinstance(value, str | bytes) for value in values)

    def _as_in_a_log(
        self, table: pa.Table, source: str, numbers: Collection[str] = (), truths: Collection[str] = ()
    ) -> dict[str, pa.Array | np.ndarray]:
        """Returns the columns of a table that the model reads, converted like those of a Parquet log.

        Args:
            table: The columns.
            source: Their name in error messages.
            numbers, truths: The columns of texts that had numbers, and booleans, beside texts.
        """
        columns: dict[str, pa.Array | np.ndarray] = {}
        faults: dict[int, str] = {}
        whole = self._log_spec.whole_number_columns
        for name, is_text in self._texts().items():
            if name not in table.column_names:
                continue
            values = table[name].combine_chunks()
            given = (name in numbers or is_of_numbers(values.type), name in truths or is_of_truths(values.type))
            if isinstance(feature := self._log_spec.inputs.get(name), Vector):
                elements = values if is_list(values.type) else as_binary(values, name, source)
                vectors = to_vectors(elements, name, faults, feature, TextNumbers(infinite=True))
                columns[name] = vector_array(vectors)
                continue
            if name in self._log_spec.weight_separators and is_pairs(values.type):
                values = pairs_as_lists(values, self._log_spec.weight_separators[name], name, source)
            if is_list(values.type) and name in self._log_spec.separators:
                separator, is_sequence = self._log_spec.separators[name], name in self._log_spec.columns_of("sequence")
                within = self._log_spec.inner_separators.get(name)
                values = join_lists(values, separator, name, source, faults, is_sequence, name in whole, within)
                values = self._own.of_array(name, values, f"column '{name}'", *given)
            elif is_text:
                values = as_binary(values, name, source, faults if name in whole else None)
                if name in self._log_spec.bracketed_columns:
                    values = from_brackets(values, self._log_spec.separators[name], name, faults)
                values = self._own.of_array(name, values, f"column '{name}'", *given)
            elif name in self._log_spec.text_forms and _are_texts(values):
                texts = as_binary(values, name, source)
                values = to_floats(texts, name, faults, text_numbers(self._log_spec, infinite=True)[name])
            columns[name] = values
        if faults:
            row = min(faults)
            raise InputError(f"{source}, row {row}: {faults[row]}")
        return columns

    @functools.cached_property
    def _own(self) -> OwnValues:
        """The values of the model's log."""
        assert self._version is not None
        return own_values(self._version, self._log_spec)

    @functools.cached_property
    def _log_spec(self) -> "LogSpec":
        assert self._version is not None
        return read_log_spec(self._version)

    def _texts(self) -> dict[str, bool]:
        """Returns for each column that the model reads whether it is a text column."""
        if self._client is not None:
            signatures = self._client.metadata()["metadata"]["signature_def"]["signature_def"]
            inputs = signatures.get(SIGNATURE, {}).get("inputs", {})
            return {name: info.get("dtype") == "DT_STRING" for name, info in inputs.items()}
        import tensorflow as tf  # lazy: takes 4 s, and the servable has imported it

        return {name: kind == tf.string for name, kind in self._servable.input_types[SIGNATURE].items()}

    def _run(self, arrays: dict[str, np.ndarray], given: Sequence[str]) -> dict[str, np.ndarray]:
        types = self._servable.input_types[SIGNATURE]
        import tensorflow as tf  # lazy: takes 4 s, and the servable has imported it

        if absent := sorted(set(types) - set(arrays)):
            near = nearest_name(absent[0], set(given) - set(types))
            named = f"{', '.join(absent)}{f', where {near} is given' if near else ''}"
            raise InputError(f"{self.source}: it also reads {named}; give all columns, with None for missing values")
        inputs = {}
        for name, kind in types.items():
            values = arrays[name]
            if kind == tf.string and _is_missing(values):
                values = np.full(values.shape, b"", object)
            if (kind == tf.string) != (values.dtype.kind == "O"):
                expected = "text" if kind == tf.string else "numbers"
                raise InputError(f"column '{name}': expected {expected}, as {self.source} reads it")
            inputs[name] = values if kind == tf.string else values.astype(kind.as_numpy_dtype)
        try:
            return dict(self._servable.run(SIGNATURE, inputs))
        except tf.errors.OpError as error:
            raise InputError(f"{self.source}: {one_line(error, 300)}") from error

    def close(self) -> None:
        """Closes the TensorFlow session or the connections to the server."""
        if self._client is not None:
            self._client.close()
        if "_servable" in vars(self):
            self._servable.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _table(self) -> Table:
        """Returns what is known without loading the model: its name, what it predicts and the columns that it reads."""
        if self.source is None or self._client is not None:
            where = "served at" if self._client is not None else "weights"
            return Table([where, str(self.source or self._kept)], [])
        version = pathlib.Path(self.source)
        trained = _asset(version, Asset.TRAINING).get("model", {})
        counts = _asset(version, Asset.TRAINING_COUNTS)
        rows: list[list[Any]] = [["loaded from", str(version)], ["training rows", counts.get("rows")]]
        with contextlib.suppress(InputError):
            rows.append(["predicts", ", ".join(self._log_spec.data.columns_by_task)])
            for kind, names in self._columns_by_kind().items():
                rows.append([f"reads {kind}", _listed(names)])
        return Table(["model", str(trained.get("name", "-"))], [row for row in rows if row[1] is not None])

    def _columns_by_kind(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for column, feature in self._log_spec.inputs.items():
            names.setdefault(feature.kind, []).append(column)
        return names

    def __repr__(self) -> str:
        return self._table().text

    def _repr_html_(self) -> str:
        return self._table().html


@in_one_line
def load(source: pathlib.Path | str | Run, *, trust: bool = False) -> Model:
    """Loads a trained model from a run, a folder of versions, a sweep or a server.

    Args:
        source: One of:

            - a finished run: the result of `run` or its folder, `runs/mine`;
            - a folder of versions, `runs/mine/models/ctr` (the newest version is loaded), or one version in it;
            - a model of a sweep with `keep_models`: `sweep/results/KEY`;
            - a served model: `http://HOST:PORT/v1/models/NAME`.
        trust: Whether to import the Keras model's class if it is not a class of ctrpipe. Predictions do not
            need it.

    Returns:
        A `Model`.

    Raises:
        InputError: the folder contains no model, or the URL is not the URL of a model.

    Example:
        >>> model = ctrpipe.load("runs/mine")
        >>> network = model.keras  # a keras.Model
        >>> [field.name for field in model.feature_map.fields]
        ['I1', 'C1']
    """
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        return Model(source)
    folder = folder_of(source)
    if is_saved(folder):
        return Model(None, folder, trust, folder=folder)
    trained = find_model(folder)
    return Model(trained.version, trained.kept(), trust, folder=folder)


def _asset(version: pathlib.Path, asset: Asset) -> dict[str, Any]:
    """Returns the contents of a version's JSON file; {} if the file is missing or unreadable."""
    try:
        return dict(json.loads(asset_path(version, asset).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _listed(names: Sequence[str]) -> str:
    more = f" ... {len(names):,} columns" if len(names) > SHOWN_COLUMNS else ""
    return f"{', '.join(names[:SHOWN_COLUMNS])}{more}"


def _is_missing(values: np.ndarray) -> bool:
    """Returns whether all values are NaN, the form of an empty text column from pandas or from None."""
    return values.dtype.kind == "f" and bool(np.isnan(values).all())


def _are_texts(values: Column) -> bool:
    """Returns whether a column has only texts and missing values."""
    if _is_arrow(values):
        return bool(pa.types.is_null(values.type)) or not (
            pa.types.is_primitive(values.type) or pa.types.is_decimal(values.type) or is_list(values.type)
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "SU":
        return True
    kinds = set(map(type, values))
    return kinds <= {str, bytes, np.str_, np.bytes_, type(None)}


def _named(table: pa.RecordBatch | pa.Table) -> Iterator[tuple[str, Column]]:
    return zip(table.schema.names, table.columns, strict=True)


def _is_arrow(values: Column) -> TypeGuard[pa.Array | pa.ChunkedArray]:
    return isinstance(values, pa.Array | pa.ChunkedArray)


def _kinds(values: Column) -> set[type]:
    """Returns the types of values; NaN, which is a missing value in a column of texts too, has none."""
    return {type(value) for value in values if not (isinstance(value, float | np.floating) and np.isnan(value))}


def _has_lists(values: Column) -> bool:
    if _is_arrow(values):
        return is_list(values.type)
    return any(isinstance(value, list | tuple | np.ndarray) for value in values)


def _arrow(values: Column, name: str) -> pa.Array:
    """Converts a column to a pyarrow Array. A column with both texts and numbers becomes text.

    Raises:
        InputError: the values have types that a log cannot have.
    """
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray) and values.dtype == np.float16:
        values = values.astype(np.float32)
    if not isinstance(values, np.ndarray) or values.dtype == object:
        values = [_item(value) for value in values]
        if any(isinstance(value, str | bytes) for value in values):
            values = [_text(value, name, row) for row, value in enumerate(values)]
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError) as error:
        if {type(value) for value in values} <= {int, type(None)}:  # ids of 64 bits without a sign
            return pa.array([None if value is None else str(value) for value in values], pa.string())
        raise InputError(f"column '{name}': {one_line(error, 200)}") from error


def _item(value: object) -> Any:
    """Converts a NumPy scalar to a Python value. Half floats become float32, and float32 stays, for its short text."""
    if isinstance(value, np.float16 | np.float32):
        return np.float32(value)
    return value.item() if isinstance(value, np.generic) else value


def _text(value: object, name: str, row: int) -> bytes | None:
    """Returns a value of a text column in UTF-8; None if it is missing."""
    value = float(str(value)) if isinstance(value, np.float32) else value
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        if abs(value) > exact_limit(64):
            raise InputError(f"{ROWS}, row {row}: {inexact(name, repr(value), 64)}")
        return None if math.isnan(value) else text_of_float(value).encode()
    if isinstance(value, int):
        return str(int(value)).encode()
    raise InputError(f"column '{name}': {value!r} is not a text, unlike other values of it")


def _columns(rows: object) -> Inputs:
    """Converts any input of `predict` to columns."""
    if hasattr(rows, "to_frame") and not hasattr(rows, "columns"):
        raise InputError("rows: a Series, which is one column or row; give a DataFrame, such as frame.iloc[[0]]")
    if is_frame(rows):
        return _with_texts_of_times(table_of(rows))
    if isinstance(rows, Mapping):
        if single := next((name for name, values in rows.items() if not _is_column(values)), None):
            raise InputError(f"rows: {single} is a single value, not a column; give a single row as a list, [row]")
        return {name: _unboxed(values, name) for name, values in rows.items()}
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}
    cure = "; ctrpipe.score takes files" if isinstance(rows, PathLike) else ""
    cure = "; call .collect()" if hasattr(rows, "collect") else cure
    raise InputError(f"rows: expected a dict of columns, a list of dicts, a DataFrame or a pyarrow Table{cure}")


def _is_column(values: object) -> bool:
    return not isinstance(values, str | bytes) and hasattr(values, "__len__")


def _unboxed(values: object, name: str) -> Column:
    """Converts a pandas or polars Series like a column of a DataFrame. Returns other columns unchanged."""
    if not hasattr(values, "to_frame"):
        return values
    if hasattr(values, "reset_index"):  # of pandas: a named index would be a column too
        values = values.reset_index(drop=True)
    return table_of(values.to_frame(name)).column(0)


def _with_texts_of_times(table: pa.Table) -> pa.Table:
    """Converts temporal columns to text, as in a Parquet log: a server takes times as text."""
    for place, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):
            table = table.set_column(place, field.name, texts_of(table[place]))
    return table
