import gzip
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.corpus import tables
from pipeline.corpus.cleaning import clean
from pipeline.corpus.config import CorpusConfig, NearDuplicateRule, Rules
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.dag.cleaning import prepare_corpus
from pipeline.dag.store import Store
from pipeline.tasks import DataConfig
from tests.corpora import bitext_rows, clean_in_shards, clean_pair

Make = Callable[..., Path]


def cleaned(source: Path, tmp_path: Path, pair: str = "de-en", *, keep_removed: bool = False, **rules: Any) -> Path:
    return clean_pair(source, pair, tmp_path / "store", rules=Rules(**rules), keep_removed=keep_removed).path


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
    ("Von 1914 bis 1918", "The years of war"),
    ("Ja. Nein. Ja. Nein.", "Yes and no"),
    ("Ein deutscher Satz", "это по-русски"),
    ("This is plainly English, not German", "Das sollte auf Deutsch sein"),
    ("wir gingen am Abend an den Fluss und sahen", "It was late"),
    ("Eine Frage!", "A question"),
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
            "dev.fr-de.fr": "Tard\n",
            "dev.fr-de.de": "Am Abend: wir gingen am Abend an den Fluss und schwiegen\n",
        }
    )


def test_every_rule_removes_its_row_and_counts_it(corpus: Path, tmp_path: Path) -> None:
    out = cleaned(corpus, tmp_path, max_chars=50, near_duplicates=NearDuplicateRule())
    assert bitext_rows(out, "train") == [
        ("Guten Morgen allen", "Good morning all"),
        ("étude", "study"),
        ("Eine Frage", "A question"),
    ]
    assert bitext_rows(out, "dev") == [("Hallo, Welt", "Hello world"), ("…", "?!")]
    assert bitext_rows(out, "test") == [("Tag", "day")]
    result = funnel(out)
    assert result["pair"] == "de-en"
    assert result["train"] == {
        "read": 18,
        "changed": 4,
        "removed": {
            "empty_side": 1,
            "too_long": 1,
            "length_ratio": 1,
            "identical": 1,
            "few_letters": 1,
            "digits": 1,
            "sentence_ends": 1,
            "script": 1,
            "held_out": 4,
            "language": 1,
            "duplicate": 1,
            "near_duplicate": 1,
        },
        "kept": 3,
    }
    assert result["dev"] == {"read": 2, "changed": 0, "removed": {"empty_side": 0}, "kept": 2}
    assert result["examples"]["held_out"] == [list(TRAIN[7]), list(TRAIN[8]), list(TRAIN[9])]


def test_the_funnel_has_the_rules_in_the_order_in_which_they_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is added after the rule of languages is also listed after it."""
    plain = clean.row_rules
    monkeypatch.setattr(clean, "row_rules", lambda *arguments: {**plain(*arguments), "mine": plain})
    rules, pair = Rules(near_duplicates=NearDuplicateRule()), LangPair("de", "en")
    last = ["script", "held_out", "language", "mine", "duplicate", "near_duplicate"]
    assert clean._rule_names(rules, pair)[-6:] == last
    assert clean._rule_names(replace(rules, held_out=None), pair)[-5:] == [rule for rule in last if rule != "held_out"]


def test_decontamination_can_be_switched_off(corpus: Path, tmp_path: Path) -> None:
    result = funnel(cleaned(corpus, tmp_path, max_chars=50, held_out=None))
    assert result["train"]["kept"] == 8
    assert "held_out" not in result["train"]["removed"]


def test_the_direction_only_swaps_the_sides(corpus: Path, tmp_path: Path) -> None:
    forth = cleaned(corpus, tmp_path)
    back = cleaned(corpus, tmp_path, "en-de")
    for split in ("train", "dev", "test"):
        assert [(tgt, src) for src, tgt in bitext_rows(back, split)] == bitext_rows(forth, split)


@pytest.mark.parametrize("code", ["de", "fr", "ru", "zh-Hans", "ja", "ko", "hi", "km"])
def test_thresholds_keep_the_sample(sample: Path, tmp_path: Path, code: str) -> None:
    """Rows of the sample are clean, so the thresholds remove less than 0.5 % of them."""
    result = funnel(cleaned(sample, tmp_path, f"{code}-en"))["train"]
    removed = result["removed"]
    assert sum(count for rule, count in removed.items() if rule != "held_out") <= 0.005 * result["read"]
    assert removed["held_out"] <= 0.011 * result["read"]  # runs of words in other languages than English


def test_pair_without_english(sample: Path, tmp_path: Path) -> None:
    result = funnel(cleaned(sample, tmp_path, "de-fr"))
    assert result["train"]["kept"] > 2000
    assert (result["dev"]["kept"], result["test"]["kept"]) == (198, 300)  # two dev rows are in a test set


@pytest.mark.parametrize(
    ("train", "dev", "test", "message"),
    [
        ("de\ten\nHallo\t\n\tHello\n", "de\ten\na\tb\n", "de\ten\nc\td\n",
         r"pair de-en: no training rows \(kept of read: train 0 of 0, dev 1 of 1, test 1 of 1\); choose"),
        ("de\ten\n1\t2\n3\t4\n", "de\ten\na\tb\n", "de\ten\nc\td\n",
         r"no training rows .*train 0 of 2.*; the rules removed them all \(few_letters 2\); correct the rows"),
        ("de\ten\nHallo\tHello\n", "de\ten\na\t\n\tb\n", "de\ten\nc\td\n",
         r"pair de-en: no dev rows .*; choose another pair, .*, or raise corpus.split.dev and corpus.split.max_share"),
    ],
)  # fmt: skip
def test_empty_split_is_an_error_with_counts(
    make_corpus: Make, tmp_path: Path, train: str, dev: str, test: str, message: str
) -> None:
    files = {"train.tsv": train, "dev.tsv": dev, "test.tsv": test}
    with pytest.raises(ValueError, match=message):
        cleaned(make_corpus(files), tmp_path)


def test_few_rows_are_a_warning(corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        cleaned(corpus, tmp_path)
    assert "pair de-en: only 5 train rows (kept of read: train 5 of 18, dev 2 of 2, test 1 of 1)" in caplog.text


def test_a_side_in_another_language_is_a_warning(
    sample: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = (sample / "dev.tsv").read_text(encoding="utf-8").splitlines()
    rows = [[line.split("\t")[column] for column in (2, 0)] for line in lines]
    text = "".join("\t".join(row) + "\n" for row in [["de", "en"], *rows[1:]])  # in the place of German stands French
    directory = tmp_path / "swapped"
    directory.mkdir()
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        (directory / name).write_text(text, encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        cleaned(directory, tmp_path, held_out=None)
    assert re.search(r"rule language removed 1\d\d of 200 rows; are its sides swapped", caplog.text)


def test_nothing_is_written_outside_the_output(corpus: Path, tmp_path: Path) -> None:
    """It runs in a process of its own, because `datasets` reads the place of its cache when it is imported."""
    home = tmp_path / "home"
    home.mkdir()
    program = (
        "import sys; from pathlib import Path\n"
        "from pipeline.corpus.bitext import read_bitext\n"
        "from tests.corpora import clean_pair\n"
        "print(len(read_bitext(clean_pair(Path(sys.argv[1]), 'de-en', Path(sys.argv[2])).path, 'train')))\n"
    )
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home)}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | places
    command = [sys.executable, "-c", program, str(corpus), str(tmp_path / "store")]
    root = Path(__file__).parents[4]
    result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == "5\n"
    assert not list(home.rglob("*"))
    (artifact,) = (path for path in (tmp_path / "store" / "clean").iterdir() if path.is_dir())
    names = ["dev.arrow", "funnel.json", "manifest.json", "test.arrow", "train.arrow"]
    assert sorted(path.name for path in artifact.iterdir()) == names


def test_removed_rows_can_be_kept(corpus: Path, tmp_path: Path) -> None:
    out = cleaned(corpus, tmp_path, max_chars=50, keep_removed=True)
    with gzip.open(out / "removed.tsv.gz", "rt", encoding="utf-8") as file:
        removed = [line.rstrip("\n").split("\t") for line in file]
    counts = {rule: count for rule, count in funnel(out)["train"]["removed"].items() if count}
    assert {rule: sum(row[0] == rule for row in removed) for rule in counts} == counts
    assert ["duplicate", "Guten Morgen allen", "Good morning all"] in removed
    assert len(removed) == sum(counts.values())


def test_any_number_of_shards_gives_the_same_files(
    make_corpus: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several sources have several row groups each, with duplicates across their borders."""
    monkeypatch.setattr(tables, "_GROUP_ROWS", 4000)
    sample = [
        line.split("\t")[:2] for line in Path("data/sample/train.tsv").read_text(encoding="utf-8").split("\n")[1:1001]
    ]
    rows = [(de or "", en) for en, de in sample] + [
        (f"Zeile {i % 4_000} von vielen", f"Line {i % 4_000} of many") for i in range(6_400)
    ]
    lines = [f"{de}\t{en}\n" for de, en in rows]
    entry = "{split: train, path: %s.tsv, format: tsv, pair: de-en, name: %s}"
    files = {
        "manifest.yaml": f"name: x\nfiles: [{entry % ('a', 'a')}, {entry % ('b', 'b')}]\n",
        "a.tsv": "".join(lines),
        "b.tsv": "".join(lines[: len(lines) // 2]),
    }
    source = make_corpus(files)
    config = CorpusConfig(path=str(source), keep_removed=True)
    corpus = prepare_corpus(config, ["de-en"], Store(tmp_path / "store"), DataConfig())
    assert corpus.held_out is not None
    files_of = dict(clean_in_shards(config, corpus, rows, tmp_path / str(rows)) for rows in (1_500, 6_000, 1_000_000))
    assert sorted(files_of) == [1, 2, 3]
    assert files_of[1] == files_of[2] == files_of[3]
    result = json.loads(files_of[1]["funnel.json"])
    assert result["train"]["removed"]["duplicate"] > 4_000
    assert [s["name"] for s in result["sources"]] == ["a", "b"]
    assert sum(s["kept"] for s in result["sources"]) == result["train"]["kept"]
    assert result["sources"][1]["kept"] < result["sources"][0]["kept"]
