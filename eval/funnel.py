"""What cleaning did to the training rows of each pair: read, removed by rule, kept; as numbers, CSV and text."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.run_record import Json, RunRecord, load_run

_HELD_OUT = ("dev", "test")
# What each rule removes, and the settings below corpus.rules that decide it.
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
}


@dataclass(frozen=True, kw_only=True)
class HeldOutFunnel:
    """Dev or test rows of a pair. removed: by rule, of the rules that apply to them."""

    read: int
    removed: Mapping[str, int]
    kept: int


@dataclass(frozen=True, kw_only=True)
class PairFunnel:
    """Training rows of a pair. changed: by normalisation. removed: by rule, in the order of the rules, with those that
    removed none.

    too_many_tokens: kept rows that the encoder left out, None where the record does not say. held_out: dev and test.
    """

    pair: str
    read: int
    changed: int
    removed: Mapping[str, int]
    kept: int
    too_many_tokens: int | None
    held_out: Mapping[str, HeldOutFunnel]

    def share(self, rule: str) -> float:
        """Rows that the rule removed, over those read."""
        return self.removed.get(rule, 0) / self.read if self.read else 0.0

    @property
    def kept_share(self) -> float:
        return self.kept / self.read if self.read else 0.0


def funnels_of(record: RunRecord) -> list[PairFunnel]:
    """The funnel of every pair that the record has one of, most rows first."""
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
    """The funnels in a data.json or run.json."""
    return funnels_of(load_run(path.parent, path.name))


def rules_of(funnels: Sequence[PairFunnel]) -> list[str]:
    """Rules that were on for any pair, in their order."""
    return list(dict.fromkeys(rule for funnel in funnels for rule in funnel.removed))


def used_rules(funnels: Sequence[PairFunnel]) -> list[str]:
    """Rules that removed a row of any pair, in their order."""
    return [rule for rule in rules_of(funnels) if any(funnel.removed.get(rule) for funnel in funnels)]


def total(funnels: Sequence[PairFunnel]) -> PairFunnel:
    """All pairs together; not what is held out, as one set may serve many of them."""
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
    """The settings of a rule as the command line takes them, with their values in this run."""
    found = []
    for key in RULES[rule][1] if rule in RULES else ():
        value: object = config.get("corpus", {}).get("rules", {})
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            found.append(f"corpus.rules.{key}={str(value).lower() if isinstance(value, bool) else value}")
    return found


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
    """The funnel for a terminal: counts of rows, and of every rule that removed any its share in per cent.

    Rows with too many tokens are left out of the encoded rows, after cleaning: their share is of those read too.
    """
    rules = used_rules(funnels)
    header = [["pair"], ["read"], ["kept"], ["kept", "%"]]
    header += [rule.split("_") for rule in rules]
    too_long = any(funnel.too_many_tokens for funnel in funnels)
    header += [["too many", "tokens"]] * too_long
    header += [[name] for name in _HELD_OUT]
    lines = [*funnels, *([total(funnels)] if len(funnels) > 1 else [])]
    rows = [
        [line.pair, f"{line.read:,}", f"{line.kept:,}", f"{100 * line.kept_share:.1f}"]
        + [_percent(line.share(rule)) for rule in rules]
        + [_percent((line.too_many_tokens or 0) / line.read)] * too_long
        + [f"{line.held_out[name].kept:,}" if name in line.held_out else "" for name in _HELD_OUT]
        for line in lines
    ]
    height = max(map(len, header))
    above = [[""] * (height - len(words)) + words for words in header]
    rows = [[words[place] for words in above] for place in range(height)] + rows
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    text = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]
    return "\n".join(["training rows, and the share of those read that each rule removed, in %", *text])


def _percent(share: float) -> str:
    if share == 0:
        return "0"
    return "<0.01" if share < 0.00005 else f"{100 * share:.2f}"
