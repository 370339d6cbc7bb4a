"""The latency benchmark: requests to a server beside calls of the same model in this process."""
