"""torch.compile for the parts of the model that are plain tensor code. It fuses elementwise operations.

Routing, dispatch, experts and their collectives are not compiled. Their autograd functions are written by hand, and
without a capacity their shapes depend on the data.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from pipeline.files import private_directory
from pipeline.model import fused_attention
from pipeline.model.transformer import Layer, Transformer

VARIANTS = 64  # compiled forms of one function: sides, shapes of batches, training and evaluation, kinds of layers


def compile_layers(model: Transformer) -> None:
    """Compile attention and dense feed-forward networks at their first call, once for each shape of a batch.

    Layers of a side share their code. Random draws are those of eager mode (`fallback_random`), so that dropout drops
    the same elements. Results agree up to the rounding of fused operations.
    Raises ValueError if no C++ compiler is installed, or if another user owns the directory of compiled code.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise ValueError(
            f"runtime.compile=true needs a C++ compiler and {compiler} is not found: install g++, name another one in "
            "the environment variable CXX, or set runtime.compile=false"
        )
    from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir

    if cache_dir() == default_cache_dir():  # a name below /tmp that any user may take first
        private_directory(Path(cache_dir()), "TORCHINDUCTOR_CACHE_DIR")
    torch._dynamo.config.recompile_limit = VARIANTS
    eager: Any = torch.compiler.disable(fused_attention.attend_on_cpu)  # type: ignore[no-untyped-call]
    fused_attention.attend_on_cpu = eager
    for stack in (model.encoder, model.decoder):
        for layer in stack.layers:
            assert isinstance(layer, Layer)
            layer.compile_parts(dynamic=False, options={"fallback_random": True})
