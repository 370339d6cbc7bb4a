"""Turns raw logs into packed tensors: reading, checking, splitting, transforming."""

if __name__ != "ctrpipe.transforms":  # a second name would load a second copy of every class
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.transforms", name=__name__)
