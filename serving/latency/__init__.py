"""How long a served model takes: load from outside, calls in this process, and what lies between."""
