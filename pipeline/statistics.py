"""What the report shows of the data: TFDV's statistics and anomalies, as plain values."""

import pathlib
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2

from transforms.spec import LogSpec


def summarise_statistics(
    statistics: pathlib.Path, anomalies: pathlib.Path, counts: dict[str, Any], spec: LogSpec
) -> dict[str, Any]:
    """The contents of report_data/statistics.json."""
    splits = {name: {"rows": rows, "positives": counts["positives"][name]} for name, rows in counts["rows"].items()}
    train = tfdv.load_stats_binary(str(statistics / "Split-train" / "FeatureStats.pb")).datasets[0]
    kinds: dict[str, str] = {column: feature.kind for feature in spec.features for column in feature.columns}
    columns = [_column(feature, kinds, train.num_examples) for feature in train.features]
    order = {name: index for index, name in enumerate(spec.label_columns + spec.feature_columns)}
    columns.sort(key=lambda column: order.get(column["name"], len(order)))
    found = []
    for folder in sorted(anomalies.glob("Split-*")):
        binary = anomalies_pb2.Anomalies.FromString((folder / "SchemaDiff.pb").read_bytes())
        for column, info in binary.anomaly_info.items():
            found.append({"column": column, "split": folder.name.removeprefix("Split-"), "text": info.description})
    letters = {"rows": counts["rejected"], "reasons": counts["reasons"]}
    return {"splits": splits, "columns": columns, "anomalies": found, "dead_letters": letters}


def _column(feature: Any, kinds: dict[str, str], rows: int) -> dict[str, Any]:
    name = feature.path.step[0]
    is_text = feature.WhichOneof("stats") == "string_stats"
    values = feature.string_stats if is_text else feature.num_stats
    present = values.common_stats.num_non_missing
    return {
        "name": name,
        "kind": kinds.get(name, "label"),
        "missing_rate": 1 - present / rows if rows else None,
        "unique": values.unique if is_text else None,
        "mean": None if is_text else values.mean,
        "top": [[top.value, int(top.frequency)] for top in values.top_values[:5]] if is_text else [],
    }
