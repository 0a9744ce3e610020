"""Benchmark of one Transformer layer that is cut over two processes in different ways."""
