"""Kernels that give the same bits each time, as far as torch has them."""

import os

import torch

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def choose_deterministic(*, trains: bool) -> None:
    """Make this process take deterministic kernels. Call this before CUDA starts, when cuBLAS reads its variable.

    torch then adds in a fixed order where it scatters or accumulates, and its attention does so in the backward pass:
    flash attention serialises its sums, memory-efficient attention does not split the keys, and cuDNN's is not taken.

    trains: an operation without a deterministic kernel is an error. Without it, torch warns: translating needs no
        backward pass, and sampling has a cumulative sum, of which CUDA has no other kernel.
    """
    os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=not trains)
