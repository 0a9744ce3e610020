"""Measurements against other implementations; nothing in `pipeline` or `eval` imports it."""
