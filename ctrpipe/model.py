"""A trained model, in this process or behind a URL, that predicts click probabilities."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.data import is_frame, table_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.models.base.saved import is_saved, load_model
from ctrpipe.pipeline.run.trained_model import find_model
from ctrpipe.result import Result
from ctrpipe.runs import Run, folder_of
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.client import RestClient
from ctrpipe.serving.client.columns import Inputs, to_arrays
from ctrpipe.table import SHOWN_ROWS, Table
from ctrpipe.transforms.log.values import as_binary, is_list, join_lists

if TYPE_CHECKING:
    import pandas as pd

    from ctrpipe.models.base.ctr_model import CTRModel
    from ctrpipe.models.base.feature_map import FeatureMap
    from ctrpipe.serving.loader import Servable
    from ctrpipe.transforms.log.spec import LogSpec

SIGNATURE = "serving_raw"
TABLE = "the DataFrame"  # what messages call it


@dataclasses.dataclass(frozen=True, repr=False)
class Predictions(Result):
    """The probabilities that a model predicts for rows. Its table has the first ones; `to_pandas` has a row for each.

    Attributes:
        tasks: The rows' probabilities by task, float32 `[N]`.
    """

    tasks: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.tasks.values())))

    def __getitem__(self, task: str) -> np.ndarray:
        return self.tasks[task]

    @in_one_line
    def to_pandas(self) -> "pd.DataFrame":
        """Returns the probabilities as a pandas DataFrame, a column for each task."""
        import pandas as pd  # 0.4 s that predictions which are only shown do without

        return pd.DataFrame(self.tasks)

    def _table(self) -> Table:
        shown = range(min(len(self), SHOWN_ROWS))
        rows = [[row, *(float(values[row]) for values in self.tasks.values())] for row in shown]
        return Table(["row", *self.tasks], rows, f"... {len(self):,} rows" if len(self) > SHOWN_ROWS else "")


class Model:
    """A model that predicts from raw rows, as `load` returns it. Close it with `close` or a `with` block.

    Args:
        source: The version's folder, or the model's URL; None for a model of a sweep, which has no SavedModel.
        kept: The folder of the Keras model with its weights; None where there is none.

    Raises:
        InputError: the URL is not a model's.
    """

    def __init__(self, source: pathlib.Path | str | None, kept: pathlib.Path | None = None):
        self.source = source
        self._kept = kept
        self._client = RestClient(source) if isinstance(source, str) else None

    @functools.cached_property
    def keras(self) -> "CTRModel":
        """The Keras model with its best weights, of the backend that KERAS_BACKEND names.

        It maps packed tensors to logits; `keras.feature_map` describes them. TensorFlow is not imported where it is not
        the backend.

        Raises:
            InputError: the model's weights are not here.
        """
        os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        if os.environ["KERAS_BACKEND"] == "jax":
            require("jax", "KERAS_BACKEND=jax")
        if os.environ["KERAS_BACKEND"] == "tensorflow":
            load_tensorflow()
        if self._kept is None:
            raise InputError(f"{self.source}: its weights are not here; load the run's folder, RUN, that trained it")
        return load_model(self._kept)

    @property
    def feature_map(self) -> "FeatureMap":
        """The description of the packed tensors that `keras` reads.

        Raises:
            InputError: as `keras`.
        """
        return self.keras.feature_map

    @functools.cached_property
    def _servable(self) -> "Servable":
        if self.source is None:
            raise InputError(f"{self._kept}: a sweep keeps no SavedModel; call .keras on packed tensors, or run it")
        load_tensorflow()
        from ctrpipe.serving.loader import (
            Servable,  # TensorFlow: 3.7 s of a core that a model behind a URL does without
        )

        return Servable(pathlib.Path(self.source))

    def predict(self, rows: Any) -> Predictions:
        """Returns the probabilities of rows by task, float32 `[N]`.

        Args:
            rows: A dict of columns, a list of dicts, a pandas or polars DataFrame or a pyarrow Table. None, NaN or an
                absent key of a dict is a missing value. A model from a folder ignores columns that it does not read,
                and takes a DataFrame's values as a log's: times, lists, and numbers where it reads texts.

        Raises:
            InputError: a column is absent or of the wrong type, or the server gives no answer.

        Example:
            >>> model = ctrpipe.load("runs/mine/models/ctr")
            >>> model.predict({"I1": [3.0, None], "C1": ["68fd1e64", ""]})["ctr"]
            array([0.21, 0.18], dtype=float32)
        """
        columns = _columns(rows)
        if self._client is not None:
            return Predictions(self._client.predict(columns))
        if not isinstance(columns, Mapping):
            columns = self._as_in_a_log(columns)
        return Predictions(self._run(to_arrays(columns, none_is_nan=True)))

    def _as_in_a_log(self, table: pa.Table) -> dict[str, pa.Array]:
        """Returns the columns of a table that the model reads, as the reader of a Parquet log has them."""
        import tensorflow as tf  # loaded with the servable

        columns = {}
        faults: dict[int, str] = {}
        for name, kind in self._servable.input_types[SIGNATURE].items():
            if name not in table.column_names:
                continue
            values = table[name].combine_chunks()
            if is_list(values.type) and name in self._log_spec.separators:
                is_sequence = name in self._log_spec.columns_of("sequence")
                values = join_lists(values, self._log_spec.separators[name], name, TABLE, faults, is_sequence)
            elif kind == tf.string:
                values = as_binary(values, name, TABLE)
            columns[name] = values
        if faults:
            row = min(faults)
            raise InputError(f"{TABLE}, row {row}: {faults[row]}")
        return columns

    @functools.cached_property
    def _log_spec(self) -> "LogSpec":
        return read_log_spec(pathlib.Path(str(self.source)))

    def _run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        types = self._servable.input_types[SIGNATURE]
        import tensorflow as tf  # loaded with the servable

        if absent := sorted(set(types) - set(arrays)):
            raise InputError(f"{self.source}: it also reads {', '.join(absent)}; give each column, None is missing")
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
        """Closes the session or the connections."""
        if self._client is not None:
            self._client.close()
        if "_servable" in vars(self):
            self._servable.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ctrpipe.load({str(self.source or self._kept)!r})"


@in_one_line
def load(source: pathlib.Path | str | Run) -> Model:
    """Returns a model from a finished run, a folder of versions (the newest), a version, a sweep's model, or a URL.

    Args:
        source: `runs/mine` or what `run` returned, `runs/mine/models/ctr`, a version in it, `sweep/results/KEY` of a
            sweep with `--keep-models`, or `http://HOST:PORT/v1/models/NAME` of a server.

    Raises:
        InputError: the folder holds no model, or the URL is not a model's.

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
        return Model(None, folder)
    found = find_model(folder)
    return Model(found.version, found.kept())


def _is_missing(values: np.ndarray) -> bool:
    """Returns whether a column is all NaN, as a text column without a value is after None or pandas."""
    return values.dtype.kind == "f" and bool(np.isnan(values).all())


def _columns(rows: Any) -> Inputs:
    """Returns the columns of rows of any kind that `predict` takes."""
    if is_frame(rows):
        return _with_texts_of_times(table_of(rows))
    if isinstance(rows, Mapping):
        return rows
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}
    raise InputError("rows: expected a dict of columns, a list of dicts, a DataFrame or a pyarrow Table")


def _with_texts_of_times(table: pa.Table) -> pa.Table:
    """Returns a table with times as a log in Parquet has them, which a server takes as texts."""
    for place, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):
            table = table.set_column(place, field.name, table[place].cast(pa.string()))
    return table
