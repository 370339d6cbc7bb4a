"""TensorFlow Data Validation, imported in the order in which it loads."""

from common.libraries import import_tensorflow

import_tensorflow()  # a worker's process begins here: without TensorFlow's start-up lines
import tfx  # noqa: E402, F401  TFDV needs a module that tfx-bsl no longer has; tfx puts a stand-in there

# isort: split
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
