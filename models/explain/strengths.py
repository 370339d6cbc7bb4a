"""Strengths of the interactions of pairs of columns, from the covariances of their embeddings.

For two columns with independent vectors v and w, the interaction vᵀ M w adds variance to the logit beyond what each
column adds alone: tr(M C_w Mᵀ C_v), with C_v and C_w the covariances over rows. This is the variance of the
second-order term of the functional analysis of variance, (v - E v)ᵀ M (w - E w). The strength of a pair is the square
root of this variance.

References:
    Hoeffding, "A Class of Statistics with Asymptotically Normal Distribution", 1948; Hooker, "Discovering Additive
    Structure in Black Box Functions", 2004.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


def inner_products(covariances: Sequence[Floats], factors: Floats | None = None) -> npt.NDArray[np.float64]:
    """Returns the standard deviation of each pair's interaction f <v, w>, `[parts, parts]`; zero for i = j.

    Args:
        covariances: Covariance of each part's vector over rows, `[width, width]`, all of the same width.
        factors: Factor f of each pair, symmetric, `[parts, parts]`; None for 1.
    """
    flat = np.stack([each.reshape(-1) for each in covariances]).astype(np.float64)
    norms = np.sqrt(np.maximum(flat @ flat.T, 0))  # tr(C_v C_w) of symmetric matrices
    return off_diagonal(norms if factors is None else np.abs(factors) * norms)


def crossed(covariances: Sequence[Floats], kernel: Floats) -> npt.NDArray[np.float64]:
    """Returns the strength of each pair in the products x ∘ (W x), `[parts, parts]`.

    The strength is the root of the summed variances of a pair's products.

    Args:
        covariances: Covariance of each part of x over rows, `[width, width]` each.
        kernel: W, `[widths, widths]`; W_ij maps part j to the coordinates of part i.
    """
    stops = np.cumsum([len(each) for each in covariances])
    places = [slice(stop - len(each), stop) for stop, each in zip(stops, covariances, strict=True)]
    count = len(covariances)
    variance = np.zeros((count, count))
    for first in range(count):
        for second in range(count):
            block = kernel[places[first], places[second]].astype(np.float64)
            of_block = np.einsum("ka,ab,kb->k", block, covariances[second], block)
            variance[first, second] = np.diag(covariances[first]) @ of_block
    return off_diagonal(np.sqrt(np.maximum(variance + variance.T, 0)))


def off_diagonal(strengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the strengths with a zero diagonal: a part forms no pair with itself."""
    return np.asarray(strengths * (1 - np.eye(len(strengths))))
