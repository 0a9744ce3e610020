"""Mistakes that a CPU forgives and CUDA does not, and operations that make the host wait, for the impostor to find."""

import torch
import torch.nn.functional as F

from tests.cuda.attention import probabilities
from tests.cuda.impostor import CUDA, Impostor, on_cpu


def on_cuda(*shape):
    return torch.ones(*shape, device=CUDA)


MISTAKES = {
    "an index without a device": lambda: on_cuda(3, 3).gather(0, torch.zeros(1, 3, dtype=torch.long)),
    "a sum over devices": lambda: on_cuda(3) + torch.arange(3),
    "a value of the CPU": lambda: on_cuda(3).index_put_((torch.tensor([0, 1]),), torch.ones(2)),
    "an index of CUDA": lambda: torch.ones(3)[torch.zeros(2, dtype=torch.long, device=CUDA)],
    "a generator of the CPU": lambda: torch.rand(3, device=CUDA, generator=torch.Generator()),
    "memory as numpy": lambda: on_cuda(3).numpy(),
    "attention of two dtypes": lambda: F.scaled_dot_product_attention(*[on_cuda(1, 1, 2, 4)] * 2, on_cuda(1).half()),
    "a change of shape in place": lambda: on_cuda(2, 3).t_(),
}
WAITS = {
    "a value": lambda: float(on_cuda(1)),
    "a condition": lambda: bool(on_cuda(1) > 0),
    "a list": lambda: on_cuda(3).tolist(),
    "a copy to the host": lambda: on_cuda(3).cpu(),
    "a copy from the host": lambda: torch.ones(3).to(CUDA),
    "a copy of memory that may be swapped out": lambda: torch.ones(3).to(CUDA, non_blocking=True),
    "a copy of pinned memory": lambda: torch.ones(3).pin_memory().to(CUDA),
    "a tensor of numbers": lambda: torch.tensor([1.0, 2.0], device=CUDA),
    "a tensor like another": lambda: on_cuda(3).new_tensor([1.0, 2.0]),
    "places": lambda: on_cuda(3).nonzero(),
    "a histogram": lambda: on_cuda(3).long().bincount(),
    "distinct values": lambda: on_cuda(3).unique(),
    "what a mask selects": lambda: on_cuda(3).masked_select(on_cuda(3) > 0),
    "places of a mask": lambda: on_cuda(3)[on_cuda(3) > 0],
    "indices as a list": lambda: on_cuda(3).__setitem__([0, 1], 0.0),
    "repeats of an unknown sum": lambda: on_cuda(3).repeat_interleave(on_cuda(3).long()),
    "synchronize": lambda: torch.cuda.synchronize(),
}
NO_WAITS = {
    "a copy of pinned memory that does not block": lambda: torch.ones(3).pin_memory().to(CUDA, non_blocking=True),
    "a mask that is filled": lambda: on_cuda(3).__setitem__(on_cuda(3) > 0, 0.0),
    "repeats of a known sum": lambda: on_cuda(3).repeat_interleave(on_cuda(3).long(), output_size=3),
    "a size": lambda: len(on_cuda(3)),
    "a sum": lambda: on_cuda(3).sum(),
    "a number for a tensor": lambda: on_cuda(3) * 2 + torch.tensor(1.0),
}


def error_of(mistake):
    """Return the words by which the impostor refuses a mistake; None if it does not."""
    with Impostor():
        try:
            MISTAKES[mistake]()
        except (RuntimeError, TypeError) as error:
            return str(error)
    return None


def waits_of(name):
    with Impostor() as impostor:
        {**WAITS, **NO_WAITS}[name]()
        return sum(impostor.counts.waits.values())


def counted():
    """Return kernels, casts and bytes of a product in bf16 of two float32 matrices, [4, 8] and [8, 16]."""
    with Impostor() as impostor:
        a, b = on_cuda(4, 8), on_cuda(8, 16)
        impostor.counts.kernels.clear()
        impostor.counts.bytes.clear()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            a @ b
        return [sum(c.values()) for c in (impostor.counts.kernels, impostor.counts.casts, impostor.counts.bytes)]


def wide_products():
    """Return products of bf16 ones that are float32, which bf16 could not hold: 257 of a row."""
    with Impostor():
        a, b = on_cuda(2, 257).bfloat16(), on_cuda(257, 3).bfloat16()
        products = torch.mm(a, b, out_dtype=torch.float32), torch.bmm(a[None], b[None], out_dtype=torch.float32)
        return [on_cpu(product).unique().tolist() for product in products]


def attention_gradients(dtype):
    """Return the output and gradients of attention on the impostor and on the CPU, with a mask of odd length."""
    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(2, 3, 5, 4, generator=generator).to(dtype) for _ in range(3)]
    mask = torch.zeros(2, 1, 5, 5, dtype=dtype)
    mask[0, :, :, 3:] = -1e4
    results = []
    with Impostor():
        for inputs, visible in ((parts, mask), ([p.to(CUDA) for p in parts], mask.to(CUDA))):
            leaves = [p.detach().requires_grad_() for p in inputs]
            heads = F.scaled_dot_product_attention(*leaves, attn_mask=visible)
            heads.square().sum().backward()
            results.append([on_cpu(t.detach()).float().numpy() for t in (heads, *(leaf.grad for leaf in leaves))])
    return results


def hidden_row():
    """Return the softmax of a query that sees nothing."""
    return probabilities(torch.ones(1, 2), torch.ones(3, 2), torch.full((1, 3), -torch.inf)).tolist()


def devices_of_torch():
    return torch.cuda.is_available(), torch.cuda.device_count()
