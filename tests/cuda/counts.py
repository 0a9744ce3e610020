"""Print the kernels, casts, bytes and waits of a micro-batch on a GPU, by file, without a GPU.

    python -m tests.cuda.counts [--gate GATE] [--precision PRECISION] [--activation ACTIVATION] [--norm NORM]
        [--operations]

A process with the impostor imports this module before it may import torch, so torch is imported below.
"""

import argparse

from tests.cuda.guard import obstacle
from tests.cuda.process import impostor_process


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gate", default="top2", help="a file of configs/gate with a capacity")
    parser.add_argument("--precision", default="bf16", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--activation", default="relu", choices=["relu", "swiglu"])
    parser.add_argument("--norm", default="layer", choices=["layer", "rms"])
    parser.add_argument("--operations", action="store_true", help="also list the operations")
    options = parser.parse_args()
    if reason := obstacle():
        raise SystemExit(f"error: {reason}")
    from tests.cuda.micro_batch import count, table, waits

    with impostor_process() as run:
        counts = run(count, options.gate, options.precision, options.activation, options.norm)
    print("\n".join([*table(counts), *waits(counts)]))
    if options.operations:
        print("\n".join(f"{name:44}{number:7,}" for name, number in counts.operations.most_common()))


if __name__ == "__main__":
    main()
