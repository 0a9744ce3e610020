from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.corpora import clean, prepare_corpus
from pipeline.corpus.languages import LangPair
from pipeline.stage import Store
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.tokenizer import train_vocabulary

LANGUAGES = ("de", "el", "es", "eu", "fr", "hi", "ja", "km", "ko", "ru", "tr", "vi", "zh-Hans")


@pytest.fixture(scope="session")
def bitext_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Directory of the cleaned rows of a pair of the sample, written as `src:tgt`; made once."""
    store = Store(tmp_path_factory.mktemp("bitexts"))
    config = load_config(["pairs=[de-en]"])
    corpus = prepare_corpus(config, store)

    def bitext(text: str) -> Path:
        return clean(config, store, corpus, LangPair(*text.split(":"))).path

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
