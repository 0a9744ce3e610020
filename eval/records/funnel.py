"""The data funnel: how many rows of each pair were read, removed by each rule, and kept; as numbers, CSV and text."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.records.run_record import Json, RunRecord, load_run
from eval.text_table import aligned

_HELD_OUT = ("dev", "test")
# For each rule: a sentence for the report, and the settings that decide what the rule removes: below corpus.rules, or
# below corpus if they begin with learned.
RULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "empty_side": ("One side has no text.", ()),
    "too_long": ("One side has more characters than allowed.", ("max_chars",)),
    "length_ratio": ("One side is too many times as long as the other, in characters.", ("max_length_ratio",)),
    "identical": ("Both sides are the same text.", ("identical",)),
    "few_letters": ("Too small a share of a side’s visible characters are letters.", ("min_letters",)),
    "digits": ("The two sides share too few of their digits 1 to 9.", ("min_digit_overlap",)),
    "sentence_ends": ("One side has many more sentence ends than the other.", ("max_end_difference",)),
    "script": ("Too small a share of a side’s letters belong to a script of its language.", ("min_script",)),
    "held_out": (
        "One side is a sentence of a dev or test set, of any pair, or shares a run of words with one.",
        ("held_out.shingle_words",),
    ),
    "language": (
        "One side was recognised as another language than its own.",
        ("language.min_probability", "language.min_letters"),
    ),
    "duplicate": ("Both sides together repeat an earlier row.", ("duplicates",)),
    "near_duplicate": ("The row is almost the same as an earlier one.", ("near_duplicates.threshold",)),
    "dual_cross_entropy": (
        "Two small models, one a direction, find the sides too unlikely as translations.",
        ("learned.remove", "learned.remove_of"),
    ),
    "low_score": (
        "The row has one of the lowest of the scores that were given for it.",
        ("learned.remove", "learned.remove_of", "learned.min_score"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class HeldOutFunnel:
    """Counts of the dev or test rows of a pair. removed: counts by rule, for the rules that apply to such rows."""

    read: int
    removed: Mapping[str, int]
    kept: int


@dataclass(frozen=True, kw_only=True)
class PairFunnel:
    """Counts of the training rows of a pair.

    changed: rows that normalisation changed.
    removed: rows by the rule that removed them, in the order of the rules; a rule that removed none has 0.
    too_many_tokens: kept rows that the encoder left out later; None if the record does not have the count.
    held_out: the funnels of dev and test.
    """

    pair: str
    read: int
    changed: int
    removed: Mapping[str, int]
    kept: int
    too_many_tokens: int | None
    held_out: Mapping[str, HeldOutFunnel]

    def share(self, rule: str) -> float:
        """Return the share of the read rows that the rule removed, 0 to 1."""
        return self.removed.get(rule, 0) / self.read if self.read else 0.0

    @property
    def kept_share(self) -> float:
        return self.kept / self.read if self.read else 0.0


def funnels_of(record: RunRecord) -> list[PairFunnel]:
    """Return the funnels of a record, one a pair, most rows first."""
    funnels = [
        PairFunnel(
            pair=pair,
            read=int(splits["train"]["read"]),
            changed=int(splits["train"].get("changed", 0)),
            removed={rule: int(count) for rule, count in splits["train"].get("removed", {}).items()},
            kept=int(splits["train"]["kept"]),
            too_many_tokens=record.encoded[pair]["dropped"] if pair in record.encoded else None,
            held_out={
                name: HeldOutFunnel(
                    read=int(splits[name]["read"]),
                    removed={rule: int(count) for rule, count in splits[name].get("removed", {}).items()},
                    kept=int(splits[name]["kept"]),
                )
                for name in _HELD_OUT
                if name in splits
            },
        )
        for pair, splits in record.funnel.items()
        if "train" in splits
    ]
    return sorted(funnels, key=lambda funnel: (-funnel.read, funnel.pair))


def load_funnels(path: Path) -> list[PairFunnel]:
    """Read the funnels from a data.json or run.json."""
    return funnels_of(load_run(path.parent, path.name))


def rules_of(funnels: Sequence[PairFunnel]) -> list[str]:
    """Return the rules that were on for any pair, in their order."""
    return list(dict.fromkeys(rule for funnel in funnels for rule in funnel.removed))


def used_rules(funnels: Sequence[PairFunnel]) -> list[str]:
    """Return the rules that removed a row of any pair, in their order."""
    return [rule for rule in rules_of(funnels) if any(funnel.removed.get(rule) for funnel in funnels)]


def total(funnels: Sequence[PairFunnel]) -> PairFunnel:
    """Return the sum over all pairs, without dev and test: one test set may serve several pairs."""
    dropped = [funnel.too_many_tokens for funnel in funnels]
    return PairFunnel(
        pair="all pairs",
        read=sum(funnel.read for funnel in funnels),
        changed=sum(funnel.changed for funnel in funnels),
        removed={rule: sum(funnel.removed.get(rule, 0) for funnel in funnels) for rule in rules_of(funnels)},
        kept=sum(funnel.kept for funnel in funnels),
        too_many_tokens=None if None in dropped else sum(number for number in dropped if number is not None),
        held_out={},
    )


def settings_of(rule: str, config: Json) -> list[str]:
    """Return the settings of a rule as the command line takes them, with their values in this run."""
    lines = []
    for key in RULES[rule][1] if rule in RULES else ():
        path = key if key.startswith("learned.") else f"rules.{key}"
        value: object = config.get("corpus", {})
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value not in (None, {}):
            lines.append(f"corpus.{path}={str(value).lower() if isinstance(value, bool) else value}")
    return lines


def save_funnel(path: Path, funnels: Sequence[PairFunnel]) -> None:
    """Write funnel.csv: a line for each pair and split, a column for each rule that was on."""
    rules = rules_of(funnels)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["pair", "split", "read", "changed", *rules, "kept", "too_many_tokens"])
        for funnel in funnels:
            dropped = "" if funnel.too_many_tokens is None else funnel.too_many_tokens
            counts = [funnel.removed.get(rule, 0) for rule in rules]
            writer.writerow([funnel.pair, "train", funnel.read, funnel.changed, *counts, funnel.kept, dropped])
            for split, held_out in funnel.held_out.items():
                applied = [held_out.removed.get(rule, "") for rule in rules]
                writer.writerow([funnel.pair, split, held_out.read, "", *applied, held_out.kept, ""])


def text_table(funnels: Sequence[PairFunnel]) -> str:
    """Return the funnel for a terminal: counts of rows, and the share in per cent that each rule removed.

    The encoder leaves out rows with too many tokens after cleaning. Their share is of the rows read, as for the rules.
    """
    rules = used_rules(funnels)
    heads = [["pair"], ["read"], ["kept"], ["kept", "%"]]  # the words of each column's head, one under the other
    heads += [rule.split("_") for rule in rules]
    too_long = any(funnel.too_many_tokens for funnel in funnels)
    heads += [["too many", "tokens"]] * too_long
    heads += [[name] for name in _HELD_OUT]
    lines = [*funnels, *([total(funnels)] if len(funnels) > 1 else [])]
    rows = [
        [line.pair, f"{line.read:,}", f"{line.kept:,}", f"{100 * line.kept_share:.1f}"]
        + [_percent(line.share(rule)) for rule in rules]
        + [_percent((line.too_many_tokens or 0) / line.read)] * too_long
        + [f"{line.held_out[name].kept:,}" if name in line.held_out else "" for name in _HELD_OUT]
        for line in lines
    ]
    height = max(map(len, heads))
    padded = [[""] * (height - len(words)) + words for words in heads]
    rows = [[words[place] for words in padded] for place in range(height)] + rows
    return f"training rows, and the share of those read that each rule removed, in %\n{aligned(rows)}"


def _percent(share: float) -> str:
    if share == 0:
        return "0"
    return "<0.01" if share < 0.00005 else f"{100 * share:.2f}"
