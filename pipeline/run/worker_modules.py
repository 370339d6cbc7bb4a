"""Imports the libraries of worker processes, in each fork."""

from ctrpipe.common.processes import end_with_parent

end_with_parent()  # also during an import

from ctrpipe.common.libraries import importing_tfx  # noqa: E402

with importing_tfx():
    import ctrpipe.pipeline.monitoring.statistics  # noqa: F401
    import ctrpipe.transforms.features.transform  # noqa: F401
    import ctrpipe.transforms.log.ingest  # noqa: F401
