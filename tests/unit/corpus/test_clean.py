import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.corpus.clean import clean, funnel, read_bitext
from pipeline.corpus.config import CorpusConfig
from pipeline.corpus.fetch import fetch
from pipeline.corpus.languages import LangPair

Make = Callable[..., Path]
DE_EN = LangPair("de", "en")


def cleaned(source: Path, tmp_path: Path, pair: LangPair = DE_EN, **config: object) -> Path:
    corpus, out = tmp_path / "fetched", tmp_path / pair.name
    if not corpus.exists():
        corpus.mkdir()
        fetch(source=source, out=corpus)
    out.mkdir()
    clean(CorpusConfig(path=str(source), **config), pair, corpus=corpus, out=out)
    return out


def rows(directory: Path, split: str) -> list[tuple[str, str]]:
    bitext = read_bitext(directory, split)
    return list(zip(bitext["src"], bitext["tgt"], strict=True))


TRAIN = [
    ("Guten  Morgen\u00a0allen ", "Good morning all"),
    ("x" * 60, "y" * 60),
    ("Ein sehr langer deutscher Satz", "One"),
    ("Firefox", "Firefox"),
    ("1234 --> 5", "two letters ok"),
    ("Guten Morgen allen", "Good  morning all"),
    ("\u00a0", "An empty side"),
    ("HALLO Welt!!", "Something else entirely"),
    ("Ganz anderes", "Hello, (World)"),
    ("Test nur auf Englisch", "This is, only ENGLISH"),
    ("e\u0301tude", "study"),
    ("Eine Frage", "A question"),
]
HELD = "de\ten\nHallo, Welt\tHello world\n\tThis is only English.\n…\t?!\n"


@pytest.fixture
def corpus(make_corpus: Make) -> Path:
    sides = zip(*TRAIN, strict=True)
    source, target = ("".join(f"{text}\n" for text in side) for side in sides)
    return make_corpus(
        {
            "train.de-en.de": source,
            "train.de-en.en": target,
            "dev.tsv": HELD,
            "test.tsv": "de\ten\n Tag \tday\n",
        }
    )


def test_every_rule_removes_its_row_and_counts_it(corpus: Path, tmp_path: Path) -> None:
    out = cleaned(corpus, tmp_path, max_chars=50)
    assert rows(out, "train") == [
        ("Guten Morgen allen", "Good morning all"),
        ("étude", "study"),
        ("Eine Frage", "A question"),
    ]
    assert rows(out, "dev") == [("Hallo, Welt", "Hello world"), ("…", "?!")]
    assert rows(out, "test") == [("Tag", "day")]
    result = funnel(out)
    assert result["pair"] == "de-en"
    assert result["train"] == {
        "read": 12,
        "removed": {
            "empty_side": 1,
            "too_long": 1,
            "length_ratio": 1,
            "identical": 1,
            "few_letters": 1,
            "duplicate": 1,
            "held_out": 3,
        },
        "kept": 3,
    }
    assert result["dev"] == {"read": 2, "removed": {"empty_side": 0}, "kept": 2}
    assert result["examples"]["held_out"] == [list(TRAIN[7]), list(TRAIN[8]), list(TRAIN[9])]


def test_decontamination_can_be_switched_off(corpus: Path, tmp_path: Path) -> None:
    result = funnel(cleaned(corpus, tmp_path, max_chars=50, decontaminate=False))
    assert result["train"]["kept"] == 6
    assert "held_out" not in result["train"]["removed"]


def test_direction_changes_nothing_but_the_sides(corpus: Path, tmp_path: Path) -> None:
    forth = cleaned(corpus, tmp_path)
    back = cleaned(corpus, tmp_path, LangPair("en", "de"))
    for split in ("train", "dev", "test"):
        assert [(tgt, src) for src, tgt in rows(back, split)] == rows(forth, split)


@pytest.mark.parametrize("code", ["de", "fr", "ru", "zh-Hans", "ja", "ko", "hi", "km"])
def test_thresholds_keep_the_sample(sample: Path, tmp_path: Path, code: str) -> None:
    """Rows of the sample are clean already: less than 0.5 % may fall to thresholds, none to leaks."""
    result = funnel(cleaned(sample, tmp_path, LangPair(code, "en")))["train"]
    assert result["kept"] > 0.995 * result["read"]
    assert result["removed"]["held_out"] == 0


def test_pair_without_english(sample: Path, tmp_path: Path) -> None:
    result = funnel(cleaned(sample, tmp_path, LangPair("de", "fr")))
    assert result["train"]["kept"] > 2000
    assert (result["dev"]["kept"], result["test"]["kept"]) == (200, 300)


@pytest.mark.parametrize(
    ("train", "dev", "test", "message"),
    [
        ("de\ten\nHallo\t\n\tHello\n", "de\ten\na\tb\n", "de\ten\nc\td\n",
         r"pair de-en: no training rows \(kept of read: train 0 of 0, dev 1 of 1, test 1 of 1\); choose"),
        ("de\ten\n1\t2\n3\t4\n", "de\ten\na\tb\n", "de\ten\nc\td\n",
         r"no training rows .*train 0 of 2.*; the rules removed them all \(few_letters 2\)"),
        ("de\ten\nHallo\tHello\n", "de\ten\na\t\n\tb\n", "de\ten\nc\td\n", "pair de-en: no dev rows"),
        ("de\ten\nHallo\tHello\n", "de\ten\na\tb\n", None, "pair de-en: no test rows"),
    ],
)  # fmt: skip
def test_empty_split_is_an_error_with_counts(
    make_corpus: Make, tmp_path: Path, train: str, dev: str, test: str | None, message: str
) -> None:
    files = {"train.tsv": train, "dev.tsv": dev} | ({"test.tsv": test} if test else {})
    with pytest.raises(ValueError, match=message):
        cleaned(make_corpus(files), tmp_path)


def test_few_rows_are_a_warning(corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        cleaned(corpus, tmp_path)
    assert "pair de-en: only 4 train rows (kept of read: train 4 of 12, dev 2 of 2, test 1 of 1)" in caplog.text


def test_nothing_is_written_outside_the_output(corpus: Path, tmp_path: Path) -> None:
    """A process of its own, since `datasets` reads the place of its cache when it is imported."""
    home = tmp_path / "home"
    home.mkdir()
    program = (
        "import sys; from pathlib import Path; from pipeline.corpus.fetch import fetch\n"
        "from pipeline.corpus.clean import clean, read_bitext\n"
        "from pipeline.corpus.config import CorpusConfig; from pipeline.corpus.languages import LangPair\n"
        "source, a, b = map(Path, sys.argv[1:]); a.mkdir(); b.mkdir(); fetch(source=source, out=a)\n"
        "clean(CorpusConfig(path='x'), LangPair('de', 'en'), corpus=a, out=b)\n"
        "print(len(read_bitext(b, 'train')))\n"
    )
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home)}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | places
    command = [sys.executable, "-c", program, str(corpus), str(tmp_path / "a"), str(tmp_path / "b")]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "4\n"
    assert not list(home.rglob("*"))
    names = ["dev.arrow", "funnel.json", "test.arrow", "train.arrow"]
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == names
