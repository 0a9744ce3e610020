"""Benchmark of cleaning and encoding text, against other implementations: `python -m bench.data`."""
