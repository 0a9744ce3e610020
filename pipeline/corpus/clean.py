"""Second stage: the rows of one pair, normalised and filtered, as memory-mapped Arrow tables."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets
from datasets.arrow_writer import ArrowWriter

from pipeline.corpus.config import CorpusConfig
from pipeline.corpus.fetch import Corpus, read_corpus
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import SPLITS
from pipeline.corpus.text import digest, essence, letter_share, normalize_text

FUNNEL = "funnel.json"
FEW_ROWS = 100
_NUM_EXAMPLES = 3
_WRITE_ROWS = 1000

_log = logging.getLogger(__name__)

Rule = Callable[[str, str], bool]  # True removes the row


class _Split:
    """Rows of one split on their way through rules, and the count of what became of them."""

    def __init__(self, rules: dict[str, Rule]) -> None:
        self.rules = rules
        self.read = 0
        self.kept = 0
        self.removed = dict.fromkeys(rules, 0)
        self.examples: dict[str, list[tuple[str, str]]] = {}

    def filter(self, rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for row in rows:
            src, tgt = normalize_text(row[0]), normalize_text(row[1])
            self.read += 1
            rule = next((name for name, removes in self.rules.items() if removes(src, tgt)), None)
            if rule is None:
                self.kept += 1
                yield src, tgt
                continue
            self.removed[rule] += 1
            examples = self.examples.setdefault(rule, [])
            if len(examples) < _NUM_EXAMPLES:
                examples.append((src, tgt))


def clean(config: CorpusConfig, pair: LangPair, *, corpus: Path, out: Path) -> None:
    """Write `<split>.arrow` (columns src, tgt) and `funnel.json` of one pair of a fetched corpus to `out`.

    Rules apply to train in the order of `_train_rules`; dev and test only lose rows with an empty side.
    Raises ValueError if a split has no rows, before or after cleaning.
    """
    fetched = read_corpus(corpus)
    splits: dict[str, _Split] = {}
    for name in SPLITS:
        held_out_rules: dict[str, Rule] = {"empty_side": _empty_side}
        splits[name] = _Split(_train_rules(config, fetched, pair) if name == "train" else held_out_rules)
        _write(splits[name].filter(fetched.rows(pair, name)), out / f"{name}.arrow")
    _check(pair, splits)
    content: dict[str, Any] = {"pair": pair.name}
    for name, split in splits.items():
        content[name] = {"read": split.read, "removed": split.removed, "kept": split.kept}
    content["examples"] = splits["train"].examples
    (out / FUNNEL).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_bitext(directory: Path, split: str) -> datasets.Dataset:
    """Rows (src, tgt) of a cleaned pair, memory-mapped."""
    return datasets.Dataset.from_file(str(directory / f"{split}.arrow"))


def funnel(directory: Path) -> dict[str, Any]:
    """Content of `funnel.json`: pair; per split read, removed by rule and kept; examples by rule."""
    content: dict[str, Any] = json.loads((directory / FUNNEL).read_text(encoding="utf-8"))
    return content


def _train_rules(config: CorpusConfig, corpus: Corpus, pair: LangPair) -> dict[str, Rule]:
    """Rules by name, in the order in which they apply; duplicates are counted among what the others left."""
    seen: set[int] = set()

    def too_long(src: str, tgt: str) -> bool:
        return max(len(src), len(tgt)) > config.max_chars

    def length_ratio(src: str, tgt: str) -> bool:
        return max(len(src), len(tgt)) > config.max_length_ratio * min(len(src), len(tgt))

    def few_letters(src: str, tgt: str) -> bool:
        return min(letter_share(src), letter_share(tgt)) < config.min_letters

    def duplicate(src: str, tgt: str) -> bool:
        key = digest(f"{src}\n{tgt}")  # a normalised text has no line end
        if key in seen:
            return True
        seen.add(key)
        return False

    rules: dict[str, Rule] = {
        "empty_side": _empty_side,
        "too_long": too_long,
        "length_ratio": length_ratio,
        "identical": lambda src, tgt: src == tgt,
        "few_letters": few_letters,
        "duplicate": duplicate,
    }
    if config.decontaminate:
        held_src, held_tgt = _held_out(corpus, pair.src), _held_out(corpus, pair.tgt)
        rules["held_out"] = lambda src, tgt: digest(essence(src)) in held_src or digest(essence(tgt)) in held_tgt
    return rules


def _empty_side(src: str, tgt: str) -> bool:
    return not src or not tgt


def _held_out(corpus: Corpus, code: str) -> set[int]:
    """Digests of all dev and test texts of a language, whichever pair they belong to."""
    texts = (text for split in SPLITS if split != "train" for text in corpus.texts(code, split))
    return {digest(key) for key in map(essence, texts) if key}


def _write(rows: Iterable[tuple[str, str]], path: Path) -> None:
    features = datasets.Features({"src": datasets.Value("string"), "tgt": datasets.Value("string")})
    with ArrowWriter(features=features, path=str(path), writer_batch_size=_WRITE_ROWS) as writer:
        for src, tgt in rows:
            writer.write({"src": src, "tgt": tgt})
        writer.finalize()


def _check(pair: LangPair, splits: dict[str, _Split]) -> None:
    counts = ", ".join(f"{name} {split.kept} of {split.read}" for name, split in splits.items())
    for name, split in splits.items():
        if split.kept == 0:
            what = {"train": "training"}.get(name, name)
            removed = ", ".join(f"{rule} {count}" for rule, count in split.removed.items() if count)
            reason = f"; the rules removed them all ({removed})" if removed else ""
            raise ValueError(
                f"pair {pair}: no {what} rows (kept of read: {counts}){reason}; "
                "choose another pair, or add rows with both languages to the corpus"
            )
        if split.kept < FEW_ROWS:
            _log.warning("pair %s: only %d %s rows (kept of read: %s)", pair, split.kept, name, counts)
