"""Exports trained models, serves them, and scores and benchmarks them."""

if __name__ != "ctrpipe.serving":  # a second name would import a second copy of every class
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.serving", name=__name__)
