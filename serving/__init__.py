"""From a trained model to an answered request."""

if __name__ != "ctrpipe.serving":  # two names would be two copies of every class
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.serving", name=__name__)
