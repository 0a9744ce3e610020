"""`make bench BENCH=train`: the training loop on one and two processes, against the matmul peak and against its peers."""
