"""The TFX schema of raw examples, derived from the configuration instead of the data."""

from tensorflow_metadata.proto.v0 import schema_pb2

from ctrpipe.transforms.log.spec import LogSpec


def raw_schema(spec: LogSpec) -> schema_pb2.Schema:
    """Returns a schema with at most one value or vector per row and column, read as dense tensors.

    The tensors are [N], or [N, length] for vectors. A missing value is NaN or "". The weight and a single label are
    always present.
    """
    schema = schema_pb2.Schema()
    group = schema.tensor_representation_group[""].tensor_representation
    for name in spec.numeric_columns:
        _add(schema, name, schema_pb2.FLOAT)
        group[name].dense_tensor.column_name = name
        group[name].dense_tensor.default_value.float_value = float("nan")
    for name, length in spec.vector_lengths.items():
        _add(schema, name, schema_pb2.FLOAT, length)
        group[name].dense_tensor.column_name = name
        group[name].dense_tensor.shape.dim.add(size=length)
        group[name].dense_tensor.default_value.float_value = float("nan")
    for name in spec.text_columns:
        _add(schema, name, schema_pb2.BYTES)
        group[name].dense_tensor.column_name = name
        group[name].dense_tensor.default_value.bytes_value = b""
    for name in spec.target_columns:
        feature = _add(schema, name, schema_pb2.FLOAT)
        if name == spec.data.weight or len(set(spec.label_columns)) == 1:  # of several labels, one may be missing
            feature.presence.min_fraction = 1.0
        if name not in spec.data.number_columns:
            feature.float_domain.min = 0.0
            if name != spec.data.weight:
                feature.float_domain.max = 1.0
        group[name].dense_tensor.column_name = name
        group[name].dense_tensor.default_value.float_value = float("nan")
    return schema


def _add(schema: schema_pb2.Schema, name: str, kind: "schema_pb2.FeatureType", most: int = 1) -> schema_pb2.Feature:
    feature = schema.feature.add()
    feature.name = name
    feature.type = kind
    feature.value_count.min = 0
    feature.value_count.max = most
    return feature
