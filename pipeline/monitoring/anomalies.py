"""TFDV's comparison of statistics with a schema, split into groups of columns.

TFDV looks up a column by scanning all columns, several times per column. With 5,000 columns this takes minutes. The
result for a column depends only on this column. Groups of columns therefore give the same result, in a time that grows
linearly with the number of columns.
"""

from collections.abc import Sequence

from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from ctrpipe.pipeline.monitoring.validation import tfdv

GROUP_COLUMNS = 100


def validate_statistics(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
    schema: schema_pb2.Schema,
    **others: statistics_pb2.DatasetFeatureStatisticsList,
) -> anomalies_pb2.Anomalies:
    """Returns the same result as TFDV's function of the same name.

    Args:
        statistics: The statistics of one data set without structured columns.
        schema: The schema, without constraints on the whole data set.
        others: Statistics to compare with, by TFDV's argument names: `previous_statistics`, `serving_statistics`.
    """
    names = dict.fromkeys(feature.name for feature in schema.feature)
    for each in (statistics, *others.values()):
        names |= dict.fromkeys(feature.path.step[0] for feature in each.datasets[0].features)
    groups = [list(names)[start : start + GROUP_COLUMNS] for start in range(0, max(len(names), 1), GROUP_COLUMNS)]
    anomalies = anomalies_pb2.Anomalies()
    for schema_part, part, *other_parts in zip(
        _schema_parts(schema, groups),
        *(_statistics_parts(each, groups) for each in (statistics, *others.values())),
        strict=True,
    ):
        part_anomalies = tfdv.validate_statistics(part, schema_part, **dict(zip(others, other_parts, strict=True)))
        part_anomalies.ClearField("baseline")
        anomalies.MergeFrom(part_anomalies)
    anomalies.baseline.CopyFrom(schema)
    return anomalies


def _schema_parts(schema: schema_pb2.Schema, groups: Sequence[Sequence[str]]) -> list[schema_pb2.Schema]:
    features = {feature.name: feature for feature in schema.feature}
    rest = schema_pb2.Schema()
    rest.CopyFrom(schema)
    rest.ClearField("feature")
    rest.ClearField("tensor_representation_group")  # how columns become tensors, which is not validated
    parts = []
    for names in groups:
        part = schema_pb2.Schema()
        part.CopyFrom(rest)
        part.feature.extend(features[name] for name in names if name in features)
        parts.append(part)
    return parts


def _statistics_parts(
    statistics: statistics_pb2.DatasetFeatureStatisticsList, groups: Sequence[Sequence[str]]
) -> list[statistics_pb2.DatasetFeatureStatisticsList]:
    [whole] = statistics.datasets
    features = {feature.path.step[0]: feature for feature in whole.features}
    rest = statistics_pb2.DatasetFeatureStatistics(
        name=whole.name, num_examples=whole.num_examples, weighted_num_examples=whole.weighted_num_examples
    )
    parts = []
    for names in groups:
        part = statistics_pb2.DatasetFeatureStatisticsList(datasets=[rest])
        part.datasets[0].features.extend(features[name] for name in names if name in features)
        parts.append(part)
    return parts
