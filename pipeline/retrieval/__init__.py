"""`ctrpipe retrieve`: a model's items as vectors inside its version, and each query's best of them."""
