"""Checkpoints by logical names, which any topology can write and read."""
