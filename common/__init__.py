"""Code shared by all parts: errors, atomic files, processes, library imports."""

if __name__ != "ctrpipe.common":  # two names would be two copies of every class
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.common", name=__name__)
