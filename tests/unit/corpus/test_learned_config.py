"""The settings of learned cleaning: every mistake is an error before any work."""

import pytest

from pipeline.config import load_config
from pipeline.corpus.learned_config import DualCleaning, ScoreFiles

FILES = "kind: scores, files: {de-en: s.tsv}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{kind: laser}", r"corpus.learned.kind='laser' does not exist; .*dual"),
        ("{remove: 0.1}", r"must be a mapping with kind: one of dual, scores"),
        ("{kind: dual, remove: 1}", r"corpus.learned.remove=1.0 is no share of the rows; choose 0 to less than 1"),
        ("{kind: dual, remove_of: {de-en: -0.1}}", r"corpus.learned.remove_of.de-en=-0.1 is no share"),
        ("{kind: dual, remove_of: {german: 0.1}}", r"corpus.learned.remove_of: 'german' is no pair"),
        ("{kind: dual, min_score: 0.1}", r"corpus.learned.min_score does not exist with corpus.learned.kind=dual"),
        ("{kind: dual, dim: 130}", r"corpus.learned.dim=130 must be even and divisible by corpus.learned.heads=4"),
        ("{kind: dual, layers: 0}", r"corpus.learned.layers=0 must be at least 1"),
        ("{kind: dual, dropout: 1}", r"corpus.learned.dropout=1.0 must lie in"),
        ("{kind: dual, seed: -1}", r"corpus.learned.seed=-1 is negative"),
        ("{kind: dual, seed: 18446744073709551616}", r"corpus.learned.seed=18446744073709551616 is .* too large"),
        ("{kind: scores}", r"corpus.learned.files is empty; name the scores of a pair"),
        ("{kind: scores, files: {de-en: ''}}", r"corpus.learned.files.de-en is empty; give the path"),
        (f"{{{FILES}, column: 0}}", r"corpus.learned.column=0: columns are counted from 1"),
        (f"{{{FILES}, source_column: 1}}", r"give source_column and target_column together"),
        (f"{{{FILES}, source_column: 1, target_column: en}}", r"name all columns by the header line, or give all"),
        (f"{{{FILES}, source_column: 1, target_column: 2, source: web}}", r"corpus.learned.source=web has no effect"),
    ],
)
def test_a_mistake_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        load_config([f"corpus.learned={settings}"])


def test_nothing_is_learned_by_default_and_records_stay_as_they_were():
    config = load_config([])
    assert config.corpus.learned is None
    assert "learned" not in config.to_json()["corpus"]


def test_a_pair_may_have_a_share_of_its_own():
    learned = load_config(["corpus.learned={kind: dual, remove: 0.2, remove_of: {tr-en: 0}}"]).corpus.learned
    assert learned == DualCleaning(remove=0.2, remove_of={"tr-en": 0.0})
    assert (learned.share("de-en"), learned.share("tr-en")) == (0.2, 0.0)
    files = load_config([f"corpus.learned={{{FILES}, column: 4}}"])
    assert files.corpus.learned == ScoreFiles(files={"de-en": "s.tsv"}, column=4)
    assert files.to_json()["corpus"]["learned"]["kind"] == "scores"
