"""Learned cleaning by small models, from text to the page on the data: real trainings, of tiny models."""

import csv
import gzip

import numpy as np
import pytest

from pipeline.config import load_config
from pipeline.corpus.funnel import funnel
from pipeline.dag.run import data_run
from tests.corpora import bitext_rows, write_german

TINY = "dim: 16, ffn_dim: 16, heads: 2, layers: 1, vocab_size: 400, max_tokens: 2000"
ROWS = 240


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_german(tmp_path_factory.mktemp("corpus"), ROWS)


def config_of(root, corpus, learned, name):
    words = [f"corpus={corpus}", "corpus.keep_removed=true", "runtime.parallel_baselines=1", f"name={name}"]
    words += [f"runtime.{name}={root / name}" for name in ("artifacts", "runs")]
    return load_config(["recipes=smoke", *words, f"corpus.learned={learned}"])


def artifacts(root, stage):
    return sorted(path for path in (root / "artifacts" / stage).iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def dual(tmp_path_factory, corpus):
    """The directory of what the stages before training left, with two small models for each half."""
    root = tmp_path_factory.mktemp("dual")
    data_run(config_of(root, corpus, f"{{kind: dual, remove: 0.25, {TINY}}}", "r"))
    return root


def test_small_models_score_all_rows_and_the_worst_go(dual):
    (cleaned,), (selected,) = artifacts(dual, "clean"), artifacts(dual, "select")
    before, after = bitext_rows(cleaned, "train"), bitext_rows(selected, "train")
    removed = len(before) // 4
    assert len(after) == len(before) - removed
    with gzip.open(selected / "scores.tsv.gz", "rt", encoding="utf-8") as file:
        table = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert [(row["source"], row["target"]) for row in table] == before
    scores, dual_scores, halves = (np.array([float(row[name]) for row in table]) for name in ("score", "dual", "half"))
    forward, backward = (np.array([float(row[name]) for row in table]) for name in ("forward", "backward"))
    np.testing.assert_allclose(dual_scores, np.exp(-(abs(forward - backward) + (forward + backward) / 2)), rtol=1e-4)
    assert 2 < forward.mean() < 7, "nats a token, of models that have hardly learned, over 400 pieces"
    kept = np.array([row["removed"] == "0" for row in table])
    assert scores[kept].min() >= scores[~kept].max()
    for half in (1, 2):  # other models score the rows of the other half
        of_half = halves == half
        assert dual_scores[kept & of_half].min() >= dual_scores[~kept & of_half].max()
        assert (~kept & of_half).sum() == pytest.approx(of_half.sum() / 4, abs=1)
    worst = sorted(table, key=lambda row: float(row["score"]))[0]
    record = funnel(selected)
    assert record["train"]["removed"]["dual_cross_entropy"] == removed
    assert record["examples"]["dual_cross_entropy"][0] == [worst["source"], worst["target"]]
    assert (len(artifacts(dual, "train")), len(artifacts(dual, "cross_entropy"))) == (4, 4)


def test_the_rest_of_the_run_sees_the_rows_that_are_left(dual):
    with (dual / "runs" / "r" / "funnel.csv").open(encoding="utf-8") as file:
        train = next(row for row in csv.DictReader(file) if row["split"] == "train")
    (selected,) = artifacts(dual, "select")
    assert train["kept"] == str(len(bitext_rows(selected, "train")))
    assert int(train["dual_cross_entropy"]) > 20
    assert "Two small models, one a direction" in (dual / "runs" / "r" / "data.html").read_text(encoding="utf-8")
    with gzip.open(selected / "removed.tsv.gz", "rt", encoding="utf-8") as file:
        assert sum(line.startswith("dual_cross_entropy\t") for line in file) == int(train["dual_cross_entropy"])


def test_another_share_trains_nothing_again(dual, corpus):
    data_run(config_of(dual, corpus, f"{{kind: dual, remove: 0.5, {TINY}}}", "again"))
    assert (len(artifacts(dual, "train")), len(artifacts(dual, "cross_entropy"))) == (4, 4)
    assert sorted(funnel(path)["train"]["kept"] for path in artifacts(dual, "select"))[0] < ROWS // 2
