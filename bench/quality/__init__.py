"""Benchmark of quality: BLEU after equal training time, beside peers on the same text: `make bench BENCH=quality`."""
