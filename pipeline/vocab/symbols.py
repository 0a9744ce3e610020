"""Ids of the special symbols, which exports and old checkpoints depend on, and the names of language tags."""

BOS, PAD, EOS, UNK = 0, 1, 2, 3
FIRST_TAG = 4


def tag_of(code: str) -> str:
    """Control symbol that asks for a target language, such as <2de>."""
    return f"<2{code}>"
