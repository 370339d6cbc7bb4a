"""The engines that a cluster of this machine can be of."""

from collections.abc import Callable

from tests.clusters import flink, spark
from tests.clusters.cluster import Cluster

CLUSTERS: dict[str, type[Cluster]] = {"flink": flink.FlinkCluster, "spark": spark.SparkCluster}
MISSING: dict[str, Callable[[], str | None]] = {"flink": flink.missing, "spark": spark.missing}
