"""A small checkpoint to import."""

import pytest

from tests.tiny_checkpoints import CONFIGS, train_tokenizer, write_checkpoint


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    return train_tokenizer(tmp_path_factory.mktemp("spm") / "spm")


@pytest.fixture(params=["dense"])
def checkpoint(request, tokenizer, tmp_path):
    """A directory as transformers writes it."""
    write_checkpoint(tmp_path / "checkpoint", CONFIGS[request.param], tokenizer)
    return tmp_path / "checkpoint"
