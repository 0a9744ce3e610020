import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result

from eval import number_format
from eval.records.run_record import load_translations
from eval.records.scores import load_scores, load_significance
from eval.report.sections.scores import scores_section
from eval.score.macro import macro_means
from eval.score.run import write_scores
from eval.score.seeds import seed_shares
from tests.unit.eval.conftest import MakeRun, config_of
from tests.unit.eval.report.sections.score_pages import RESAMPLES, Rows, scored_run, section_of

SIX = ["de-en", "fr-en", "es-en", "ru-en", "ja-en", "tr-en"]


def test_one_run_shows_its_own_files(make_run: MakeRun) -> None:
    _, run_dir = scored_run(make_run, "one", {"moe": 0.2, "bilingual": 0.4}, SIX, 100)
    section = section_of(run_dir, [("one", run_dir)])
    rows = Rows(section).rows
    tables = [rows[start : start + 11] for start in (0, 11)]  # a head, six pairs and four means
    scores = {(row.pair, row.system, row.metric): row for row in load_scores(run_dir / "scores.csv")}
    gains = {(row.pair, row.metric): row for row in load_significance(run_dir / "significance.csv")}
    signed = number_format.signed
    stars = 0
    for metric, (head, *lines) in zip(("bleu", "chrf"), tables, strict=True):
        assert head[3] == {"bleu": "BLEU one", "chrf": "chrF one"}[metric]
        cells_of = {line[0]: line for line in lines}
        for pair in SIX:
            cells = [f"{scores[pair, 'moe', metric].train_pairs:,}", "100"]
            for name in ("moe", "bilingual"):
                row = scores[pair, name, metric]
                cells += [f"{row.score:.1f}", f"[{row.ci_low:.1f}, {row.ci_high:.1f}]"]
            gain = gains[pair, metric]
            star = "*" if gain.verdict and section["tables"][0].metric_gains[metric][pair].p_holm <= 0.05 else ""
            stars += bool(gain.verdict)
            cells += [signed(gain.delta) + star, f"[{signed(gain.ci_low)}, {signed(gain.ci_high)}]"]
            cells += [number_format.p_value(gain.p_value, RESAMPLES)]
            assert cells_of[pair][1:10] == cells
        for mean in macro_means([row for row in scores.values() if row.metric == metric]):
            column = {"moe": 3, "bilingual": 5}[mean.system]
            assert cells_of[f"mean, {mean.resource} ({len(mean.pairs)})"][column] == f"{mean.score:.1f}"
    tallies = [row for row in rows if row[1:2] == ["bilingual"]]
    assert [row[:4] for row in tallies] == [["one", "bilingual", "BLEU", "6"], ["one", "bilingual", "chrF", "6"]]
    assert sum(int(row[8]) + int(row[10]) for row in tallies) == stars > 0
    assert not (run_dir / "comparison.csv").exists()


def test_the_interval_of_a_mean_gain_is_that_of_joint_resamples(make_run: MakeRun) -> None:
    """The mean of three pairs with equal texts and translations is as uncertain as one pair alone.

    With different texts it is more certain.
    """
    pairs = ["de-en", "fr-en", "es-en"]
    widths = {}
    for folder in ("apart", "shared"):
        run_dir = make_run(pairs, {"moe": 0.2, "bilingual": 0.4}, 40, folder)
        if folder == "shared":
            for system in ("moe", "bilingual"):
                first = run_dir / "translations" / system / "de-en.jsonl"
                for pair in pairs[1:]:
                    first.with_stem(pair).write_bytes(first.read_bytes())
        write_scores(run_dir, metrics=["bleu"], n_resamples=RESAMPLES)
        section = section_of(run_dir, [(folder, run_dir)])
        (table,) = section["tables"]
        low, high = table.mean_gain_interval(pairs)
        assert low < table.mean_gain(pairs) < high
        one_low, one_high = table.mean_gain_interval(["de-en"])
        widths[folder] = (high - low) / (one_high - one_low)
        interval = f"[{number_format.signed(low)}, {number_format.signed(high)}]"
        assert interval in {row[0]: row for row in Rows(section).rows}["mean, all (3)"]
    assert widths["shared"] == pytest.approx(1)
    assert widths["apart"] < 0.8  # 1 / sqrt(3), where pairs are equally uncertain


def test_without_baselines_there_are_scores_alone(make_run: MakeRun) -> None:
    _, run_dir = scored_run(make_run, "one", {"moe": 0.2}, ["de-en", "fr-en"])
    page = Rows(section_of(run_dir, [("one", run_dir)]))
    heads = [["Pair", "Training pairs", "Test lines", f"{title} one"] for title in ("BLEU", "chrF")]
    heads[0].append("Faults")
    assert page.rows[::4] == heads
    assert (
        [row[0] for row in page.rows[1:4]] == [row[0] for row in page.rows[5:]] == ["de-en", "fr-en", "mean, all (2)"]
    )
    assert "Better and worse" not in page.text


@pytest.fixture
def experiment(make_run: MakeRun) -> list[tuple[str, Path]]:
    """Two seeds of a mixture of experts, and a dense system that is not the first."""
    pairs = ["de-en", "fr-en"]
    return [
        scored_run(make_run, "moe_s1", {"moe": 0.1, "bilingual": 0.4}, pairs, config=config_of(8)),
        scored_run(make_run, "moe_s2", {"moe": 0.2, "bilingual": 0.4}, pairs, config=config_of(8, 2)),
        scored_run(make_run, "dense", {"moe": 0.3, "bilingual": 0.4}, pairs, config=config_of(0)),
    ]


def _lines(run_dir: Path, name: str, pair: str) -> list[str]:
    return [line.hypothesis for line in load_translations(run_dir, name, pair)]


def test_seeds_are_drawn_with_the_sentences_of_one_test_set(experiment: list[tuple[str, Path]], tmp_path: Path) -> None:
    """The interval is that of sacreBLEU's corpus_score of every resample; of 40, one is cut off at either end.

    Of two seeds, each resample has one.
    """
    section = section_of(tmp_path, experiment)
    moe, dense = section["tables"]
    assert (moe.scores.label, moe.scores.num_seeds, section["reference"]) == ("moe", 2, "dense")
    one, two, other = (_lines(run_dir, "moe", "de-en") for _, run_dir in experiment)
    references = [line.reference for line in load_translations(experiment[0][1], "moe", "de-en")]
    draws = np.random.default_rng(12345).choice(len(one), size=(RESAMPLES, len(one)))

    def corpus(lines: list[str], places: Any) -> float:
        return float(BLEU().corpus_score([lines[k] for k in places], [[references[k] for k in places]]).score)

    everything = range(len(one))
    drawn = [one if share else two for share, _ in seed_shares(2, RESAMPLES, "seeds 1 2")]
    assert drawn.count(one) in range(1, RESAMPLES)
    means = sorted(corpus(lines, draw) for lines, draw in zip(drawn, draws, strict=True))
    score = moe.scores.score("de-en", "bleu")
    assert score.score == pytest.approx((corpus(one, everything) + corpus(two, everything)) / 2, abs=1e-4)
    assert score.spread == pytest.approx(abs(corpus(one, everything) - corpus(two, everything)) / 2, abs=1e-4)
    assert score.interval == pytest.approx((means[1], means[-2]))
    chrf = moe.scores.score("de-en", "chrf")
    assert len(chrf.seeds) == 2
    assert chrf.interval[0] < chrf.score < chrf.interval[1]
    assert moe.metric_gains["chrf"]["de-en"].delta == pytest.approx(
        chrf.score - moe.scores.score("de-en", "chrf", "bilingual").score,
        abs=2e-4,  # scores.csv keeps four decimals
    )
    gaps = sorted(corpus(lines, draw) - corpus(other, draw) for lines, draw in zip(drawn, draws, strict=True))
    against = moe.against["de-en"]
    assert (against.ci_low, against.ci_high) == pytest.approx((gaps[1], gaps[-2]))
    assert against.delta == pytest.approx(score.score - corpus(other, everything), abs=1e-4)
    assert dense.against == {}


def test_two_systems_have_sacrebleus_p_value_and_a_row_in_the_file(
    experiment: list[tuple[str, Path]], tmp_path: Path
) -> None:
    runs = [experiment[2], experiment[0]]
    section_of(tmp_path, runs)
    with (tmp_path / "comparison.csv").open(encoding="utf-8") as file:
        rows = {(row["pair"], row["system"], row["against"]): row for row in csv.DictReader(file)}
    assert list(rows) == [
        *[(pair, "dense", "bilingual") for pair in ("de-en", "fr-en")],
        *[(pair, "moe_s1", "bilingual") for pair in ("de-en", "fr-en")],
        *[(pair, "moe_s1", "dense") for pair in ("de-en", "fr-en")],
    ]
    for pair in ("de-en", "fr-en"):
        references = [line.reference for line in load_translations(runs[0][1], "moe", pair)]
        named = [(label, _lines(run_dir, "moe", pair)) for label, run_dir in runs]
        _, columns = PairedTest(named, {"BLEU": BLEU(references=[references])}, None, "bs", RESAMPLES)()
        result = columns["BLEU"][1]
        assert isinstance(result, Result)
        assert result.p_value is not None
        row = rows[pair, "moe_s1", "dense"]
        assert float(row["p"]) == pytest.approx(result.p_value, abs=1e-6)
        assert float(row["ci_low"]) < float(row["delta"]) < float(row["ci_high"])
    gain = {row.pair: row for row in load_significance(runs[0][1] / "significance.csv") if row.metric == "bleu"}
    assert rows["fr-en", "dense", "bilingual"]["delta"] == f"{gain['fr-en'].delta:.4f}"


def test_the_overview_has_systems_as_groups_of_columns_and_each_in_full_below(
    experiment: list[tuple[str, Path]], tmp_path: Path
) -> None:
    page = Rows(section_of(tmp_path, experiment))
    assert page.rows[0] == ["Pair", "Training pairs", "Test lines", "BLEU bilingual", "moe, 2 seeds", "dense"]
    assert page.rows[1] == ["BLEU", "Δ"] * 2
    assert [row[0] for row in page.rows[2:5]] == ["de-en", "fr-en", "mean, all (2)"]
    assert all("±" in row[4] and "±" not in row[6] for row in page.rows[2:5])
    tallies = [row[:4] for row in page.rows if row[1:2] in (["bilingual"], ["dense"])]
    assert tallies == [
        ["moe, 2 seeds", "bilingual", "BLEU", "2"],
        ["moe, 2 seeds", "bilingual", "chrF", "2"],
        ["moe, 2 seeds", "dense", "BLEU", "2"],
        ["dense", "bilingual", "BLEU", "2"],
        ["dense", "bilingual", "chrF", "2"],
    ]
    assert page.text.count("<details>") == 2
    assert page.text.count("ΔBLEU over<br>dense") == 1


def test_what_cannot_be_compared_is_said(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [
        scored_run(make_run, "dense", {"moe": 0.3}, ["de-en", "fr-en", "es-en", "ru-en"], config=config_of(0)),
        scored_run(make_run, "moe", {"moe": 0.2}, ["de-en", "fr-en", "es-en", "tr-en"], config=config_of(8)),
    ]
    folder = runs[1][1] / "translations" / "moe"
    for pair, old, new in (("fr-en", "source 3", "other 3"), ("es-en", ".", "!")):
        path = folder / f"{pair}.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        key = "source" if pair == "fr-en" else "reference"
        changed = [line | {key: line[key].replace(old, new)} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in changed), encoding="utf-8")
    section = section_of(tmp_path, runs)
    assert list(section["tables"][1].against) == ["de-en"]
    assert sorted(section["left_out"]) == [
        ("moe", "different sources of the same references", ["fr-en"]),
        ("moe", "different test sets", ["es-en"]),
        ("moe", "not translated by both", ["ru-en", "tr-en"]),
    ]
    page = Rows(section)
    assert "Not compared with dense: moe on es-en (different test sets)." in page.text
    # Without baselines, Δ is over the reference.
    assert page.rows[0][3:] == ["dense", "moe"]
    assert page.rows[1] == ["BLEU", "BLEU", "Δ"]
    overview = {row[0]: row[3:] for row in page.rows[2:7]}
    assert overview["de-en"][2].rstrip("*") == number_format.signed(section["tables"][1].against["de-en"].delta)
    assert (overview["tr-en"][0], overview["tr-en"][2]) == (number_format.MISSING, number_format.MISSING)


def test_seeds_with_different_test_sets_are_an_error(experiment: list[tuple[str, Path]], tmp_path: Path) -> None:
    path = experiment[1][1] / "translations" / "moe" / "de-en.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace("source 1", "other 1"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"'de-en'.*moe_s1, moe_s2 are of different test sets"):
        section_of(tmp_path, experiment)


def test_too_few_resamples_for_the_number_of_pairs_are_said(make_run: MakeRun, tmp_path: Path) -> None:
    _, run_dir = scored_run(make_run, "one", {"moe": 0.2, "bilingual": 0.4}, ["de-en", "fr-en"])
    assert section_of(tmp_path, [("one", run_dir)])["too_few_resamples"] is None  # 2 / 41 is below 0.05
    _, run_dir = scored_run(make_run, "three", {"moe": 0.2, "bilingual": 0.4}, ["de-en", "fr-en", "es-en"])
    assert section_of(tmp_path, [("three", run_dir)])["too_few_resamples"] == RESAMPLES


def test_nothing_to_report_and_a_missing_score_are_errors(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"systems=\[\] leaves nothing"):
        scores_section(tmp_path, [])
    run_dir = make_run(["de-en"], num_lines=5)
    write_scores(run_dir, metrics=["chrf"], n_resamples=10)
    with pytest.raises(ValueError, match=r"scores\.csv has no bleu of 'moe' for pair='de-en'"):
        section_of(tmp_path, [("one", run_dir)])


def test_a_pair_without_any_score_is_an_error(make_run: MakeRun, tmp_path: Path) -> None:
    experiment = [scored_run(make_run, label, {}, ["de-en", "fr-en"]) for label in ("one", "two")]
    path = experiment[1][1] / "scores.csv"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "fr-en" not in line), encoding="utf-8")
    with pytest.raises(ValueError, match=r"two/.*scores\.csv has no bleu of 'moe' for pair='fr-en'"):
        section_of(tmp_path, experiment)


def test_seeds_gain_over_their_own_baselines_and_different_baselines_are_a_span(
    make_run: MakeRun, tmp_path: Path
) -> None:
    runs = [
        scored_run(make_run, "moe_s1", {"moe": 0.1, "bilingual": 0.4}, ["de-en"], config=config_of(8)),
        scored_run(make_run, "moe_s2", {"moe": 0.2, "bilingual": 0.5}, ["de-en"], config=config_of(8, 2)),
        scored_run(make_run, "dense", {"moe": 0.3, "bilingual": 0.45}, ["de-en"], config=config_of(0)),
    ]
    section = section_of(tmp_path, runs)
    gains = [load_significance(run_dir / "significance.csv")[0].delta for _, run_dir in runs]
    assert section["tables"][0].gains["de-en"].delta == pytest.approx((gains[0] + gains[1]) / 2, abs=1e-4)
    scores = [load_scores(run_dir / "scores.csv") for _, run_dir in runs]
    baselines = [row.score for rows in scores for row in rows if (row.system, row.metric) == ("bilingual", "bleu")]
    low, high = sorted([(baselines[0] + baselines[1]) / 2, baselines[2]])
    assert Rows(section).rows[2][3] == f"{low:.1f}–{high:.1f}"
    assert section["classes"][0].baseline is None


def test_signatures_name_the_systems_where_they_do_not_hold_for_all(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [
        scored_run(make_run, "dense", {"moe": 0.3}, ["de-en", "en-ja"], config=config_of(0)),
        scored_run(make_run, "moe", {"moe": 0.2}, ["de-en", "en-ja"], config=config_of(8)),
    ]
    path = runs[1][1] / "scores.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("|nc:6", "|nc:5"), encoding="utf-8")
    rows = {(metric, pairs) for metric, _, pairs in section_of(tmp_path, runs)["signatures"]}
    assert rows == {
        ("BLEU", "de-en"),
        ("BLEU", "en-ja"),
        ("chrF", "all pairs of dense"),
        ("chrF", "all pairs of moe"),
    }
