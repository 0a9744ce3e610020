"""Results of transformers' Adafactor (4.57.1) on small problems.

`python tests/golden/adafactor.py` writes adafactor.json next to this file, in an environment with transformers
(bench/setup.sh).
"""

import json
from pathlib import Path

import torch
from torch import Tensor

FILE = Path(__file__).with_suffix(".json")
STEPS = 5
LEARNING_RATE = 0.01
PROBLEMS: dict[str, tuple[tuple[int, ...], float]] = {  # shape, and size of the weights
    "matrix": ((3, 4), 1.0),
    "vector": ((5,), 1.0),
    "tiny weights": ((4, 2), 1e-5),  # below epsilon2
    "experts": ((3, 2, 5), 1.0),
}


def problem(name: str) -> tuple[Tensor, Tensor]:
    """Return weights, and a gradient for each step.

    The third gradient is thirty times as large, so that it is clipped. Those of experts differ in size, so that a
    common clip or scale would be noticed.
    """
    shape, size = PROBLEMS[name]
    numel = torch.Size(shape).numel()
    numbers = torch.sin(torch.arange(1, numel * (STEPS + 1) + 1, dtype=torch.float64) ** 2)
    weights, gradients = size * numbers[:numel].view(shape), numbers[numel:].view(STEPS, *shape).clone()
    gradients[2] *= 30
    if len(shape) == 3:
        factor = torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)[:, None, None]
        weights = weights * factor
        gradients[3] *= factor
    return weights, gradients


def reference(weights: Tensor, gradients: Tensor) -> Tensor:
    from transformers.optimization import Adafactor

    parameter = torch.nn.Parameter(weights.clone())
    optimizer = Adafactor(
        [parameter], lr=LEARNING_RATE, scale_parameter=True, relative_step=False, clip_threshold=1.0, decay_rate=-0.8
    )
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


if __name__ == "__main__":
    golden = {}
    for name in PROBLEMS:
        weights, gradients = problem(name)
        if weights.dim() == 3:  # each expert as a parameter of its own
            result = torch.stack([reference(w, gradients[:, e]) for e, w in enumerate(weights)])
        else:
            result = reference(weights, gradients)
        golden[name] = result.tolist()
    FILE.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
