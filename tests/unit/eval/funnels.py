"""Funnels and a data.json for tests."""

from typing import Any

from eval.records.funnel import HeldOutFunnel, PairFunnel


def pair_funnel(pair: str, read: int, removed: dict[str, int], dropped: int | None = 0) -> PairFunnel:
    """Return a funnel that keeps what no rule removed. dropped: kept rows with too many tokens."""
    held_out = {
        "dev": HeldOutFunnel(read=204, removed={"empty_side": 1, "held_out": 3}, kept=200),
        "test": HeldOutFunnel(read=300, removed={"empty_side": 2}, kept=298),
    }
    kept = read - sum(removed.values())
    return PairFunnel(
        pair=pair, read=read, changed=0, removed=removed, kept=kept, too_many_tokens=dropped, held_out=held_out
    )


def data_record(**changes: Any) -> dict[str, Any]:
    """Return a data.json of two pairs. changes: keys with other values."""

    def splits(read: int, removed: dict[str, int]) -> dict[str, Any]:
        held_out = {"read": 200, "removed": {"empty_side": 0}, "kept": 200}
        train = {"read": read, "changed": 7, "removed": removed, "kept": read - sum(removed.values())}
        return {"train": train, "dev": held_out, "test": held_out}

    def source(name: str, licence: str, read: int) -> dict[str, Any]:
        return {"name": name, "tag": "", "licence": licence, "citation": f"By {name}.", "read": read, "kept": read - 1}

    record: dict[str, Any] = {
        "name": "mine",
        "recipe": "demo",
        "pairs": ["tr-en", "fa-en"],
        "train_pairs": {"tr-en": 95, "fa-en": 990},
        "funnel": {
            "tr-en": splits(100, {"too_long": 5, "identical": 0, "duplicate": 0}),
            "fa-en": splits(1000, {"too_long": 1, "identical": 0, "duplicate": 9}),
        },
        "encoded": {"tr-en": {"rows": 95, "dropped": 0}, "fa-en": {"rows": 988, "dropped": 2}},
        "sources": {
            "tr-en": [source("books", "MPL-2.0", 60), source("web", "", 40)],
            "fa-en": [source("books", "MPL-2.0", 1000)],
        },
        "examples": {"fa-en": {"too_long": [["سلام " * 200, "x" * 1000]], "duplicate": [["<b>سلام</b>", ""]]}},
        "not_judged": {"fa-en": ["language: fa is not known"]},
        "config": {"corpus": {"rules": {"max_chars": 500, "identical": True}}},
    }
    return {**record, **changes}
