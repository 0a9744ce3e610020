"""`corpus.add` adds the sources of further corpora to training, and holds out their dev and test sets."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.funnel import funnel
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.corpus import Corpus
from pipeline.dag.store import Store
from pipeline.tasks import DataConfig
from tests.corpora import bitext_rows

Make = Callable[..., Path]

MAIN = {
    "train.tsv": "de\ten\nEin Haus\tA house\nEin Baum\tA tree\nWas der andere prüft\tWhat the other tests\n",
    "dev.tsv": "de\ten\nEntwicklung\tDevelopment\n",
    "test.tsv": "de\ten\nPrüfung\tExamination\n",
    "NOTICE": "Notice of the first",
}
OTHER = {
    "manifest.yaml": """
name: other
licence: CC0-1.0
files:
  - {split: train, path: train.tsv, format: multiway_tsv, tag: bt}
  - {split: dev, path: dev.tsv, format: multiway_tsv}
  - {split: test, path: test.tsv, format: multiway_tsv}
""",
    "train.tsv": "de\ten\tfi\nEine Katze\tA cat\tKissa\nPrüfung\tAn exam\t\nEin Hund\tA dog\tKoira\n",
    "dev.tsv": "de\ten\tfi\nAnderes\tOther\tMuu\n",
    "test.tsv": "de\ten\tfi\nAnders\tWhat the other tests\tMuualla\n",
    "NOTICE": "Notice of the second",
}


@pytest.fixture
def main_and_other(make_corpus: Make) -> tuple[Path, Path]:
    return make_corpus(MAIN, "main"), make_corpus(OTHER, "other")


def prepare(path: Path, add: list[str], pairs: list[str], root: Path) -> tuple[CorpusConfig, Store, Corpus]:
    config = CorpusConfig(path=str(path), add=add, rules=Rules(language=None))
    store = Store(root / "store")
    return config, store, prepare_corpus(config, pairs, store, DataConfig())


def cleaned(prepared: tuple[CorpusConfig, Store, Corpus]) -> list[Path]:
    config, store, corpus = prepared
    return [clean(config, store, corpus, pair, DataConfig()).path for pair in corpus.pairs]


def test_sources_of_two_corpora_are_trained_on_and_test_sets_stay(
    main_and_other: tuple[Path, Path], tmp_path: Path
) -> None:
    main, other = main_and_other
    (directory,) = cleaned(prepare(main, [str(other)], ["de-en"], tmp_path))
    rows = [("Ein Haus", "A house"), ("Ein Baum", "A tree"), ("Eine Katze", "A cat"), ("Ein Hund", "A dog")]
    assert bitext_rows(directory, "train") == rows
    assert bitext_rows(directory, "dev") == [("Entwicklung", "Development")]
    assert bitext_rows(directory, "test") == [("Prüfung", "Examination")]
    content = funnel(directory)
    assert content["train"]["removed"]["held_out"] == 2  # each corpus trains on a sentence that the other one tests
    about = [(source["name"], source["tag"], source["licence"], source["kept"]) for source in content["sources"]]
    assert about == [("main", "", "", 2), ("other", "bt", "CC0-1.0", 2)]


def test_a_tilde_is_the_home(
    main_and_other: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(main_and_other[0].parent))
    *_, corpus = prepare(Path("~/main"), ["~/other"], ["de-en"], tmp_path)
    assert corpus.manifest.sources | corpus.added[0].sources == {"main", "other"}


def test_a_pair_of_the_added_corpus_alone_has_its_test_sets(main_and_other: tuple[Path, Path], tmp_path: Path) -> None:
    main, other = main_and_other
    prepared = prepare(main, [str(other)], ["fi-en"], tmp_path)
    (directory,) = cleaned(prepared)
    assert bitext_rows(directory, "dev") == [("Muu", "Other")]
    assert bitext_rows(directory, "test") == [("Muualla", "What the other tests")]
    assert prepared[2].notice == "Notice of the first\nNotice of the second"


def test_test_sets_may_be_added_alone(main_and_other: tuple[Path, Path], make_corpus: Make, tmp_path: Path) -> None:
    bare = make_corpus({"train.tsv": "de\ten\n" + "".join(f"Satz {n}\tSentence {n}\n" for n in range(50))}, "bare")
    prepared = prepare(bare, [str(main_and_other[1])], ["de-en"], tmp_path)
    (directory,) = cleaned(prepared)
    assert bitext_rows(directory, "test") == [("Anders", "What the other tests")]
    assert [source["read"] for source in funnel(directory)["sources"]] == [50, 3]  # nothing is split off


def test_sets_are_split_off_the_first_corpus(
    main_and_other: tuple[Path, Path], make_corpus: Make, tmp_path: Path
) -> None:
    """An added corpus that is larger does not change the dev and test sets."""
    bare, more = (
        make_corpus(
            {"train.tsv": "de\ten\n" + "".join(f"Satz {name} {n}\tSentence {name} {n}\n" for n in range(rows))}, name
        )
        for name, rows in (("bare", 300), ("more", 600))
    )
    alone = prepare(bare, [], ["de-en"], tmp_path)
    added = prepare(bare, [str(more)], ["de-en"], tmp_path)
    for split in ("dev", "test"):
        (before,), (after,) = (cleaned(prepared) for prepared in (alone, added))
        assert bitext_rows(after, split) == bitext_rows(before, split)


def test_without_additions_the_old_artifacts_are_used(main_and_other: tuple[Path, Path], tmp_path: Path) -> None:
    main, other = main_and_other
    alone = cleaned(prepare(main, [], ["de-en"], tmp_path))
    added = cleaned(prepare(main, [str(other)], ["de-en"], tmp_path))
    assert cleaned(prepare(main, [], ["de-en"], tmp_path)) == alone != added


def test_a_corpus_of_test_sets_alone_is_named(make_corpus: Make, tmp_path: Path) -> None:
    tests = make_corpus({"test.de-en.tsv": "Satz\tSentence\n"}, "tests")
    with pytest.raises(ValueError, match="corpus tests has no training files; add some, or add it to a corpus by"):
        prepare(tests, [], ["all"], tmp_path)


@pytest.mark.parametrize(
    ("add", "message"),
    [
        ("nowhere", "corpus.add=.*nowhere is not a directory; give one that holds a corpus: CORPUS_ADD=path/to/dir$"),
        ("main", "corpus.add: .*main calls a source main, as .*main does; give it another name"),
    ],
)
def test_mistakes_are_named(main_and_other: tuple[Path, Path], tmp_path: Path, add: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(main_and_other[0], [str(tmp_path / add)], ["de-en"], tmp_path)
