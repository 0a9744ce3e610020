"""Checks of learned cleaning on a corpus of two pairs, the first of them with two sources."""

import re

import pytest

from pipeline.corpus.learned_config import DualCleaning, ScoreFiles
from pipeline.dag.learned_checks import check_learned
from pipeline.dag.store import Store
from tests.corpora import prepare

SIZES = {"web.de-en": 40, "books.de-en": 30, "talks.fr-en": 20}


@pytest.fixture
def check(tmp_path):
    """A function that checks settings on the corpus."""
    source = tmp_path / "corpus"
    source.mkdir()
    held_out = {f"{split}.{pair}": 5 for split in ("dev", "test") for pair in ("de-en", "fr-en")}
    for name, count in {**SIZES, **held_out}.items():
        rows = [f"{name} Satz {row}\t{name} line {row}\n" for row in range(count)]
        (source / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
        (tmp_path / f"{name}.txt").write_text("0.5\n" * count, encoding="utf-8")
    corpus = prepare(source, "de-en fr-en", tmp_path / "artifacts")
    return lambda settings: check_learned(settings, Store(tmp_path / "artifacts"), corpus)


def files(tmp_path, **names):
    return {pair.replace("_", "-"): str(tmp_path / f"{name}.txt") for pair, name in names.items()}


def test_a_misspelt_source_is_named_where_another_one_is_right(check, caplog):
    assert check(DualCleaning(trusted=["talks", "books", "boks"])) == {}
    assert "warning: corpus.learned.trusted names boks, but the sources of this run are books, talks, web" in (
        caplog.messages
    )


def test_a_share_of_a_pair_without_scores_is_named(check, tmp_path, caplog):
    check(ScoreFiles(files=files(tmp_path, fr_en="talks.fr-en"), remove_of={"de-en": 0.3, "fr-en": 0.2}))
    (warning,) = [message for message in caplog.messages if "names de-en" in message]
    assert warning == (
        "warning: corpus.learned.remove_of names de-en, but the pairs with a file in corpus.learned.files are fr-en"
    )


def test_a_pair_with_one_source_needs_no_name_of_it(check, tmp_path, caplog):
    caplog.set_level("INFO")
    named = files(tmp_path, de_en="web.de-en", fr_en="talks.fr-en")
    assert len(check(ScoreFiles(files=named, source="web"))) == 2
    assert [message for message in caplog.messages if "have a score" in message] == [
        f"pair de-en: 40 of 40 rows have a score in {named['de-en']}",
        f"pair fr-en: 20 of 20 rows have a score in {named['fr-en']}",
    ]
    with pytest.raises(ValueError, match=re.escape("corpus.learned.source=wbe is no source of de-en")):
        check(ScoreFiles(files=named, source="wbe"))
    with pytest.raises(ValueError, match=re.escape("corpus.learned.source=talks is no source of de-en")):
        check(ScoreFiles(files=named, source="talks"))
