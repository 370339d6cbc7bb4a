"""From a raw log to packed tensors."""

if __name__ != "ctrpipe.transforms":  # two names would be two copies of every class
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.transforms", name=__name__)
