"""How much of a logit's variance pairs of columns make together, from covariances of what a model looks up.

An interaction vᵀ M w of two columns' independent vectors has, beside what each column adds alone, the variance
tr(M C_w Mᵀ C_v), with C_v and C_w their covariances over rows: that of (v - E v)ᵀ M (w - E w), the second-order term of
the functional analysis of variance.

References:
    Hoeffding, "A Class of Statistics with Asymptotically Normal Distribution", 1948; Hooker, "Discovering Additive
    Structure in Black Box Functions", 2004.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


def inner_products(covariances: Sequence[Floats], factors: Floats | None = None) -> npt.NDArray[np.float64]:
    """Returns the standard deviation of each pair's interaction f <v, w>, `[parts, parts]`, zero for i = j.

    Args:
        covariances: Of each part's vector over rows, `[width, width]`, all of one width.
        factors: f of each pair, symmetric, `[parts, parts]`; None for 1.
    """
    flat = np.stack([each.reshape(-1) for each in covariances]).astype(np.float64)
    found = np.sqrt(np.maximum(flat @ flat.T, 0))  # tr(C_v C_w) of symmetric matrices
    return off_diagonal(found if factors is None else np.abs(factors) * found)


def crossed(covariances: Sequence[Floats], kernel: Floats) -> npt.NDArray[np.float64]:
    """Returns each pair's deviation of the products in x ∘ (W x), the root of summed variances, `[parts, parts]`.

    Args:
        covariances: Of each part of x over rows, `[width, width]` each.
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
    """Returns the strengths with zeros on the diagonal: a part is no pair with itself."""
    return np.asarray(strengths * (1 - np.eye(len(strengths))))
