"""The engines of clusters on this machine."""

from tests.clusters.cluster import Cluster
from tests.clusters.flink import FlinkCluster
from tests.clusters.spark import SparkCluster

CLUSTERS: dict[str, type[Cluster]] = {"flink": FlinkCluster, "spark": SparkCluster}
