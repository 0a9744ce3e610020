from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.corpus.languages import LangPair
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.tokenizer import train_vocabulary
from tests.corpora import clean_pair

SAMPLE = Path(__file__).parents[3] / "data" / "sample"
LANGUAGES = ("de", "el", "es", "eu", "fr", "hi", "ja", "km", "ko", "ru", "tr", "vi", "zh-Hans")


@pytest.fixture(scope="session")
def bitext_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from a pair of the sample, as `src:tgt`, to the directory of its cleaned rows."""
    root = tmp_path_factory.mktemp("bitexts")

    def bitext(text: str) -> Path:
        return clean_pair(SAMPLE, text, root).path

    return bitext


@pytest.fixture(scope="session")
def separate(bitext_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vocabularies of all 13 languages into English."""
    out = tmp_path_factory.mktemp("separate")
    config = VocabConfig(shared=False, source_size=3000, target_size=1000, sample_lines=3000)
    train_vocabulary(config, {LangPair(code, "en"): bitext_of(f"{code}:en") for code in LANGUAGES}, out)
    return out


@pytest.fixture(scope="session")
def shared(bitext_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One vocabulary of en-de, de-en, en-zh-Hans, fr-de and all scripts of the sample into English."""
    out = tmp_path_factory.mktemp("shared")
    config = VocabConfig(shared=True, source_size=3000, target_size=3000, sample_lines=3000)
    names = ["en:de", "en:zh-Hans", "fr:de", *(f"{code}:en" for code in LANGUAGES)]
    train_vocabulary(config, {LangPair(*name.split(":")): bitext_of(name) for name in names}, out)
    return out
