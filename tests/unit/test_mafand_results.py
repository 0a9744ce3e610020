"""The table of docs/benchmarks.md on MAFAND-MT has the scores of recipes/mafand/results.csv."""

import csv
import re

from pipeline.config import ROOT, load_config

TEXT = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
COLUMNS = (
    *("mafand_multilingual", "mafand_bilingual", "mafand_transfer"),
    *("transformer_religious_and_news", "m2m100_418m_news"),
)


def scores(metric):
    """Rows of the file by run and pair."""
    with (ROOT / "recipes" / "mafand" / "results.csv").open(encoding="utf-8") as stream:
        return {(row["run"], row["pair"]): row for row in csv.DictReader(stream) if row["metric"] == metric}


def mean(rows, run, pairs):
    return sum(float(rows[run, pair]["score"]) for pair in pairs) / len(pairs)


def test_the_table_has_the_scores_of_the_file():
    (table,) = re.findall(r"^\| pair \| multilingual \| .*\n\|[-:|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    rows = scores("bleu")
    for pair, *cells in lines[:-1]:
        for run, cell in zip(COLUMNS, cells, strict=True):
            row = rows[run, pair]
            assert cell == f"{float(row['score']):.1f} [{float(row['ci_low']):.1f}, {float(row['ci_high']):.1f}]"
            assert int(row["n_test"]) in range(998, 1565)
    pairs = [pair for pair, *_ in lines[:-1]]
    assert sorted(pairs) == sorted(load_config(["recipes=mafand/multilingual"]).pairs)
    assert lines[-1] == ["mean", *(f"{mean(rows, run, pairs):.1f}" for run in COLUMNS)]
    assert len(rows) == len(COLUMNS) * len(pairs)


def test_what_is_said_of_the_bilingual_models():
    rows = scores("bleu")
    pairs = [pair for run, pair in rows if run == "mafand_bilingual"]
    apart = {
        pair: float(rows["mafand_multilingual", pair]["score"]) - float(rows["mafand_bilingual", pair]["score"])
        for pair in pairs
        if not overlap(rows["mafand_multilingual", pair], rows["mafand_bilingual", pair])
    }
    means = [mean(rows, run, pairs) for run in ("mafand_multilingual", "mafand_bilingual")]
    assert f"{means[0]:.1f} and {means[1]:.1f} on average over these {len(pairs)} directions" in TEXT
    least_text = {direction for code in ("lg", "tw", "zu", "tn") for direction in (f"{code}-en", f"en-{code}")}
    assert {pair for pair, gain in apart.items() if gain > 0} == {"yo-en", *least_text}
    assert {pair for pair, gain in apart.items() if gain < 0} == {"pcm-en", "en-pcm", "en-ha"}


def overlap(first, second):
    return float(first["ci_low"]) <= float(second["ci_high"]) and float(second["ci_low"]) <= float(first["ci_high"])


def test_what_is_said_of_the_differences():
    """The second model is compared with the first, and this with the authors' model without pretraining."""
    with (ROOT / "recipes" / "mafand" / "comparison.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["system"], row["against"]) for row in rows} == {("mafand_transfer", "mafand_multilingual")}
    sure = [row for row in rows if float(row["p_holm"]) < 0.05]
    better = {row["pair"] for row in sure if float(row["delta"]) > 0}
    average = sum(float(row["delta"]) for row in rows) / len(rows)
    counts = f"significantly worse on {len(sure) - len(better)} of 16 directions and better on {len(better)}"
    assert f"{average:+.1f} BLEU on average, {counts}" in TEXT
    assert better == {"pcm-en", "en-pcm", "en-yo"}
    bleu = scores("bleu")
    ahead = {
        pair
        for run, pair in bleu
        if run == COLUMNS[0] and float(bleu[run, pair]["score"]) > float(bleu[COLUMNS[3], pair]["score"])
    }
    assert ahead == {"lg-en", "en-lg", "en-pcm"}


def test_the_runs_are_those_that_the_page_commands():
    for run in ("multilingual", "transfer"):
        config = load_config([f"recipes=mafand/{run}", "train.precision=bf16"])
        assert config.train.max_tokens == 20e6
        assert (config.model.encoder_layers, config.model.decoder_layers, config.model.dim) == (3, 3, 128)


def test_no_candidate_of_the_search_beat_the_bilingual_models():
    config = load_config(["recipes=mafand/multilingual", "baselines=mafand_search", "pairs=[tn-en,tw-en]"])
    with (ROOT / "configs" / "baselines" / "mafand_search.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert config.baselines.search is not None
    candidates = [candidate.name for candidate in config.baselines.search.candidates]
    assert [(row["pair"], row["candidate"]) for row in rows] == [(p, c) for p in ("tw-en", "tn-en") for c in candidates]
    for pair in ("tw-en", "tn-en"):
        loss = {row["candidate"]: float(row["nats_per_character"]) for row in rows if row["pair"] == pair}
        assert min(loss, key=loss.__getitem__) == "as_is"
    weak = [float(scores("bleu")["mafand_bilingual", pair]["score"]) for pair in ("tw-en", "en-tw", "tn-en", "en-tn")]
    assert f"with BLEU {min(weak):.1f} to {max(weak):.1f}: a model" in TEXT
    tiers = load_config(["recipes=mafand/multilingual"]).baselines.tiers
    assert config.baselines.tiers == tiers
