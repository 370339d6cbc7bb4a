"""Exports a trained Keras model and its transform graph as one SavedModel for TF Serving."""

import collections
import keyword
import pathlib
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2, regression_pb2
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_text_operations
from ctrpipe.models.base.answers import answers
from ctrpipe.models.base.candidates import TEXT, join_candidates
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import SLOT_WEIGHTS, FeatureMap
from ctrpipe.models.base.vector_model import VectorModel
from ctrpipe.models.text.precision import in_precision
from ctrpipe.serving.assets import Arrays, GoldenRows
from ctrpipe.serving.calibration import UNCALIBRATED, FittedCalibration
from ctrpipe.serving.explained import BASELINE_LOGIT, LOGIT, PREFIX
from ctrpipe.serving.explained import SIGNATURE as EXPLAIN
from ctrpipe.serving.export.attributions import Attributions
from ctrpipe.serving.layout import SAVED_MODEL, Asset, asset_path, make_assets_folder, write_checksums
from ctrpipe.transforms.features.packed_files import INPUTS
from ctrpipe.transforms.features.preprocessing import CANDIDATE, CONTEXT
from ctrpipe.transforms.features.slots import column_of_slot
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.spec import LogSpec

CANDIDATES, PACKED_CANDIDATES = "serving_candidates", "serving_candidates_packed"
USER, ITEM, VECTORS = "user", "item", "vectors"
USER_VECTORS, ITEM_VECTORS = "serving_user", "serving_item"  # of a two-tower model; each takes its own tower's columns
# The largest difference allowed from the float32 probabilities of Keras, by the encoder's precision. Whether the AUC is
# good enough is decided by the gates.
TOLERANCES = {"float32": 1e-6, "bfloat16": 0.05, "int8": 0.1, "int8_weights": 0.05}
Tensors = dict[str, tf.Tensor]
_ARGUMENT = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_OWN_ARGUMENTS = ("self", "cls", "args", "kwargs")  # of the functions that TensorFlow makes


class _Servable(tf.Module):
    """The functions and variables that the signatures need.

    Tracks the variables of the Keras model but not the model itself, because the C++ loader cannot run a SavedModel
    that contains it.
    """

    def __init__(
        self,
        model: CTRModel,
        transform: tft.TFTransformOutput,
        spec: LogSpec,
        feature_map: FeatureMap,
        position: Mapping[str, str | float],
        calibration: FittedCalibration | None,
        explains: bool,
    ):
        super().__init__()
        self._model_variables = [variable.value for variable in model.variables]
        # TFT's Keras layer is avoided: its SavedModel would also contain functions that Keras traces for the layer. No
        # signature needs them, and tracing them takes longer than all signatures.
        transform_loader = SavedModelLoader(transform.transform_savedmodel_dir)
        self._transform_objects = vars(transform_loader)  # tracked, to save the lookup tables and their files too
        self._transform = transform_loader.apply_transform_model
        self._spec = spec
        self._tasks = feature_map.tasks
        self.takes_candidates = bool(spec.candidate_columns) and (model.shares_text or bool(spec.item_columns))
        # Packed tensors can share only a text: `ids` contains both the context's and the candidate's fields.
        self.takes_packed_candidates = self.takes_candidates and not spec.item_columns
        self._feature_map = feature_map
        self._position = self._slots_of(position)

        def logits(packed: Tensors) -> tf.Tensor:
            return tf.cast(model(packed, training=False), tf.float32)

        def vectors(of: str, packed: Tensors) -> Tensors:
            assert isinstance(model, VectorModel)
            of_rows = model.user_vectors(packed) if of == USER else model.item_vectors(packed)
            return {VECTORS: tf.cast(of_rows, tf.float32)}

        def candidate_logits(context: Tensors, candidates: Tensors) -> tf.Tensor:
            return tf.cast(model.candidate_logits(context, candidates), tf.float32)

        self.logits = logits
        self.candidate_logits = candidate_logits
        self.vectors = vectors
        self.has_towers = isinstance(model, VectorModel)
        self.calibration = calibration
        self.explains = explains
        if explains:
            missing = {name: value.numpy() for name, value in self.placed(self.pack(self._missing_row())).items()}
            self._attributions = Attributions(model, spec.explained_columns, column_of_slot(spec), missing)

    def pack(self, raw: Tensors) -> Tensors:
        """Returns the packed tensors [N, ...], the model's input, for raw columns [N]."""
        packed = self._transform(self._of_length(raw))
        return {name: tf.cast(packed[name], dtype) for name, dtype in INPUTS.items() if name in packed}

    def _of_length(self, raw: Tensors) -> Tensors:
        """Checks the lengths of vectors, and returns the raw columns. The error of a failed request names the
        column.
        """
        lengths, arguments = self._spec.vector_lengths, arguments_of(self._spec)
        checked = {
            name: tf.ensure_shape(raw[name], [None, length], f"{arguments[name]}_has_{length}_numbers")
            for name, length in lengths.items()
        }
        return {**raw, **checked}

    def pack_candidates(self, raw: Tensors) -> tuple[Tensors, Tensors]:
        """Returns the packed tensors of the context, [1, ...], and of the candidates, [N, ...]."""
        named = self._spec.candidate_columns
        some = tf.debugging.Assert(tf.size(raw[named[0]]) > 0, ["A request needs a candidate; it has none"])
        with tf.control_dependencies([some]):
            raw = {name: tf.identity(value) if name in named else value for name, value in raw.items()}
        packed = self._transform(one_row(self._of_length(raw), self._spec.context_columns))
        sides: list[Tensors] = []
        for side in (CONTEXT, CANDIDATE):
            outputs = {name: f"{side}{name}" for name in INPUTS}
            sides.append({name: tf.cast(packed[of], INPUTS[name]) for name, of in outputs.items() if of in packed})
        context, candidates = sides
        context |= {name: tf.cast(packed[name], INPUTS[name]) for name in TEXT if name in packed}
        return one_row(context, list(context)), candidates  # again: the transform graph loses the static shape

    def _slots_of(self, position: Mapping[str, str | float]) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns the mask of the slots that the fixed position fills, bool [S], and its ids, int32 [S]."""
        if not position:
            return None
        raw = self._missing_row()
        for name, value in position.items():
            is_number = name in self._spec.numeric_columns
            raw[name] = tf.constant([float(value)], tf.float32) if is_number else tf.constant([str(value)])
        mask = [column in position for column in column_of_slot(self._spec)]
        return np.array(mask), self.pack(raw)["ids"].numpy()[0]

    def _missing_row(self) -> Tensors:
        """Returns the raw columns [1] of a row without values."""
        numbers: Tensors = {name: tf.constant([np.nan], tf.float32) for name in self._spec.numeric_columns}
        lengths = self._spec.vector_lengths
        vectors = {name: tf.constant(np.nan, tf.float32, [1, length]) for name, length in lengths.items()}
        return numbers | vectors | {name: tf.constant([b""]) for name in self._spec.text_columns}

    def completed(self, raw: Tensors) -> Tensors:
        """Returns all raw columns [N, ...]; absent columns get missing values."""
        rows = tf.shape(next(iter(raw.values())))[0]
        return {
            name: raw[name] if name in raw else tf.repeat(value, rows, axis=0)
            for name, value in self._missing_row().items()
        }

    def placed(self, packed: Tensors) -> Tensors:
        """Returns the packed tensors with the ids of the configured fixed position, if any."""
        if self._position is None:
            return packed
        return {**packed, "ids": tf.where(*self._position, packed["ids"])}

    def parse(self, examples: tf.Tensor) -> Tensors:
        """Returns the raw columns [N, ...] of serialized tf.Examples [N]; an absent value is NaN or ""."""
        vectors = self._spec.vector_lengths
        numbers, texts = self._spec.numeric_columns, self._spec.text_columns
        names = [*numbers, *texts, *vectors]
        shapes: list[list[int]] = [[]] * len(numbers + texts) + [[size] for size in vectors.values()]
        # tf.io.parse_example calls this too, but makes four operations for each column; two shared defaults are enough.
        parsed = tf.raw_ops.ParseExampleV2(
            serialized=examples,
            names=tf.constant([], tf.string),
            sparse_keys=tf.constant([], tf.string),
            dense_keys=tf.constant(names),
            ragged_keys=tf.constant([], tf.string),
            dense_defaults=[tf.constant(np.nan, tf.float32)] * len(numbers)
            + [tf.constant("")] * len(texts)
            + [tf.constant(np.nan, tf.float32, [size]) for size in vectors.values()],
            num_sparse=0,
            sparse_types=[],
            ragged_value_types=[],
            ragged_split_types=[],
            dense_shapes=shapes,
        )
        return dict(zip(names, parsed.dense_values, strict=True))

    def candidates_by_task(self, context: Tensors, candidates: Tensors) -> Tensors:
        """Returns the probabilities by task, float32 [N], of the candidates for one context."""
        if self._position is not None:
            context, candidates = self._placed_candidates(context, candidates)
        logits = self.candidate_logits(context, candidates)
        if self.calibration is None:
            return self._probabilities(logits)
        return self.calibration.by_task(logits, join_candidates(self._feature_map, context, candidates))

    def _placed_candidates(self, context: Tensors, candidates: Tensors) -> tuple[Tensors, Tensors]:
        assert self._position is not None
        mask, ids = self._position
        of_candidate = self._feature_map.candidate_fields
        is_candidate = np.array([f in of_candidate for f in self._feature_map.fields for _ in range(f.slots)])
        sides = ((context, ~is_candidate), (candidates, is_candidate))
        placed = [
            {**side, "ids": tf.where(mask[slots], ids[slots], side["ids"])} if "ids" in side else side
            for side, slots in sides
        ]
        return placed[0], placed[1]

    def by_task(self, packed: Tensors) -> Tensors:
        """Returns the probabilities by task, float32 [N]."""
        if self.calibration is None:
            return self.uncalibrated_by_task(packed)
        placed = self.placed(packed)
        return self.calibration.by_task(self.logits(placed), placed)

    def uncalibrated_by_task(self, packed: Tensors) -> Tensors:
        """Returns the probabilities by task before calibration, float32 [N]."""
        return self._probabilities(self.logits(self.placed(packed)))

    def _probabilities(self, logits: tf.Tensor) -> Tensors:
        probabilities = answers(logits, self._feature_map)
        return {task: probabilities[:, index] for index, task in enumerate(self._tasks)}

    def explained(self, packed: Tensors) -> Tensors:
        """Returns the primary task's probability [N], its logit, the baseline logit, and the attributions."""
        placed = self.placed(packed)
        logit, baseline, by_column = self._attributions(placed)
        columns = zip(self._attributions.columns, tf.unstack(by_column, axis=1), strict=True)
        task = self._tasks[0]
        calibration = self.calibration.tasks[task] if self.calibration else None
        probability = calibration.probabilities(logit, placed.get("ids")) if calibration else tf.sigmoid(logit)
        answer = {task: probability, LOGIT: logit, BASELINE_LOGIT: baseline}
        return answer | {f"{PREFIX}{name}": values for name, values in columns}


def _signatures(servable: _Servable, spec: LogSpec, feature_map: FeatureMap) -> dict[str, Any]:
    examples = tf.TensorSpec([None], tf.string, name="examples")
    arguments = arguments_of(spec)
    columns = {argument: name for name, argument in arguments.items()}
    raw = {arguments[name]: tf.TensorSpec([None], tf.float32, name=arguments[name]) for name in spec.numeric_columns}
    raw |= {arguments[name]: tf.TensorSpec([None], tf.string, name=arguments[name]) for name in spec.text_columns}
    raw |= {
        arguments[name]: tf.TensorSpec([None, length], tf.float32, name=arguments[name])
        for name, length in spec.vector_lengths.items()
    }
    packed: dict[str, tf.TensorSpec] = {}
    if feature_map.fields:
        packed["ids"] = tf.TensorSpec([None, feature_map.total_slots], tf.int32, name="ids")
    if feature_map.dense:
        packed["dense"] = tf.TensorSpec([None, feature_map.dense_width], tf.float32, name="dense")
    if feature_map.weighted_slots:
        packed[SLOT_WEIGHTS] = tf.TensorSpec([None, len(feature_map.weighted_slots)], tf.float32, name=SLOT_WEIGHTS)
    if feature_map.text:
        for name in TEXT:
            packed[name] = tf.TensorSpec([None, feature_map.text.length], tf.int32, name=name)
    if feature_map.numbers:
        packed["numbers"] = tf.TensorSpec([None, 2 * len(feature_map.numbers)], tf.int32, name="numbers")

    @tf.function(autograph=False, input_signature=[examples])
    def serving_default(examples: tf.Tensor) -> Tensors:
        return servable.by_task(servable.pack(servable.parse(examples)))

    @tf.function(autograph=False)
    def serving_raw(**tensors: tf.Tensor) -> Tensors:
        return servable.by_task(servable.pack({columns[name]: tensor for name, tensor in tensors.items()}))

    @tf.function(autograph=False)
    def serving_raw_uncalibrated(**tensors: tf.Tensor) -> Tensors:
        named = {columns[name]: tensor for name, tensor in tensors.items()}
        return servable.uncalibrated_by_task(servable.pack(named))

    @tf.function(autograph=False)
    def serving_explain(**tensors: tf.Tensor) -> Tensors:
        return servable.explained(servable.pack({columns[name]: tensor for name, tensor in tensors.items()}))

    @tf.function(autograph=False)
    def serving_packed(**tensors: tf.Tensor) -> Tensors:
        return servable.by_task(tensors)

    @tf.function(autograph=False)
    def transform_raw(**tensors: tf.Tensor) -> Tensors:
        return servable.pack({columns[name]: tensor for name, tensor in tensors.items()})

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def regress(inputs: tf.Tensor) -> Tensors:
        return {"outputs": servable.by_task(servable.pack(servable.parse(inputs)))[feature_map.tasks[0]]}

    @tf.function(autograph=False, input_signature=[examples])
    def transform_features(examples: tf.Tensor) -> Tensors:
        return servable.pack(servable.parse(examples))

    @tf.function(autograph=False)
    def serving_candidates(**tensors: tf.Tensor) -> Tensors:
        packed = servable.pack_candidates({columns[name]: tensor for name, tensor in tensors.items()})
        return servable.candidates_by_task(*packed)

    @tf.function(autograph=False)
    def serving_candidates_packed(**tensors: tf.Tensor) -> Tensors:
        context = one_row({name: tensors[name] for name in TEXT}, TEXT)
        candidates = {name: tensor for name, tensor in tensors.items() if name not in TEXT}
        return servable.candidates_by_task(context, candidates)

    @tf.function(autograph=False)
    def user_vectors(**tensors: tf.Tensor) -> Tensors:
        named = servable.completed({columns[name]: tensor for name, tensor in tensors.items()})
        return servable.vectors(USER, servable.placed(servable.pack(named)))

    @tf.function(autograph=False)
    def item_vectors(**tensors: tf.Tensor) -> Tensors:
        named = servable.completed({columns[name]: tensor for name, tensor in tensors.items()})
        return servable.vectors(ITEM, servable.pack(named))

    description = spec.model_dump_json()

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="request")])
    def log_spec(request: tf.Tensor) -> Tensors:
        # Lets a client that knows only the URL read raw rows. Only the first row gets the description, the others get
        # "": it takes kilobytes, so the response to a request with many short rows would take gigabytes.
        return {"log_spec": tf.where(tf.range(tf.size(request)) == 0, description, "")}

    others: dict[str, Any] = {}
    if servable.takes_candidates:
        others[CANDIDATES] = serving_candidates.get_concrete_function(**raw)
    if servable.takes_packed_candidates:
        others[PACKED_CANDIDATES] = serving_candidates_packed.get_concrete_function(**packed)
    if servable.has_towers:
        of_item = {name: value for name, value in raw.items() if columns[name] in spec.item_columns}
        of_user = {name: value for name, value in raw.items() if name not in of_item}
        others |= {
            USER_VECTORS: user_vectors.get_concrete_function(**of_user),
            ITEM_VECTORS: item_vectors.get_concrete_function(**of_item),
        }
    if servable.calibration:
        others[UNCALIBRATED] = serving_raw_uncalibrated.get_concrete_function(**raw)
    if servable.explains:
        others[EXPLAIN] = serving_explain.get_concrete_function(**raw)
    return {
        **others,
        "log_spec": log_spec.get_concrete_function(),
        "serving_default": serving_default.get_concrete_function(),
        "serving_raw": serving_raw.get_concrete_function(**raw),
        "serving_packed": serving_packed.get_concrete_function(**packed),
        "regress": regress.get_concrete_function(),
        "transform_features": transform_features.get_concrete_function(),
        "transform_raw": transform_raw.get_concrete_function(**raw),
    }


def one_row(tensors: Tensors, names: Sequence[str]) -> Tensors:
    """Fixes the tensors of `names` to one row in the graph, and returns all tensors.

    A request with another number of rows fails, with the operation's name in its error.
    """
    name_of = "one_row_for_all_candidates"
    one = {name: tf.ensure_shape(tensors[name], [1, *tensors[name].shape[1:]], name_of) for name in names}
    return {**tensors, **one}


def arguments_of(spec: LogSpec) -> dict[str, str]:
    """Returns an argument name per column: the column's own if TensorFlow keeps it unchanged.

    TensorFlow renames one of two arguments whose names differ only in case.
    """
    columns = spec.feature_columns
    folded = collections.Counter(name.lower() for name in columns)
    numbered = "tensor_of_column_"
    while any(name.lower().startswith(numbered) for name in columns):
        numbered += "x_"

    def is_kept(name: str) -> bool:
        plain = _ARGUMENT.fullmatch(name) and not keyword.iskeyword(name) and name not in _OWN_ARGUMENTS
        return bool(plain) and folded[name.lower()] == 1

    return {name: name if is_kept(name) else f"{numbered}{index}" for index, name in enumerate(columns)}


def name_inputs(path: pathlib.Path, names: dict[str, str]) -> None:
    """Renames the inputs of a SavedModel's signatures from arguments to columns.

    The names of columns may contain spaces.

    Args:
        path: The file saved_model.pb.
        names: The columns by argument name.
    """
    if all(argument == name for argument, name in names.items()):
        return
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for signature in model.meta_graphs[0].signature_def.values():
        for argument in names.keys() & signature.inputs.keys():
            if names[argument] != argument:
                signature.inputs[names[argument]].CopyFrom(signature.inputs[argument])
                del signature.inputs[argument]
    path.write_bytes(model.SerializeToString(deterministic=True))


def export(
    model: CTRModel,
    transform: tft.TFTransformOutput,
    spec: LogSpec,
    feature_map: FeatureMap,
    rows: pa.RecordBatch,
    path: pathlib.Path,
    extra: Mapping[Asset, str | bytes],
    position: Mapping[str, str | float] = types.MappingProxyType({}),
    encoder_precision: str = "float32",
    calibrate: Callable[[CTRModel], FittedCalibration] | None = None,
    explains: bool = False,
) -> FittedCalibration | None:
    """Writes the SavedModel with its signatures and assets. Returns its calibration, or None.

    Args:
        model: The trained model. It is folded in place if it keeps its precision; otherwise a copy is folded.
        transform: The transform graph of the training data.
        spec: The description of the log.
        feature_map: The description of the packed tensors.
        rows: A few raw rows (columns of the log, null = missing) for the warm-up and for the comparison with Keras.
        path: The folder to write.
        extra: The contents of further assets.
        position: Raw values by column of the role position. They replace the values of every request.
        encoder_precision: Precision of the text encoder; see ctrpipe.models.text.precision.
        calibrate: Returns the calibration of the served model; None: no calibration.
        explains: Whether to add the signature `serving_explain`. It needs a model with gradients and a float32 encoder.

    Raises:
        InputError: Keras runs on another backend than TensorFlow.
    """
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            f"KERAS_BACKEND={keras.backend.backend()}: only the TensorFlow backend exports a SavedModel without XLA; "
            "unset it, and set training.backend to choose what trains"
        )
    load_text_operations()
    exported = in_precision(model, encoder_precision)
    exported.fold()
    calibration = calibrate(exported) if calibrate else None
    servable = _Servable(exported, transform, spec, feature_map, position, calibration, explains)
    signatures = _signatures(servable, spec, feature_map)
    tf.saved_model.save(servable, str(path), signatures=signatures)
    name_inputs(path / SAVED_MODEL, {argument: name for name, argument in arguments_of(spec).items()})
    make_assets_folder(path)
    feature_map.save(asset_path(path, Asset.FEATURE_MAP))
    asset_path(path, Asset.LOG_SPEC).write_text(spec.model_dump_json(indent=1))
    if calibration:
        asset_path(path, Asset.CALIBRATION).write_text(calibration.to_json())
    for asset, contents in extra.items():
        asset_path(path, asset).write_bytes(contents.encode() if isinstance(contents, str) else contents)
    raw = raw_arrays(rows, spec)
    packed = {name: value.numpy() for name, value in servable.pack({k: tf.constant(v) for k, v in raw.items()}).items()}

    tolerance = TOLERANCES["float32" if exported is model else encoder_precision]

    def answer_of_keras(inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
        """Returns the Keras predictions, and the tolerance for the exported graph."""
        placed = servable.placed(inputs)
        logits = model(placed, training=False)
        if calibration is None:
            return np.asarray(answers(logits, feature_map)), tolerance
        # A sigmoid's slope is at most a quarter, but a calibration can be steeper.
        change = calibration.largest_change(logits, placed, 4 * tolerance)
        return np.asarray(calibration.probabilities(logits, placed)), max(tolerance, change)

    probabilities, allowed = answer_of_keras(packed)
    candidates = None
    if servable.takes_candidates:
        shared = {name: np.repeat(raw[name][:1], rows.num_rows, axis=0) for name in spec.context_columns}
        joined = servable.pack({name: tf.constant(values) for name, values in {**raw, **shared}.items()})
        candidates, of_candidates = answer_of_keras({name: value.numpy() for name, value in joined.items()})
        allowed = max(allowed, of_candidates)
    golden = GoldenRows(raw, packed, probabilities, candidates, allowed)
    golden.save(asset_path(path, Asset.GOLDEN))
    _write_warmup(asset_path(path, Asset.WARMUP), spec, rows, raw, packed, servable)
    write_checksums(path)
    return calibration


def candidates_of(
    raw: Mapping[str, np.ndarray], packed: Mapping[str, np.ndarray], spec: LogSpec
) -> dict[str, dict[str, np.ndarray]]:
    """Returns inputs by signature that score rows as candidates for the first row's context.

    Args:
        raw: Raw columns by name, [N].
        packed: Packed tensors by name, [N, ...].
        spec: The description of the log.
    """
    shared = set(spec.context_columns)
    parts = {CANDIDATES: {name: value[:1] if name in shared else value for name, value in raw.items()}}
    if not spec.item_columns:
        parts[PACKED_CANDIDATES] = {name: value[:1] if name in TEXT else value for name, value in packed.items()}
    return parts


def _write_warmup(
    path: pathlib.Path, spec: LogSpec, rows: pa.RecordBatch, raw: Arrays, packed: Arrays, servable: _Servable
) -> None:
    features = pa.RecordBatch.from_arrays([rows[name] for name in spec.feature_columns], names=spec.feature_columns)
    examples = to_examples(features)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for index in range(rows.num_rows):
            one = slice(index, index + 1)
            for signature, inputs in (
                ("serving_raw", {name: value[one] for name, value in raw.items()}),
                ("serving_packed", {name: value[one] for name, value in packed.items()}),
                ("serving_default", {"examples": np.array(examples[one], object)}),
            ):
                writer.write(predict_log(signature, inputs).SerializeToString())
            writer.write(_regress_log(examples[index]).SerializeToString())
        if servable.explains:
            one_row = {name: value[:1] for name, value in raw.items()}
            writer.write(predict_log(EXPLAIN, one_row).SerializeToString())
        if servable.takes_candidates:
            # One candidate only: a server with batching requires inputs of equal length.
            for signature, arrays in candidates_of(raw, packed, spec).items():
                one_each = {name: value[:1] for name, value in arrays.items()}
                writer.write(predict_log(signature, one_each).SerializeToString())
        if servable.has_towers:
            of_item = {name: value[:1] for name, value in raw.items() if name in spec.item_columns}
            of_user = {name: value[:1] for name, value in raw.items() if name not in of_item}
            for signature, arrays in ((USER_VECTORS, of_user), (ITEM_VECTORS, of_item)):
                writer.write(predict_log(signature, arrays).SerializeToString())


def predict_log(signature: str, inputs: dict[str, np.ndarray]) -> prediction_log_pb2.PredictionLog:
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name="ctr", signature_name=signature))
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))


def _regress_log(example: bytes) -> prediction_log_pb2.PredictionLog:
    request = regression_pb2.RegressionRequest(model_spec=model_pb2.ModelSpec(name="ctr", signature_name="regress"))
    request.input.example_list.examples.add().ParseFromString(example)
    return prediction_log_pb2.PredictionLog(regress_log=prediction_log_pb2.RegressLog(request=request))
