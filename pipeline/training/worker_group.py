"""Sums and broadcasts arrays between the workers that train one model with TensorFlow."""

import numpy as np
import tensorflow as tf

from ctrpipe.pipeline.training.cluster import read_cluster


class WorkerGroup:
    """The processes of a strategy: one process, or the workers of MultiWorkerMirroredStrategy.

    Attributes:
        count: The number of processes.
        index: This process's index; 0 is the chief.
        replicas: The number of devices of each process.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        cluster = read_cluster() if several else None
        self.count, self.index = (len(cluster.workers), cluster.index) if cluster else (1, 0)
        self.replicas = strategy.num_replicas_in_sync // self.count
        self._strategy = strategy
        self._sum = tf.function(self._sum_of_copies, autograph=False, reduce_retracing=True)

    def total(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum over the workers of float arrays of the same shape."""
        if self.count == 1 or not values.size:  # TensorFlow 2.21 crashes on an empty tensor
            return values
        total: np.ndarray = self._sum(values.reshape(-1)).numpy()
        return total.reshape(values.shape)

    def from_chief(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """See `Learner.from_chief`."""
        if self.count == 1:
            return arrays
        # A sum in which the other workers' arrays are zero. Sent as floats, because collectives of all devices support
        # them.
        sent = [array.astype(np.float32 if array.dtype == np.float32 else np.float64) for array in arrays]
        totals = [self.total(values if self.index == 0 else np.zeros_like(values)) for values in sent]
        return [values.astype(array.dtype) for values, array in zip(totals, arrays, strict=True)]

    def _sum_of_copies(self, values: tf.Tensor) -> tf.Tensor:
        def value(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            return tf.zeros_like(values) if context.replica_id_in_sync_group % self.replicas else values

        copies = self._strategy.experimental_distribute_values_from_function(value)
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, copies, axis=None)
