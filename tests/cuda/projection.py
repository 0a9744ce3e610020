"""Products of `pipeline.model.projection` on cuda:0, and what they are compared with."""

import torch

from pipeline.model.projection import (
    forget_copies,
    keep_copies,
    project,
    project_each,
    project_jointly,
    project_to_table,
)
from tests.cuda.impostor import CUDA, cuda_device, on_cpu


def jointly(x, *weights):
    return torch.stack(project_jointly(x, *weights))


CASES = {  # the function, the same in plain products, and the shapes of the arguments
    "one": (project, lambda x, w: x @ w, [(3, 5, 8), (8, 6)]),
    "heads in": (project, lambda x, w: x @ w.flatten(0, 1), [(3, 5, 8), (2, 4, 6)]),
    "heads out": (
        jointly,
        lambda x, *ws: torch.stack([x @ w.flatten(1) for w in ws]),
        [(3, 5, 8), (8, 2, 3), (8, 2, 3), (8, 2, 3)],
    ),
    "table": (project_to_table, lambda x, w: x @ w.T, [(15, 8), (11, 8)]),
    "experts": (project_each, torch.bmm, [(4, 5, 8), (4, 8, 6)]),
}


def drawn(shapes, device=None):
    """Return normal values of each shape, with gradients. They are exact in 16 bits, so that no ReLU changes sides."""
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(shape, generator=generator).bfloat16().float() for shape in shapes]
    return [value.to(device).requires_grad_() for value in values]


def which_get_gradients(needed):
    """Return whether x and its weight get a gradient, where those of `needed` (a list of two bools) ask for one."""
    with cuda_device():
        inputs = [value.requires_grad_(need) for value, need in zip(drawn([(5, 8), (8, 6)], CUDA), needed, strict=True)]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            project(*inputs).float().sum().backward()
        return [value.grad is not None for value in inputs]


def ratios_with_copies(name):
    """Double the weights again and again. Return each product in parts of the first.

    By turns: nobody asked to keep copies; they are kept; the same without gradients; they are forgotten.
    """
    function, _, shapes = CASES[name]
    with cuda_device():
        x, *weights = drawn(shapes, CUDA)

        def ratio(first=None):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                value = on_cpu(function(x, *weights).detach()).float()
            return value if first is None else float((value / first).nanmedian())

        def double():
            with torch.no_grad():
                for weight in weights:
                    weight.mul_(2)

        first = ratio()
        double()
        ratios = [ratio(first)]
        keep_copies(weights)
        ratio()
        double()
        ratios.append(ratio(first))
        with torch.no_grad():
            ratios.append(ratio(first))
        forget_copies(weights)
        return [*ratios, ratio(first)]


def copies_of_weight_in_16_bits():
    """Return the copies that a weight in 16 bits gets."""
    with cuda_device():
        (x,), (weight,) = drawn([(5, 8)], CUDA), drawn([(8, 6)], CUDA)
        weight = weight.detach().bfloat16().requires_grad_()
        keep_copies([weight])
        with torch.autocast("cuda", dtype=torch.bfloat16):
            project(x, weight)
        return len(weight.copies)
