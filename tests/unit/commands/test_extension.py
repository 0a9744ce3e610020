"""A language is added to the vocabulary of a finished run, from the command's words to the stages."""

import json
import logging

from pipeline.commands.origin import find_origin
from pipeline.corpus.languages import LangPair
from pipeline.dag import stages
from pipeline.dag.reuse import warn_of_bytes
from pipeline.dag.store import Store
from pipeline.dag.system import multilingual
from pipeline.dag.training import prepare
from pipeline.vocab.vocabulary import Vocabulary
from tests.corpora import clean_pair
from tests.unit.commands.conftest import FIXTURE, NO_RULES, REUSED, VOCABULARY, corpus_of


def test_a_run_may_take_the_vocabulary_of_an_extended_one_as_it_is(place, config):
    record = json.loads((place / "runs" / "old" / "run.json").read_text(encoding="utf-8"))
    record["config"]["vocab"] |= {"from_run": "older", "extend": {"ru": "en"}, "trim": True}
    (place / "runs" / "old" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    vocab = config("vocab.from_run=old").vocab
    assert (vocab.from_run, vocab.extend, vocab.trim) == ("old", None, False)


def test_a_language_is_added_to_the_vocabulary_before_the_text_is_encoded(place, config, caplog):
    """The weights belong to the old vocabulary, and start a model of the new one."""
    lines = (FIXTURE / "corpus" / "train.tr-en.tsv").read_text(encoding="utf-8").splitlines()
    words = ["выбор", "файл", "строка", "таблица", "ссылка", "слово"]
    rows = [(f"{words[n % 6]} {words[n // 6 % 6]}", line.split("\t")[1]) for n, line in enumerate(lines)]
    cleaned = clean_pair(corpus_of(place / "new", "ru", "en", rows), "ru-en", place / "artifacts", rules=NO_RULES)
    pair = LangPair("ru", "en")
    settings = config(*REUSED, "vocab.extend={ru: en}", "vocab.extend_size=60")
    store, system = Store(place / "artifacts"), multilingual(settings, [pair], find_origin(settings))
    vocabulary, encoded = prepare(store, {pair: cleaned}, system)
    assert vocabulary.key != VOCABULARY
    assert store.inputs(encoded[pair])["vocabulary"] == vocabulary
    loaded = Vocabulary.load(vocabulary.path)
    assert loaded.tags == {"en": 4, "ru": loaded.source_size - 1}
    assert 400 + 10 < loaded.source_size <= 400 + 60 + 1
    assert not any(loaded.source_model.is_byte(index) for index in loaded.source_model.encode(" ".join(words)))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        warn_of_bytes("old", vocabulary, {pair: cleaned})
    assert caplog.messages == []
    as_it_is = multilingual(config(*REUSED), [pair], find_origin(config(*REUSED)))
    assert prepare(store, {pair: cleaned}, as_it_is)[0].key == VOCABULARY
    stage = stages.train(system, vocabulary, encoded)
    assert stage.key() != stages.train(as_it_is, as_it_is.vocabulary, encoded).key()
