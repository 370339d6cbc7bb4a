"""Imports the libraries of worker processes, in each fork."""

import os

from ctrpipe.common.processes import end_with_parent

end_with_parent()  # also during an import
# One worker per core. The GPU is for training.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
os.environ |= dict.fromkeys(("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")
os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}

from ctrpipe.common.libraries import importing_tfx  # noqa: E402

with importing_tfx():
    import ctrpipe.pipeline.monitoring.statistics  # noqa: F401
    import ctrpipe.transforms.features.transform  # noqa: F401
    import ctrpipe.transforms.log.ingest  # noqa: F401
