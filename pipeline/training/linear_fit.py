"""Fits a logistic regression to packed rows with L-BFGS, in numpy: no backend, no batches, no learning rate.

With rows of weights s_i (mean 1), features x_i and labels y_i, a fit minimizes over the weights w and the bias b

    sum_i s_i (log(1 + e^z_i) - y_i z_i) + |w|^2 / (2 v),    z_i = <w, x_i> + b,

the negative log posterior under the prior N(0, v) for each weight. The problem is convex: its only solution does not
depend on the seed. Dense features are scaled to mean 0 and standard deviation 1 first, which makes the prior
independent of their units.
"""

import collections
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import scipy.optimize
import scipy.sparse
from scipy.special import expit, logit
from threadpoolctl import threadpool_limits

from ctrpipe.common.processes import cores
from ctrpipe.common.progress import throttled_announce
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import SLOT_WEIGHTS, WEIGHT, FeatureMap
from ctrpipe.pipeline.training.data import packed_reader
from ctrpipe.pipeline.training.learner import Batch, split_weight

MOST_ITERATIONS = 2000
DECREASE, SLOPE = 1e-10, 1e-7  # a fit ends at this relative decrease of the mean loss per step, or at this slope
COARSE = 1e-7  # the decrease that ends a fit in a search
# The decrease that ends a fit to MANY rows or more. On 800,000 rows it is a third of a nat in total, which is less than
# chance. On such a generated log, the search and the last fit take half the time, and the AUC of the validation rows
# changes by less than 0.00005.
OF_MANY, MANY = 1e-6, 1 << 18
# The steps that L-BFGS remembers, each as two vectors of all weights. With ten steps, the search and the last fit on a
# million rows (470,000 weights) take the same CPU time and 40 MB more.
REMEMBERED = 5
FOLDS = 5  # of cross-validation
_MIXER, _MIXED_BITS = np.uint64(0x9E3779B97F4A7C15), np.uint64(40)  # Fibonacci hashing of a row's number
_BLOCK_ROWS = 1 << 16
_MOST_BYTES = 1 << 30  # of rows in memory; with more, all rows are read again for each step
_MOST_THREADS = 4  # each holds a gradient of all weights, and one thread adds them up
_FEWEST_STEPS = 5  # before the remaining time is announced
_LEAST_RATE = 1e-6  # as in CTRModel.start_at

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class _Block:
    """A block of rows: pooled ids `[n, ids]`, scaled dense features `[n, dense]`, labels `[n, tasks]`, weights `[n]`.

    `folds`, `[n]`, is the cross-validation fold of each row, from 0.
    """

    ids: scipy.sparse.csr_array
    dense: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    folds: np.ndarray

    def known(self, task: int, fold: int | None, held_out: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Returns the weights and labels of a task, both 0 for rows that do not count.

        These are rows without a label, and rows outside the fold's training rows (or its held-out rows).
        """
        labels = self.labels[:, task]
        counts = np.isfinite(labels)
        if fold is not None:
            counts &= (self.folds == fold) == held_out
        return np.where(counts, self.weights, 0.0), np.where(counts, labels, 0.0)


@dataclasses.dataclass(frozen=True)
class Weights:
    """The weights of one task: by id `[ids]`, by scaled dense feature `[dense]`, and the bias."""

    ids: np.ndarray
    dense: np.ndarray
    bias: float

    def logits(self, block: _Block) -> np.ndarray:
        """Returns the logits of a block's rows, `[n]`."""
        return np.asarray(block.ids @ self.ids + np.einsum("nd,d->n", block.dense, self.dense) + self.bias)


class LinearRows:
    """The rows of packed files as inputs of a linear model.

    Args:
        files: Globs of packed files.
        feature_map: The description of the packed tensors.
        every: 1 for all rows, 2 for every second block of them, and so on.
    """

    def __init__(self, files: list[str], feature_map: FeatureMap, every: int = 1):
        self.feature_map = feature_map
        self._reader = packed_reader(files, feature_map, _BLOCK_ROWS, weighted=True)
        self._every, rows = every, self._reader.rows
        self.count = sum(min(_BLOCK_ROWS, rows - first) for first in range(0, rows, every * _BLOCK_ROWS))
        self._means, self._deviations, self.mean_weight = self._moments()
        self._announce_if_due = throttled_announce()
        is_plain = all(field.slots == 1 and not field.weighted for field in feature_map.fields)
        bytes_of_row = (4 if is_plain else 12) * feature_map.total_slots + 8 * feature_map.dense_width
        is_small = bytes_of_row * self.count <= _MOST_BYTES
        self._kept = list(self._read()) if is_small else None

    @functools.cached_property
    def _ones(self) -> np.ndarray:
        return np.ones(min(_BLOCK_ROWS, self.count) * self.feature_map.total_slots)

    @property
    def is_small(self) -> bool:
        """Whether the rows stay in memory, which makes cross-validation cheap."""
        return self._kept is not None

    def blocks(self) -> Iterator[_Block]:
        """Yields the rows in the order of the log."""
        yield from self._read() if self._kept is None else self._kept

    def _of_blocks(self, function: Callable[[_Block], Result]) -> Iterator[Result]:
        """Yields the results of a function for all blocks, computed in several threads, in the order of the log.

        Sums of the results do not depend on the number of threads.
        """
        number = min(cores(), _MOST_THREADS)
        if number == 1 or self.count <= _BLOCK_ROWS:
            yield from map(function, self.blocks())
            return
        with ThreadPoolExecutor(number, "linear") as threads:
            waiting: collections.deque[Future[Result]] = collections.deque()
            for block in self.blocks():
                waiting.append(threads.submit(function, block))
                if len(waiting) > number:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def batches(self) -> Iterator[tuple[np.ndarray, Batch]]:
        """Yields all packed rows in the order of the log: the cross-validation fold of each row, and the batch."""
        for number, batch in enumerate(self._reader):
            yield _folds(number, len(batch[1])), batch

    def _read(self) -> Iterator[_Block]:
        for number, batch in enumerate(self._reader):
            if number % self._every == 0:
                yield self._block(number, batch)

    def fit(
        self,
        task: int,
        variance: float,
        start: Weights | None = None,
        own_l2: float = 0.0,
        fold: int | None = None,
        decrease: float = DECREASE,
    ) -> "Fit":
        """Returns the weights of a task under a prior.

        Rows whose label is missing (NaN) do not count.

        Args:
            task: The index of the task.
            variance: The variance of the prior.
            start: The initial weights, from the fit of another variance. None for 0.
            own_l2: λ of the penalty λ/2 Σ w^2 for each row and each of its ids (the model's `l2`).
            fold: The fold whose rows are held out. None to use all rows.
            decrease: The relative decrease of the mean loss in a step that ends the fit. For MANY rows it is at least
                OF_MANY.
        """
        decrease = max(decrease, OF_MANY) if self.count >= MANY else decrease
        rate, total, lookups, squares = self._sums(task, fold)
        ids, dense = len(lookups), len(squares)
        if not 0 < rate < 1:
            bias = float(logit(np.clip(rate, _LEAST_RATE, 1 - _LEAST_RATE)))
            return Fit(Weights(np.zeros(ids), np.zeros(dense), bias), 0.0, 0, True)
        penalties = np.concatenate([np.full(ids + dense, 1 / variance), [0.0]])
        penalties[:ids] += own_l2 * lookups
        # The scale of each weight: the inverse root of the curvature at the base rate. Counts of values differ by
        # orders of magnitude, and L-BFGS begins with equal steps for all.
        curvature = rate * (1 - rate) * np.concatenate([lookups, squares, [total]])
        scale = 1 / np.sqrt(np.maximum(curvature + penalties, 1e-12))

        def unpacked(scaled: np.ndarray) -> Weights:
            values = scaled * scale
            return Weights(values[:ids], values[ids:-1], float(values[-1]))

        def objective(scaled: np.ndarray) -> tuple[float, np.ndarray]:
            weights = unpacked(scaled)
            values = scaled * scale

            def of_block(block: _Block) -> tuple[float, Weights]:
                known, labels = block.known(task, fold)
                logits = weights.logits(block)
                residuals = known * (expit(logits) - labels)
                by_dense = np.einsum("n,nd->d", residuals, block.dense)
                slope = Weights(block.ids.T @ residuals, by_dense, float(residuals.sum()))
                return _dot(known, np.logaddexp(0, logits) - labels * logits), slope

            loss, gradient = 0.5 * _dot(penalties, values**2), penalties * values
            for of_rows, slope in self._of_blocks(of_block):
                loss += of_rows
                gradient[:ids] += slope.ids
                gradient[ids:-1] += slope.dense
                gradient[-1] += slope.bias
            return loss / total, gradient * scale / total

        if start is None:
            start = Weights(np.zeros(ids), np.zeros(dense), float(logit(rate)))
        begin = np.concatenate([start.ids, start.dense, [start.bias]]) / scale
        progress = FitProgress(
            decrease, f" on {self.count:,} rows{'' if fold is None else f', part {fold + 1} of {FOLDS} left out,'}"
        )

        def tell(intermediate_result: scipy.optimize.OptimizeResult) -> None:
            self._announce_if_due(progress.step(float(intermediate_result.fun), time.monotonic()))

        options = {"maxiter": MOST_ITERATIONS, "maxfun": 2 * MOST_ITERATIONS, "ftol": decrease, "gtol": SLOPE}
        options["maxcor"] = REMEMBERED
        with threadpool_limits(1, "blas"):  # see `_dot`: with 470,000 weights a fit takes a third more with two threads
            optimum = scipy.optimize.minimize(
                objective, begin, jac=True, method="L-BFGS-B", options=options, callback=tell
            )
        weights = unpacked(optimum.x)
        return Fit(weights, self.loss(weights, task, fold)[0] / total, int(optimum.nit), optimum.status == 0)

    def load(self, network: CTRModel, weights: list[Weights]) -> None:
        """Assigns the weights of all tasks to a linear model."""
        assert network.linear_dense is not None
        kernel = np.stack([one.dense / self._deviations for one in weights], axis=1)
        bias = np.array([one.bias for one in weights]) - self._means @ kernel
        if network.linear is not None:
            network.linear.table.assign(np.stack([one.ids for one in weights], axis=1) / network.linear_rate)
        if len(kernel):
            network.linear_dense.kernel.assign(kernel / network.linear_rate)
        network.linear_dense.bias.assign(bias / network.linear_rate)

    def distance(self, network: CTRModel, weights: list[Weights]) -> float:
        """Returns the largest difference between the logits of a model and of the weights, in the first batch."""
        batch = next(iter(self._reader))
        inputs, block = split_weight(batch[0])[0], self._block(0, batch)
        logits = np.asarray(network(inputs, training=True))  # in training, fake negatives are not corrected for
        return float(np.abs(logits - np.stack([one.logits(block) for one in weights], axis=1)).max())

    def loss(self, weights: Weights, task: int, fold: int | None = None, held_out: bool = False) -> tuple[float, float]:
        """Returns the weighted sum of a task's log losses, without the penalty, and the sum of the weights.

        Args:
            weights: The weights of the task.
            task: The index of the task.
            fold, held_out: As in `_Block.known`.
        """

        def of_block(block: _Block) -> tuple[float, float]:
            known, labels = block.known(task, fold, held_out)
            logits = weights.logits(block)
            return _dot(known, np.logaddexp(0, logits) - labels * logits), float(known.sum())

        loss = total = 0.0
        for of_rows, weight in self._of_blocks(of_block):
            loss, total = loss + of_rows, total + weight
        return loss, total

    def _sums(self, task: int, fold: int | None) -> tuple[float, float, np.ndarray, np.ndarray]:
        """Returns the mean label, the sum of the weights, and each id's and dense feature's sum of squares."""
        clicks = total = 0.0
        lookups, squares = np.zeros(self.feature_map.total_ids), np.zeros(self.feature_map.dense_width)
        for block in self.blocks():
            known, labels = block.known(task, fold)
            clicks, total = clicks + _dot(known, labels), total + float(known.sum())
            lookups += block.ids.power(2).T @ known
            squares += np.einsum("n,nd->d", known, block.dense**2)
        return (clicks / total if total else 0.0), total, lookups, squares

    def _moments(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Returns the mean and the standard deviation of each dense feature, and the mean weight of a row."""
        width = self.feature_map.dense_width
        if not width and WEIGHT not in self._reader.widths:
            return np.zeros(0), np.ones(0), 1.0
        sums, squares, weight = np.zeros(width), np.zeros(width), 0.0
        for inputs, labels in self._reader:
            read, weights = split_weight(inputs)
            weight += len(labels) if weights is None else float(weights.sum(dtype=np.float64))
            if width:
                dense = read["dense"].astype(np.float64)
                sums, squares = sums + dense.sum(axis=0), squares + (dense**2).sum(axis=0)
        rows = self._reader.rows
        means = sums / rows
        deviations = np.sqrt(np.maximum(squares / rows - means**2, 0))
        return means, np.where(deviations > 1e-6 * np.maximum(np.abs(means), 1), deviations, 1.0), weight / rows

    def _block(self, number: int, batch: Batch) -> _Block:
        inputs, labels = batch
        read, weights = split_weight(inputs)
        rows = len(labels)
        weights = np.ones(rows) if weights is None else np.asarray(weights, np.float64) / (self.mean_weight or 1.0)
        dense = (read["dense"] - self._means) / self._deviations if self.feature_map.dense else np.zeros((rows, 0))
        one_hot = self._one_hot(read.get("ids"), read.get(SLOT_WEIGHTS), rows)
        return _Block(one_hot, dense, np.asarray(labels, np.float64), weights, _folds(number, rows))

    def _one_hot(self, ids: np.ndarray | None, weights: np.ndarray | None, rows: int) -> scipy.sparse.csr_array:
        """Returns the factor of each id's weight in the logit, `[rows, ids]`: the pooling of FieldEmbedding."""
        shape = (rows, self.feature_map.total_ids)
        if ids is None:
            return scipy.sparse.csr_array(shape)
        values = (ids > 0).astype(np.float64)
        for field in self.feature_map.fields:
            if field.slots > 1 and field.pooling != "sum":
                own = self.feature_map.slots_of(field.name)
                values[:, own] /= np.maximum(values[:, own].sum(axis=1, keepdims=True), 1)
        if weights is not None:
            is_weighted = [field.weighted for field in self.feature_map.fields for _ in range(field.slots)]
            values[:, is_weighted] *= weights
        values = values.reshape(-1)
        if (values == 1).all():  # shared by all blocks: takes a third of the memory, and fits the processor's cache
            values = self._ones[: values.size]
        starts = np.arange(rows + 1, dtype=np.int32) * ids.shape[1]
        return scipy.sparse.csr_array((values, ids.reshape(-1), starts), shape)


@dataclasses.dataclass(frozen=True)
class Fit:
    """The result of a fit.

    Attributes:
        weights: The weights.
        loss: The mean loss over the rows, without the penalty.
        iterations: The number of steps.
        converged: Whether the steps ended at the minimum.
    """

    weights: Weights
    loss: float
    iterations: int
    converged: bool


class FitProgress:
    """Describes the progress of a fit: the steps, the seconds, and an estimate of the remaining seconds.

    The decreases of the loss fall about geometrically. The estimate extrapolates from the largest and the smallest
    decrease so far to the decrease that ends the fit.

    Args:
        decrease: The relative decrease in a step that ends the fit.
        what: A description of the rows, to be appended to the loss.
    """

    def __init__(self, decrease: float, what: str):
        self._decrease, self._what = decrease, what
        self._started = time.monotonic()
        self._losses: list[float] = []
        self._decreases: list[float] = []

    def step(self, loss: float, now: float) -> str:
        """Records a step and returns the line that describes the progress.

        Args:
            loss: The mean loss after the step.
            now: The time from time.monotonic, in seconds.
        """
        if self._losses and 0 < loss < self._losses[-1]:
            self._decreases.append((self._losses[-1] - loss) / loss)
        self._losses.append(loss)
        seconds = now - self._started
        steps = self._steps_left()
        left = "" if steps is None else f", about {seconds / len(self._losses) * steps:,.0f} s left"
        done = f"{len(self._losses):,} steps in {seconds:,.0f} s"
        return f"Logistic regression: loss {loss:.4f}{self._what} after {done}{left}"

    def _steps_left(self) -> float | None:
        """Returns the estimated number of remaining steps; None while there are too few steps for an estimate."""
        if len(self._decreases) < _FEWEST_STEPS:
            return None
        largest, smallest = max(self._decreases), min(self._decreases)
        if smallest >= largest:
            return None
        share = math.log(largest / max(smallest, self._decrease)) / math.log(largest / self._decrease)
        most = float(MOST_ITERATIONS - len(self._losses))
        return min((len(self._decreases) - 1) * (1 / share - 1), most) if 0 < share <= 1 else 0.0


def _dot(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the inner product of two vectors, on one core.

    `@` would use BLAS's threads. If other programs run on the same cores, starting them takes ten times as long as the
    product of some thousand rows. The order of the summation would also depend on the number of threads.
    """
    return float(np.einsum("n,n->", first, second))


def _folds(number: int, rows: int) -> np.ndarray:
    """Returns the cross-validation fold of each row of a block, from 0, `[rows]`."""
    numbers = np.arange(rows, dtype=np.uint64) + np.uint64(number * _BLOCK_ROWS)
    return (((numbers * _MIXER) >> _MIXED_BITS) % np.uint64(FOLDS)).astype(np.int8)
