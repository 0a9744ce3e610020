from collections.abc import Callable
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[3] / "data" / "sample"


@pytest.fixture
def sample() -> Path:
    return SAMPLE


@pytest.fixture
def make_corpus(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a corpus directory from files (text or bytes by name)."""

    def make(files: dict[str, str | bytes], name: str = "corpus") -> Path:
        directory = tmp_path / name
        directory.mkdir()
        for file, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (directory / file).write_bytes(data)
        return directory

    return make
