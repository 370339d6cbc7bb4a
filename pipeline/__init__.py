"""The pipeline's stages, their order, and the command line."""

if __name__ != "ctrpipe.pipeline":  # imported under two names, every class would exist twice
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.pipeline", name=__name__)
