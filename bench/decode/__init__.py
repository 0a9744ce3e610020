"""`make bench BENCH=decode`: translating with beams, beside transformers and CTranslate2 on the same weights."""
