"""`make bench BENCH=train`: the training loop on one and two processes, beside the matmul peak and its peers."""
