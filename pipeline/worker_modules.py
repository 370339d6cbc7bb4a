"""What processes that work on parts of a log need: imported once, in the process that they are copies of."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Ends with the process that started it, also in the middle of an import; copies look after themselves.
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
# One worker a core; the GPU is for training.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
os.environ |= dict.fromkeys(("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")
os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}

from common.libraries import importing, tfx_does_without  # noqa: E402

with importing(*tfx_does_without(())):  # Beam has workers of its own
    import pipeline.monitoring.statistics  # noqa: F401
    import transforms.features.transform  # noqa: F401
    import transforms.log.ingest  # noqa: F401
