"""Rates of the identification of languages in `eval.score.faults`: how often right and wrong text is called wrong.

`python -m bench.quality.identification CORPORA --news NTREX` writes bench/results/identification.csv. It reads the dev
and test sets of freesoft38 (docs/corpora.md), and every fourth line of NTREX-128 (docs/benchmarks.md) in the languages
of these. The rows `rule` try rules on the dev sets, whose sentences count twice, whole and cut short. The rule of
`eval.score.faults` is the one that finds most among those that call at most MOST_WRONG of any language wrong: here the
lowest of LETTERS and of PROBABILITIES. Lower limits were not tried. The rows `language` have its rates on the test sets
and on news, whose text no rule and no group of languages was chosen on.
"""

import argparse
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.output import RESULTS, ROOT, aligned, percent, write_csv
from eval.language_id import are_alike, unjudged, wrong_confidence
from eval.language_model import Floats
from eval.score.faults import MIN_LETTERS, MIN_PROBABILITY, MOST_WRONG, count_letters, identify
from pipeline.corpus.manifest import FileEntry, read_manifest
from pipeline.corpus.readers import open_table

MANIFEST = ROOT / "data" / "freesoft38" / "manifest.yaml"
COLUMNS = (
    *("section", "split", "min_letters", "min_probability", "language", "sentences", "judged", "wrong"),
    *("english_found", "others_found", "chosen"),
)
LETTERS, PROBABILITIES = (5, 10, 15, 20, 30), (0.5, 0.6, 0.7, 0.8, 0.9)
ENGLISH = "en"
_EACH = 4
_BEGINNINGS = (8, 12, 16, 24, 32)  # characters
SHARES = ("judged", "wrong", "english_found", "others_found")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The sentences of all languages, judged as each language.

    letters: letters of each sentence, by language.
    confidence: `wrong_confidence` of each sentence, by the language that it should be in and its own. Languages that
        are not told apart are left out.
    """

    letters: Mapping[str, npt.NDArray[np.int32]]
    confidence: Mapping[tuple[str, str], Floats]

    @classmethod
    def of(cls, texts: Mapping[str, Sequence[str]]) -> "Judged":
        """Judge sentences by language."""
        probabilities = {code: identify(of_code) for code, of_code in texts.items()}
        unknown = {code: reason for code in texts if (reason := unjudged(code))}
        assert not unknown, unknown
        return cls(
            letters={code: count_letters(of_code) for code, of_code in texts.items()},
            confidence={
                (code, own): wrong_confidence(probability_NL, code)
                for code in texts
                for own, probability_NL in probabilities.items()
                if code == own or not are_alike(code, own)
            },
        )

    def rates(self, code: str, letters: int, probability: float) -> dict[str, Any]:
        """Return the rates of one language by a rule.

        sentences, judged: number of its sentences, and the share that is long enough.
        wrong: share of the judged ones that are called wrong.
        english_found, others_found: share of all sentences in English, and in the other languages, each counting the
            same, that are called wrong where this language should be.
        """
        long_enough = self.letters[code] >= letters
        called_wrong = {
            own: (confidence_N >= probability) & (self.letters[own] >= letters)
            for (expected, own), confidence_N in self.confidence.items()
            if expected == code
        }
        own_wrong = called_wrong.pop(code)
        found_shares = {own: float(mask.mean()) for own, mask in called_wrong.items()}
        return {
            "sentences": len(long_enough),
            "judged": float(long_enough.mean()),
            "wrong": float(own_wrong.sum() / long_enough.sum()),
            "english_found": found_shares.get(ENGLISH),
            "others_found": statistics.fmean(found_shares.values()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.quality.identification", description=__doc__)
    parser.add_argument("corpora", type=Path, help="directory of the files of data/freesoft38/manifest.yaml")
    parser.add_argument("--news", type=Path, required=True, help="test.tsv.xz of NTREX-128, a column a language")
    parser.add_argument("--out", type=Path, default=RESULTS / "identification.csv", help="the CSV file")
    options = parser.parse_args()
    dev, test = (read_texts(options.corpora, split) for split in ("dev", "test"))
    news = {code: texts for code, texts in read_news(options.news).items() if code in test}
    rows = try_rules(Judged.of({code: [*texts, *beginnings(texts)] for code, texts in dev.items()}))
    for split, texts in (("test", test), ("news", news)):
        rows += judge_languages(Judged.of(texts), split)
    write_csv(rows, COLUMNS, options.out)
    print(table(rows))
    print(options.out)


def read_texts(directory: Path, split: str) -> dict[str, list[str]]:
    """Return the different sentences of each language in the dev or test sets."""
    manifest = read_manifest(directory, MANIFEST)
    texts: dict[str, dict[str, None]] = {}
    for entry in manifest.files:
        if entry.split == split:
            opened = open_table([directory / path for path in entry.paths], entry, manifest.codes)
            for batch in opened.batches:
                for code in opened.codes:
                    texts.setdefault(code, {}).update(dict.fromkeys(filter(None, batch.column(code).to_pylist())))
    return {code: list(of_code) for code, of_code in sorted(texts.items())}


def read_news(path: Path) -> dict[str, list[str]]:
    """Return every _EACH-th line of each column of a multi-way table."""
    table = open_table([path], FileEntry(split="test", format="multiway_tsv", paths=(path.name,)), {})
    texts: dict[str, list[str]] = {code: [] for code in table.codes}
    for batch in table.batches:
        for code in table.codes:
            texts[code] += batch.column(code).to_pylist()
    return {code: of_code[::_EACH] for code, of_code in texts.items()}


def beginnings(texts: Sequence[str]) -> list[str]:
    """Return the first words of each text, or characters where there are no spaces: up to _BEGINNINGS in turn."""
    cut = [text[:size] for text, size in zip(texts, itertools.cycle(_BEGINNINGS), strict=False)]
    return [short.rsplit(" ", 1)[0] for short in cut]


def try_rules(judged: Judged) -> list[dict[str, Any]]:
    """Return a row for each rule: the language that it calls wrong most often, and the means over all languages."""
    rows: list[dict[str, Any]] = []
    for letters, probability in itertools.product(LETTERS, PROBABILITIES):
        rates = {code: judged.rates(code, letters, probability) for code in judged.letters}
        worst = max(rates, key=lambda code: rates[code]["wrong"])
        means = {
            name: statistics.fmean(row[name] for row in rates.values() if row[name] is not None) for name in SHARES
        }
        sentences = sum(row["sentences"] for row in rates.values())
        row = {"section": "rule", "split": "dev", "min_letters": letters, "min_probability": probability}
        rows.append({**row, "language": worst, **means, "wrong": rates[worst]["wrong"], "sentences": sentences})
    admitted = [row for row in rows if row["wrong"] <= MOST_WRONG]
    chosen = max(admitted, key=lambda row: row["others_found"], default=None)
    return [{**row, "chosen": "yes" if row is chosen else ""} for row in rows]


def judge_languages(judged: Judged, split: str) -> list[dict[str, Any]]:
    """Return a row for each language of a split, by the rule of `eval.score.faults`."""
    rule = {"section": "language", "split": split, "min_letters": MIN_LETTERS, "min_probability": MIN_PROBABILITY}
    return [
        {**rule, "language": code, **judged.rates(code, MIN_LETTERS, MIN_PROBABILITY), "chosen": ""}
        for code in judged.letters
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a table for a terminal; shares are in per cent."""
    lines: list[Sequence[str]] = [COLUMNS]
    for row in rows:
        shares = [percent(row[name]) for name in SHARES]
        names = [str(row[name]) for name in ("section", "split", "min_letters", "min_probability", "language")]
        lines.append([*names, f"{row['sentences']:,}", *shares, row["chosen"]])
    return aligned(lines, left=("section", "split", "language", "chosen"))


if __name__ == "__main__":
    main()
