"""Imports TensorFlow Data Validation in the only order that works."""

import contextlib
import io

from ctrpipe.common.libraries import import_tensorflow

import_tensorflow()  # hides TensorFlow's start-up messages; in a worker, this is the first import
import tfx  # noqa: E402, F401  provides a replacement of the tfx-bsl module that TFDV needs and tfx-bsl dropped

# isort: split
with contextlib.redirect_stderr(io.StringIO()):  # hides the warning that it cannot draw without IPython
    import tensorflow_data_validation as tfdv  # noqa: E402
from tensorflow_data_validation.statistics import stats_impl  # noqa: E402
from tensorflow_data_validation.statistics.generators.basic_stats_generator import BasicStatsGenerator  # noqa: E402
from tensorflow_data_validation.statistics.generators.top_k_uniques_sketch_stats_generator import (  # noqa: E402
    TopKUniquesSketchStatsGenerator,
)
from tensorflow_data_validation.utils import quantiles_util  # noqa: E402
from tfx_bsl.arrow.table_util import CanonicalizeRecordBatch  # noqa: E402

__all__ = [
    "BasicStatsGenerator",
    "CanonicalizeRecordBatch",
    "TopKUniquesSketchStatsGenerator",
    "quantiles_util",
    "stats_impl",
    "tfdv",
]
