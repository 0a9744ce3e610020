"""Benchmark of training on one and two processes, beside the matmul peak and its peers: `make bench BENCH=train`."""
