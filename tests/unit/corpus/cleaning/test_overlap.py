"""Lines of test sets that share text with training rows, checked without the product's code."""

import pickle
from functools import partial
from pathlib import Path

import pytest

from pipeline.corpus.cleaning.overlap import count_overlap
from pipeline.corpus.config import Rules
from pipeline.tasks import DataConfig, in_turn, run_tasks
from tests.corpora import bitext_rows, clean_pair, write_split
from tests.unit.corpus.cleaning.test_held_out import runs, words

EIGHT = "one two three four five six seven eight"


def rows_in(directory: Path, split: str, rows: list[tuple[str, str]]) -> Path:
    directory.mkdir(exist_ok=True)
    write_split(directory, split, rows)
    return directory


@pytest.mark.parametrize(
    ("row", "source", "reference"),
    [
        (("Ein Satz.", "Other."), 1, 0),
        (("ein SATZ", "Other."), 1, 0),  # neither case nor punctuation counts
        (("Etwas", "ein satz!"), 0, 1),  # whatever the language
        (("Etwas", "A sentence"), 0, 1),
        (("Ein Satz", "A sentence"), 1, 1),
        (("Ein Satz mehr", "A sentence more"), 0, 0),
        ((f"well, {EIGHT} and nine", "x"), 1, 0),
        (("one two three four five six seven nine", "x"), 0, 0),
        (("", "..."), 0, 0),
    ],
)
def test_a_line_shares_a_sentence_or_eight_words(tmp_path: Path, row: tuple[str, str], source: int, reference: int):
    first = rows_in(tmp_path / "first", "train", [("Ein Satz", "A sentence."), ("", "")])
    second = rows_in(tmp_path / "second", "train", [("x y", f"Count: {EIGHT}!")])
    empty = rows_in(tmp_path / "empty", "train", [])
    tests = {"de-en": rows_in(tmp_path / "test", "test", [row, ("Ganz anderes", "Quite different")])}
    counts = count_overlap(tests, [first, second, empty], in_turn, tmp_path)
    assert counts == {
        "de-en": {"lines": 2, "source": source, "reference": reference, "either": max(source, reference)},
    }
    nothing = {"lines": 2, "source": 0, "reference": 0, "either": 0}
    assert count_overlap(tests, [], in_turn, tmp_path) == {"de-en": nothing}


def test_two_pairs_of_the_sample(sample: Path, tmp_path: Path):
    """The dev set of each pair, and parts of training rows of the other, stand for test sets."""
    rules = Rules(held_out=None, language=None)
    cleaned = {pair: clean_pair(sample, pair, tmp_path, rules=rules).path for pair in ("fr-en", "ru-en")}
    training = {pair: bitext_rows(path, "train") for pair, path in cleaned.items()}
    texts = [side for rows in training.values() for row in rows for side in row]
    sentences = {"".join(words(text)) for text in texts}
    phrases = {run for text in texts for run in runs(text, 8)}
    tests = {}
    for pair, other in (("fr-en", "ru-en"), ("ru-en", "fr-en")):
        parts = [(f"x {source[3:]}", target.upper()[:60]) for source, target in training[other][:100]]
        tests[pair] = rows_in(tmp_path / pair, "test", bitext_rows(cleaned[pair], "dev") + parts)
    in_processes = partial(run_tasks, config=DataConfig(workers=2), directory=tmp_path / "log", title="overlap")
    sizes = []

    def run(function, directories):
        sizes.append(len(pickle.dumps(function)))
        return in_processes(function, directories)

    counts = count_overlap(tests, list(cleaned.values()), run, tmp_path)
    assert sizes[0] < 1000, "hashes are sent to every process"
    assert not list(tmp_path.glob("tmp*"))
    for pair, path in tests.items():
        shared = [
            ["".join(words(side)) in sentences or not phrases.isdisjoint(runs(side, 8)) for side in row]
            for row in bitext_rows(path, "test")
        ]
        assert counts[pair] == {
            "lines": len(shared),
            "source": sum(source for source, _ in shared),
            "reference": sum(reference for _, reference in shared),
            "either": sum(map(any, shared)),
        }
        assert min(counts[pair]["source"], counts[pair]["reference"]) > 20
