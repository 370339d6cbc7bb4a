"""What all parts use: errors, files that appear whole, processes, libraries."""

if __name__ != "ctrpipe.common":  # two names would be two copies of every class
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.common", name=__name__)
