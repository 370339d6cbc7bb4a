"""Transformed examples -> batches of packed tensors (TensorFlow)."""

import glob

import tensorflow as tf

from models.feature_map import FeatureMap

SHUFFLE_ROWS = 200_000


def packed_dataset(
    patterns: list[str], feature_map: FeatureMap, batch_size: int, shuffle_seed: int | None = None
) -> tf.data.Dataset:
    """Batches ({"ids": int32 [N, S], "dense": float32 [N, D]}, label float32 [N, tasks]) in a repeatable order."""
    files = sorted(name for pattern in patterns for name in glob.glob(pattern))
    records = tf.data.TFRecordDataset(files, compression_type="GZIP", buffer_size=8 << 20)
    if shuffle_seed is not None:
        records = records.shuffle(SHUFFLE_ROWS, seed=shuffle_seed)
    spec = {"label": tf.io.FixedLenFeature([len(feature_map.tasks)], tf.float32)}
    if feature_map.fields:
        spec["ids"] = tf.io.FixedLenFeature([feature_map.total_slots], tf.int64)
    if feature_map.dense:
        spec["dense"] = tf.io.FixedLenFeature([len(feature_map.dense)], tf.float32)

    def parse(batch: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features = tf.io.parse_example(batch, spec)
        label = features.pop("label")
        if "ids" in features:
            features["ids"] = tf.cast(features["ids"], tf.int32)
        return features, label

    return records.batch(batch_size).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(4)


def count_rows(patterns: list[str]) -> int:
    files = sorted(name for pattern in patterns for name in glob.glob(pattern))
    return sum(1 for _ in tf.data.TFRecordDataset(files, compression_type="GZIP", buffer_size=8 << 20))
