"""docs/decoding.md: its table has all settings, and its statements and sums are right."""

import re
from dataclasses import asdict, fields
from statistics import fmean

import yaml

from bench.published.cells import measurements
from eval.records.decisive import SPEED_ONLY
from pipeline.config import ROOT, load_config
from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.rows import batch_size
from pipeline.model.moe.gates.capacity import capacity_of
from pipeline.model.moe.gates.config import Top2Config
from tests.gates import GATES, gates_where

TEXT = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())
ROWS = re.findall(r"(?m)^\| `(\w+)` \| (\S+) \| (.*) \|$", TEXT)
DEFAULTS = {**asdict(DecodeConfig()), "ensemble": []}


def test_the_table_has_every_setting_with_its_default():
    assert {name: yaml.safe_load(default.strip("`")) for name, default, _ in ROWS} == DEFAULTS
    assert asdict(load_config([]).decode) == {**DEFAULTS, "ensemble": ()}


def test_the_choices_are_those_of_the_table():
    hints = {field.name: field.type for field in fields(DecodeConfig)}
    for name, choices in (
        ("search", "sample"),
        ("length_norm", "power"),
        ("precision", "bf16 fp64"),
        ("choose", "mbr"),
        ("utility", "chrf++ bleu"),
        ("combine", "log_linear weights"),
    ):
        meaning = next(text for row, _, text in ROWS if row == name)
        assert all(f"`{choice}`" in meaning and choice in str(hints[name]) for choice in choices.split())


def test_what_changes_no_translation_is_said():
    assert all(f"`{name}`" in WORDS.split("## What changes a translation?")[1] for name in SPEED_ONLY)
    (steps,) = re.findall(r"up to 16 sentences by one at a time, up to 32 by (\d), up to 64 by (\d), …", WORDS)
    sizes = [n for n in range(1, 65) if batch_size(n) == n]
    assert sizes == [*range(1, 17), *range(18, 33, int(steps[0])), *range(36, 65, int(steps[1]))]


def test_gates_that_refuse_a_capacity_are_those_that_are_named():
    named = re.search(r"never limit an expert's tokens \(([^)]*)\) refuse", WORDS)
    assert set(re.findall(r"`(\w+)`", named[1])) == {*GATES} - {*gates_where(lambda gate: gate.queues)}


def test_capacity_is_that_of_the_page():
    """The formula is ceil(1.25 · k · S / E)."""
    assert "ceil(1.25 · k · S / E)" in WORDS
    assert capacity_of(1.25, Top2Config.k, 100, 8) == 32  # 31.25


def test_the_conclusion_about_the_choice_is_that_of_the_measurement():
    """It compares mbr over the hypotheses of a beam with that beam, and one sample with greedy search."""
    rows = [row for _, row in measurements("choice")]
    runs = {row["run"] for row in rows}
    assert len(runs) == 2

    def mean(way, metric, of_runs=runs):
        return fmean(float(row[metric]) for row in rows if row["way"] == way and row["run"] in of_runs)

    for run in runs:
        for way in ("mbr chrf of beam 8", "mbr chrf of beam 16"):
            assert mean(way, "chrf++", [run]) > mean("beam 8", "chrf++", [run])
            assert mean(way, "bleu", [run]) < mean("beam 8", "bleu", [run])
            assert mean(way, "ter", [run]) > mean("beam 8", "ter", [run])
        assert mean("sample", "bleu", [run]) < mean("beam 1", "bleu", [run])
    gain = mean("mbr chrf of beam 8", "chrf++") - mean("beam 8", "chrf++")
    assert f"over a beam of 8 raises chrF++ by {gain:.1f} over the beam alone" in WORDS
    ratio = mean("mbr chrf of 64 draws", "seconds") / mean("beam 8", "seconds")
    assert f"over 64 of them costs {ratio:.0f} times as much as a beam of 8" in WORDS
    assert {(row["sentences"], row["rounds"], row["commit"][:7]) for row in rows} == {("100", "3", "429f4de")}
    assert "Measured at commit 429f4de" in WORDS
