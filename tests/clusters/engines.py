"""The engines that a cluster of this machine can be of."""

from tests.clusters.cluster import Cluster
from tests.clusters.flink import FlinkCluster
from tests.clusters.spark import SparkCluster

CLUSTERS: dict[str, type[Cluster]] = {"flink": FlinkCluster, "spark": SparkCluster}
