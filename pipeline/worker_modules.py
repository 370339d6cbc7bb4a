"""What processes that work on parts of a log need: imported once, in the process that they are copies of."""

import os

# One worker a core; the GPU is for training.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
os.environ |= dict.fromkeys(("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")
os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}

from pipeline.quiet import importing  # noqa: E402

with importing():
    import pipeline.statistics  # noqa: F401
    import transforms.ingest  # noqa: F401
    import transforms.transform  # noqa: F401
