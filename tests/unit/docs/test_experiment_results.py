"""recipes/freesoft38/results: the archives give the scores of docs/experiment.md, and test sets can be made again."""

import re
import subprocess
from statistics import fmean

import pytest
import sacrebleu

from bench.experiment.__main__ import ARCHIVES
from bench.experiment.archive import restore
from eval.records.run_record import load_run, load_translations
from eval.records.scores import BASELINE, SYSTEM
from tests.experiment_tables import rows_of, words_of

TEXT = words_of("experiment")
METRICS = {"bleu": sacrebleu.BLEU(), "chrf++": sacrebleu.CHRF(word_order=2)}
SYSTEMS = {row["system"]: row for table in ("systems", "release") for row in rows_of(table)}


def system_of(run):
    return re.sub(r"_s\d+$", "", run.name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return restore(ARCHIVES, tmp_path_factory.mktemp("restored"), incomplete=True)


def test_every_model_that_the_table_counts_is_kept(runs):
    seeds = [system_of(run) for run in runs]
    assert {name: seeds.count(name) for name in seeds} == {
        name: int(row["num_seeds"]) for name, row in SYSTEMS.items() if name != "bilingual"
    }


def test_the_translations_have_the_scores_of_the_table(runs):
    scores = {}
    for run in runs:
        pairs = load_run(run).pairs
        for name, metric in METRICS.items():
            of_pairs = []
            for pair in pairs:
                lines = load_translations(run, SYSTEM, pair)
                references = [[line.reference for line in lines]]
                of_pairs.append(metric.corpus_score([line.hypothesis for line in lines], references).score)
            scores.setdefault((system_of(run), name), []).append(fmean(of_pairs))
    for (system, name), of_seeds in scores.items():
        assert fmean(of_seeds) == pytest.approx(float(SYSTEMS[system][name]), rel=1e-3)


def test_the_zero_line_is_that_of_the_text(runs):
    dense = [run for run in runs if run.name.startswith("dense_s")]
    record = load_run(dense[0])
    scores = {}
    for pair in record.translated[BASELINE]:
        for system in (SYSTEM, BASELINE):
            of_seeds = []
            for run in dense:
                lines = load_translations(run, system, pair)
                hypotheses, references = [line.hypothesis for line in lines], [[line.reference for line in lines]]
                of_seeds.append(METRICS["bleu"].corpus_score(hypotheses, references).score)
            scores[pair, system] = fmean(of_seeds)
    assert f'"pairs=[{",".join(record.translated[BASELINE])}]"' in TEXT
    gains = {pair: scores[pair, SYSTEM] - scores[pair, BASELINE] for pair in record.translated[BASELINE]}
    table = {row["pair"]: float(row["gain"]) for row in rows_of("gains") if row["system"] == "dense"}
    assert table == pytest.approx(gains, abs=0.01)
    poor = {pair: gain for pair, gain in gains.items() if record.train_pairs[pair] < 5000}
    sizes = [record.train_pairs[pair] for pair in poor]
    assert (len(gains), len(poor)) == (8, 6)
    span = f"{min(poor.values()):.1f} to {max(poor.values()):.1f} BLEU"
    assert f"the six with {min(sizes)} to {max(sizes):,} training pairs do, by {span} (`dense`)" in TEXT
    lost = [f"{-gains[pair]:.0f}" for pair in ("km-en", "ca-en")]
    assert f"The two with 10,355 and 32,994 lose {lost[0]} and {lost[1]} BLEU" in TEXT
    sentence = (
        f"With {min(sizes)} to {max(sizes):,} training pairs `dense` gains {span}; with 10,355 and 32,994 it loses"
    )
    assert f"{sentence} {lost[0]} and {lost[1]}." in TEXT
    levels = [scores[pair, SYSTEM] for pair in poor]
    assert f"A model with {min(levels):.0f} to {max(levels):.0f} BLEU is of no use" in TEXT


def test_the_command_makes_every_fourth_line_of_each_language(tmp_path):
    text = (ARCHIVES / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    clone = tmp_path / "path/to/NTREX/NTREX-128"
    clone.mkdir(parents=True)
    for name in ("src.eng", "ref.deu", "ref.fra"):
        lines = "".join(f"{name} {number}\n" for number in range(1, 12))
        (clone / f"newstest2019-{name}.txt").write_text(lines, encoding="utf-8")
    subprocess.run(["bash", "-euc", block], cwd=tmp_path, check=True)
    rows = (tmp_path / "corpora/ntrex4/test.tsv").read_text(encoding="utf-8").splitlines()
    expected = [f"src.eng {n}\tref.deu {n}\tref.fra {n}" for n in (1, 5, 9)]
    assert rows == ["en\tde\tfr", *expected]
