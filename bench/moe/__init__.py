"""Benchmark of one MoE layer, against a dense layer, an ideal one and its peers: `make bench BENCH=moe`."""
