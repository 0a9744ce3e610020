"""A small run directory that is complete and valid. Tests then damage it."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

WORDS = ["open", "the", "dialog", "to", "choose", "a", "colour", "for", "each", "selected", "cell", "press", "enter"]
MakeRun = Callable[..., Path]


def config_of(experts: int, seed: int = 1, **train: int) -> dict[str, Any]:
    """Return the configuration of a run: the number of experts, the seed, and further settings of training."""
    layers = {"encoder_layers": 3, "decoder_layers": 3}
    return {"model": {**layers, "moe": {"num_experts": experts}}, "train": {"seed": seed, **train}}


def _sentences(rng: random.Random, count: int) -> list[str]:
    return [" ".join(rng.choices(WORDS, k=rng.randint(6, 12))).capitalize() + "." for _ in range(count)]


def _damaged(rng: random.Random, line: str, rate: float) -> str:
    return " ".join(word for word in line.split() if rng.random() > rate) or "the"


def _ledger(pair: str | None) -> dict[str, Any]:
    return {
        "pair": pair,
        "parameters": 3_210_000,
        "active_parameters": 1_500_000,
        "flops_per_token": 9.1e6,
        "tokens": 2_000_000,
        "steps": 900,
        "train_seconds": 520.0,
        "mfu": 0.58,
        "useful_flops": 0.93,
        "size": "d=128, 2+2 layers",
    }


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Return a function that writes a run and returns its directory.

    pairs, damage: language pairs, and the share of the words that each system loses.
    num_lines, folder: lines of each test set, and name of the directory.
    keys: further keys of run.json.
    Runs in different folders have the same test sets, and equal translations if the damage is equal.
    """

    def build(
        pairs: Sequence[str],
        damage: dict[str, float] | None = None,
        num_lines: int = 30,
        folder: str = "run",
        **keys: Any,
    ) -> Path:
        run_dir = tmp_path / folder
        rates = damage or {"moe": 0.2, "bilingual": 0.4}
        sizes = {pair: 6000 // (place + 1) for place, pair in enumerate(pairs)}
        ledgers = {"moe": [_ledger(None)], "bilingual": [_ledger(pair) for pair in pairs]}
        record = {"name": "test-run", "recipe": "smoke", "commit": "0123456789abcdef", "pairs": list(pairs)}
        record |= {"train_pairs": sizes, "systems": {name: ledgers[name] for name in rates}}
        record |= {"sample_sentences": True, "config": {"train": {"steps": 900}}, **keys}
        for pair in pairs:
            rng = random.Random(pair)
            references = _sentences(rng, num_lines)
            for system, rate in rates.items():
                rng = random.Random(f"{pair} {system} {rate}")
                lines = [
                    {"source": f"source {n}", "hypothesis": _damaged(rng, text, rate), "reference": text, "score": -0.5}
                    for n, text in enumerate(references)
                ]
                write_jsonl(run_dir / "translations" / system / f"{pair}.jsonl", lines)
        (run_dir / "run.json").write_text(json.dumps(record), encoding="utf-8")
        write_jsonl(run_dir / "metrics.jsonl", _metrics(pairs))
        return run_dir

    return build


def _metrics(pairs: Sequence[str]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for step in range(1, 41):
        loss = 3 + 5 / step
        records.append(
            {"event": "train", "step": step, "target_tokens": 1000 * step, "cross_entropy": loss, "seconds": 2.0 * step}
        )
        if step % 10 == 0:
            validation = {"event": "validation", "step": step, "target_tokens": 1000 * step, "seconds": 2.0 * step}
            validation |= {"cross_entropy": loss + 0.2, "pairs": dict.fromkeys(pairs, loss + 0.2)}
            records.append(validation)
    return records


def write_jsonl(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write one record a line. The folder is made if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
