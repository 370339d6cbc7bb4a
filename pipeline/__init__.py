"""What runs in which order, and the command line."""

if __name__ != "ctrpipe.pipeline":  # two names would be two copies of every class
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.pipeline", name=__name__)
