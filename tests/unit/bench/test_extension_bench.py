"""The table of two languages added to a model: scores and differences of the systems that translate each text."""

import csv
import statistics

import pytest

from bench.published import cells
from bench.published.quality import extension as published
from bench.quality import extension
from eval.records.scores import load_scores
from eval.score.run import write_scores
from tests.unit.eval.conftest import config_of, make_run  # noqa: F401 - a fixture

OLD, NEW = ("de-en", "fr-en"), ("el-en", "uk-en")
DAMAGE = {"known": 0.2, "extended": 0.25, "from_start": 0.5, "bilingual": 0.4}  # share of the words that are lost


@pytest.fixture
def runs(make_run, tmp_path):  # noqa: F811
    pairs = {"known": OLD, "extended": OLD + NEW, "from_start": OLD + NEW, "bilingual": NEW}
    for place, (name, damage) in enumerate(DAMAGE.items()):
        rates = {"moe": damage} | ({"bilingual": 0.6} if name == "bilingual" else {})
        run = make_run(
            pairs[name],
            rates,
            40,
            folder=f"runs/finetune_freesoft38_{name}",
            config={"score": {"resamples": 200}} | config_of(0, max_tokens=place),
            environment={"cpu": "Zen 4"},
        )
        write_scores(run, metrics=extension.METRICS, n_resamples=200)
    return tmp_path / "runs"


def test_every_system_has_its_own_texts_and_a_difference_from_the_extended_model(runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "extension-cpu.csv"
    monkeypatch.setattr("sys.argv", ["extension", str(runs), "--out", str(out)])
    assert extension.main() == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 11 + 2
    with out.open() as file:
        rows = {(row["text"], row["system"]): row for row in csv.DictReader(file)}
    assert list(rows) == [
        *((pair, system) for pair in NEW for system in ("extended", "from start", "new pairs", "bilingual")),
        *(("others", system) for system in ("before", "extended", "from start")),
    ]
    assert {text: row["pairs"] for (text, _), row in rows.items()} == {"el-en": "1", "uk-en": "1", "others": "2"}
    assert {(row["target_tokens"], row["run_commit"]) for row in rows.values()} == {("2000000", "0123456789")}
    for (text, system), row in rows.items():
        run, model = extension.SYSTEMS[system]
        pairs = OLD if text == "others" else [text]
        scores = load_scores(runs / run / "scores.csv")
        for metric in extension.METRICS:
            of_pairs = [s.score for s in scores if (s.system, s.metric) == (model, metric) and s.pair in pairs]
            score, low, high = (float(row[f"{metric}{bound}"]) for bound in ("", "_low", "_high"))
            assert score == pytest.approx(statistics.fmean(of_pairs), abs=1e-3)
            assert low < score < high
            deltas = [row[f"{metric}_delta{bound}"] for bound in ("_low", "", "_high")]
            if system == "extended":
                assert deltas == ["", "", ""]
            else:
                assert float(deltas[1]) == pytest.approx(score - float(rows[text, "extended"][metric]), abs=1e-3)
                assert [*map(float, deltas)] == sorted(map(float, deltas))
    assert float(rows["others", "before"]["bleu_delta_low"]) > 0 > float(rows["el-en", "new pairs"]["bleu_delta_high"])
    monkeypatch.setattr(cells, "RESULTS", tmp_path)
    lines = published().splitlines()[2:]
    assert [line.count("[") for line in lines] == [2, 4, 4, 4, 2, 4, 4, 4, 4, 2, 4]
    assert lines[0].startswith("| el-en, extended | 2 | ")
    assert lines[0].endswith("| extension-cpu:2 |")
    assert lines[-1].startswith("| mean of 2 others, from start | 2 | ")


def test_a_run_without_bilingual_models_or_missing_is_an_error(runs, make_run, monkeypatch, capsys):  # noqa: F811
    make_run(NEW, {"moe": 0.4}, 40, folder="runs/finetune_freesoft38_bilingual")
    write_scores(runs / "finetune_freesoft38_bilingual", metrics=extension.METRICS, n_resamples=200)
    monkeypatch.setattr("sys.argv", ["extension", str(runs)])
    assert extension.main() == 2
    assert "finetune_freesoft38_bilingual has no bilingual models" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["extension", str(runs / "nowhere")])
    assert extension.main() == 2
    assert "finetune_freesoft38_known" in capsys.readouterr().err
