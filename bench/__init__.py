"""Measurements against other implementations. Nothing in `pipeline` or `eval` imports this package."""
