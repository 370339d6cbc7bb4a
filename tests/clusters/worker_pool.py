"""Beam's worker pool for several workers of one machine: `python -m tests.clusters.worker_pool PORT`.

Beam's own pool is for one worker of a cluster. Each counts its Python processes from 1-1, so that the first of two
workers to end would stop the other's process of the same name, and the job would wait for ever. Here a process ends by
itself, when its worker closes the channel.
"""

import sys

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer


def stop_nothing(self, request, context) -> beam_fn_api_pb2.StopWorkerResponse:
    return beam_fn_api_pb2.StopWorkerResponse()


if __name__ == "__main__":
    BeamFnExternalWorkerPoolServicer.StopWorker = stop_nothing
    address, server = BeamFnExternalWorkerPoolServicer.start(use_process=True, port=int(sys.argv[1]))
    server.wait_for_termination()
