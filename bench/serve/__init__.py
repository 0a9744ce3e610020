"""Benchmark of `make serve`: docs/serve.md has its table."""
