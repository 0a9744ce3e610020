import pytest

from pipeline.corpus.config import CorpusConfig, HeldOutRule, LanguageRule, NearDuplicateRule, Rules, SplitConfig


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        (CorpusConfig, "path", "", "corpus.path is empty; give the directory"),
        (Rules, "max_chars", 0, "corpus.rules.max_chars=0 keeps no row; choose 1000, say"),
        (Rules, "max_length_ratio", 0.5, "corpus.rules.max_length_ratio=0.5 is no ratio .*; choose 1 or more"),
        (Rules, "max_length_ratio", float("nan"), "corpus.rules.max_length_ratio=nan"),
        (Rules, "max_end_difference", -1, "corpus.rules.max_end_difference=-1 is negative; choose 3 or null"),
        (Rules, "min_letters", 1.5, "corpus.rules.min_letters=1.5 is not a share; choose 0 to 1"),
        (Rules, "min_digit_overlap", -0.1, "corpus.rules.min_digit_overlap=-0.1 is not a share"),
        (Rules, "min_script", 2.0, "corpus.rules.min_script=2.0 is not a share"),
        (LanguageRule, "min_probability", 0.1, "corpus.rules.language.min_probability=0.1 is no confidence"),
        (LanguageRule, "min_letters", 0, "corpus.rules.language.min_letters=0 must be at least 1"),
        (HeldOutRule, "shingle_words", -1, "corpus.rules.held_out.shingle_words=-1 is negative"),
        (NearDuplicateRule, "threshold", 1.0, r"corpus.rules.near_duplicates.threshold=1.0 must lie in \[0.5, 1\)"),
        (NearDuplicateRule, "threshold", 0.3, r"near_duplicates\.threshold=0\.3 must lie in \[0\.5, 1\)"),
        (NearDuplicateRule, "num_hashes", 8, r"near_duplicates\.num_hashes=8 must lie in 16 to 1024"),
        (NearDuplicateRule, "shingle_words", 0, r"near_duplicates\.shingle_words=0 must be at least 1"),
        (SplitConfig, "test", 0, "corpus.split.test=0 must be at least 1"),
        (SplitConfig, "max_share", 0.9, r"corpus.split.max_share=0.9 must lie in \(0, 0.4\]"),
        (SplitConfig, "seed", -1, "corpus.split.seed=-1 is negative"),
    ],
)
def test_config_names_field_value_and_remedy(kind: type, field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**{field: value})
