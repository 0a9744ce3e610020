"""Cleaning and encoding of text against other implementations: `python -m bench.data`."""
