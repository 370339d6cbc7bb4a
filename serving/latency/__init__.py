"""Latency benchmark: compares requests to a server with calls of the model in this process."""
