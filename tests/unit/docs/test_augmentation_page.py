"""docs/augmentation.md draws the conclusions that its CSV allows."""

from bench.published.cells import measurements
from eval.records.challenge import MIN_LINES
from pipeline.config import ROOT

WORDS = " ".join((ROOT / "docs" / "augmentation.md").read_text(encoding="utf-8").split())
ROWS = {row["kind"]: row for _, row in measurements("augmentation")}


def test_augmentation_helps_and_costs_what_the_page_says():
    better = {kind for kind, row in ROWS.items() if row["changed_low"] and float(row["changed_low"]) > 0}
    assert better == {"number", "url", "emoji", "upper", "word"}
    assert "it helps with upper case, single words, numbers, URLs and emoji; without" in WORDS
    assert all(float(ROWS[kind]["changed_without"]) < 8 for kind in ("number", "url", "emoji"))
    plain, typos = ROWS["plain"], ROWS["typos"]
    assert float(plain["ci_high"]) < 0
    assert f"It costs {-float(plain['gain']):.1f} chrF++ on unchanged lines" in WORDS
    assert float(typos["gain"]) > 0
    assert float(typos["changed_high"]) < 0
    assert f"still translated worse (−{-float(typos['changed_gain']):.1f})" in WORDS
    shares = [float(share.partition("=")[2]) for share in plain["augment"].split()]
    assert 0.45 < sum(shares) < 0.6
    assert "change half of all rows" in WORDS


def test_only_title_case_has_no_interval():
    assert [kind for kind, row in ROWS.items() if not row["ci_low"]] == ["title"]
    assert f"fewer than {MIN_LINES} such lines" in WORDS
