"""The benchmark of scoring: its run has the stated numbers of pairs and lines, which differ and are as long as news."""

from statistics import mean

import bench.decode.scoring as scoring
from eval.records.scores import load_scores
from eval.score.run import write_scores


def test_what_is_scored_has_the_size_that_is_asked_for(tmp_path):
    scoring.write_run(tmp_path, num_pairs=3, num_lines=400)
    write_scores(tmp_path, n_resamples=20)
    rows = load_scores(tmp_path / "scores.csv")
    assert len(rows) == 3 * 2 * 2  # pairs, systems, metrics
    assert len({row.pair for row in rows}) == 3
    for row in rows:
        assert row.n_test == 400
        assert "bs:20" in row.signature
    by_system = {system: [row.score for row in rows if row.system == system] for system in ("moe", "bilingual")}
    for moe, bilingual in zip(by_system["moe"], by_system["bilingual"], strict=True):
        assert 100 > moe > bilingual > 0  # they lose a fifth and three tenths of the words


def test_lines_are_distinct_and_as_long_as_news():
    texts = scoring._test_sentences()
    lines = scoring._lines(texts["en"], scoring.NUM_LINES)
    assert len(set(lines)) == len(lines) == scoring.NUM_LINES
    assert 120 < mean(map(len, lines)) < 180
