"""The engine that trains a model which is cut over processes: DeepSpeed's ZeRO, optimizers and checkpoints."""

# DeepSpeed's default: elements of the buffer in which gradients travel. A smaller model takes a smaller buffer.
BUCKET = 500_000_000
