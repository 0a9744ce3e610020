"""No training row shares a sentence or a run of words with a dev or test text, checked without the product's code."""

import logging
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.corpus.cleaning.clean import clean
from pipeline.corpus.cleaning.held_out import HashSet
from pipeline.corpus.config import CorpusConfig, HeldOutRule, Rules
from pipeline.corpus.funnel import funnel
from tests.corpora import bitext_rows, clean_pair, prepare

SPACED = ("de", "fr", "es", "ru", "tr", "ko", "el", "vi", "eu", "hi", "en")


def words(text: str) -> list[str]:
    """Return the folded words of a text, without the product's tables."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(" " if unicodedata.category(char)[0] in "PZC" else char for char in folded).split()


def runs(text: str, size: int) -> set[str]:
    parts = words(text)
    return {" ".join(parts[i : i + size]) for i in range(len(parts) - size + 1)}


def columns(sample: Path, split: str) -> dict[str, list[str]]:
    lines = (sample / f"{split}.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    cells = [line.split("\t") for line in lines]
    return {code: [row[place] for row in cells[1:]] for place, code in enumerate(cells[0])}


@pytest.fixture(scope="module")
def held_out() -> tuple[set[str], set[str]]:
    """Sentences and runs of eight words of the dev and test sets of the sample."""
    sample = Path(__file__).parents[4] / "data" / "sample"
    texts = [
        (code, text)
        for split in ("dev", "test")
        for code, column in columns(sample, split).items()
        for text in column
        if text
    ]
    sentences = {"".join(words(text)) for _, text in texts}
    return sentences, {run for code, text in texts if code in SPACED for run in runs(text, 8)}


@pytest.mark.parametrize("code", ["fr", "es", "ru", "ja", "hi"])
def test_the_sample_has_no_leak(sample: Path, tmp_path: Path, held_out: tuple[set[str], set[str]], code: str) -> None:
    sentences, held_runs = held_out
    pair = f"{code}-en"

    def leaks(directory: Path) -> int:
        rows = bitext_rows(directory, "train")
        return sum(
            "".join(words(side)) in sentences or not held_runs.isdisjoint(runs(side, 8)) for row in rows for side in row
        )

    unchecked = clean_pair(sample, pair, tmp_path, rules=Rules(held_out=None, language=None)).path
    assert leaks(clean_pair(sample, pair, tmp_path, rules=Rules(language=None)).path) == 0
    if code == "fr":
        assert leaks(unchecked) > 20  # the check itself finds leaks
        sentences_alone = Rules(held_out=HeldOutRule(shingle_words=0), language=None)
        assert leaks(clean_pair(sample, pair, tmp_path, rules=sentences_alone).path) == leaks(unchecked)


def test_a_test_set_among_the_training_text_is_removed_with_a_warning(
    sample: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split in ("train", "dev", "test"):
        (corpus / f"{split}.tsv").write_text((sample / f"{split}.tsv").read_text(encoding="utf-8"), encoding="utf-8")
    with (corpus / "train.tsv").open("a", encoding="utf-8") as file:
        file.writelines((sample / "test.tsv").read_text(encoding="utf-8").splitlines(keepends=True)[1:])
    before = bitext_rows(clean_pair(sample, "tr-en", tmp_path / "a", rules=Rules(language=None)).path, "train")
    caplog.clear()
    after = bitext_rows(clean_pair(corpus, "tr-en", tmp_path / "b", rules=Rules(language=None)).path, "train")
    assert before == after
    assert (
        "pair tr-en: 298 training rows share text with a dev or test set and are removed" in caplog.text
    )  # 2 fall to other rules


def test_a_set_of_hashes_contains_its_members() -> None:
    rng = np.random.default_rng(1)
    values = np.unique(rng.integers(0, 1 << 63, size=5000, dtype=np.uint64))
    inside = HashSet(values[::2])
    queries = rng.permutation(values)
    assert inside.contains(queries).tolist() == np.isin(queries, values[::2]).tolist()
    assert not HashSet(values[:0]).contains(queries).any()


def test_a_text_of_marks_alone_is_held_out_as_it_is(make_corpus: Callable[..., Path], tmp_path: Path) -> None:
    files = {
        "train.tsv": "de\ten\n…\tWell, then\nGut\tGood\n?!\tWhat\n",
        "dev.tsv": "de\ten\n…\t?!\n",
        "test.tsv": "de\ten\nAndere\tOther\n",
    }
    rules = Rules(min_letters=None, max_length_ratio=None, language=None)
    out = clean_pair(make_corpus(files), "de-en", tmp_path / "store", rules=rules).path
    assert bitext_rows(out, "train") == [("Gut", "Good")]


def test_a_soft_hyphen_hides_no_run_of_words(make_corpus: Callable[..., Path], tmp_path: Path) -> None:
    run = "one two three four five six seven eight"
    hidden = run.replace("thr", "thr\u00ad")
    files = {
        "train.tsv": f"de\ten\nEin langer Satz, der zählt, und noch einer\tSo {hidden} nine\nGut\tGood\n",
        "dev.tsv": f"de\ten\nNoch ein Satz\t{run} ten\n",
        "test.tsv": "de\ten\nAndere\tOther\n",
    }
    out = clean_pair(make_corpus(files), "de-en", tmp_path / "store", rules=Rules(language=None)).path
    assert bitext_rows(out, "train") == [("Gut", "Good")]


def test_no_dev_row_shares_text_with_any_test_set(
    make_corpus: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Sentences and runs of eight words of both sides count, also of other pairs. Test sets stay whole."""
    run = "one two three four five six seven eight"
    files = {
        "train.tsv": "de\ten\nGut\tGood\n",
        "dev.tsv": f"de\ten\nErste\tFIRST one!\nAm Fluss\tRiver\nLang\tSo {run} nine\nSchluss\tThe end\nLeer\t\n",
        "test.tsv": f"de\ten\nAnders\tFirst one\nWeit\t{run} ten\n",
        "test.fr-de.fr": "Au fleuve\n",
        "test.fr-de.de": "am Fluss\n",
    }
    rules = Rules(language=None, min_letters=None)
    source = make_corpus(files)
    with caplog.at_level(logging.WARNING):
        out = clean_pair(source, "de-en", tmp_path / "store", rules=rules).path
    assert bitext_rows(out, "dev") == [("Schluss", "The end")]
    assert len(bitext_rows(out, "test")) == 2
    result = funnel(out)
    assert result["dev"] == {"read": 4, "changed": 0, "removed": {"empty_side": 0, "held_out": 3}, "kept": 1}
    assert "pair de-en: 3 of 4 dev rows share text with a test set and are removed" in caplog.text
    unchecked = clean_pair(source, "de-en", tmp_path / "store", rules=replace(rules, held_out=None)).path
    assert len(bitext_rows(unchecked, "dev")) == 4


def test_a_dev_set_that_is_the_test_set_is_an_error(make_corpus: Callable[..., Path], tmp_path: Path) -> None:
    files = {f"{split}.tsv": "de\ten\nAndere\tOther\n" for split in ("dev", "test")}
    source = make_corpus({"train.tsv": "de\ten\nGut\tGood\n", **files})
    with pytest.raises(ValueError, match=r"no dev rows .*held_out 1.*give another dev set, or none: then one is split"):
        clean_pair(source, "de-en", tmp_path / "store", rules=Rules(language=None))


def test_a_dev_set_without_overlap_is_the_same_artifact_as_unchecked(sample: Path, tmp_path: Path) -> None:
    """Later stages of a run from before dev rows were compared are therefore not repeated."""
    rules = Rules(language=None)
    artifact = clean_pair(sample, "tr-en", tmp_path / "store", rules=rules)
    corpus = prepare(sample, "tr-en", tmp_path / "store")
    assert corpus.held_out is not None
    clean(
        CorpusConfig(path=str(sample), rules=rules),
        corpus.pairs[0],
        tables=[table for table, _ in corpus.tables],
        held_out=corpus.held_out.path,
        out=tmp_path,
    )
    for name in ("funnel.json", "dev.arrow", "train.arrow"):
        assert (artifact.path / name).read_bytes() == (tmp_path / name).read_bytes()
    assert funnel(artifact.path)["dev"]["removed"] == {"empty_side": 0}
