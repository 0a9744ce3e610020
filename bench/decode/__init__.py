"""Benchmark of beam search, beside transformers and CTranslate2 on the same weights: `make bench BENCH=decode`."""
