"""Configuration of a corpus: its directory, the rules that remove training rows, and the sets that are held out."""

from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline.corpus.learned_config import DualCleaning, ScoreFiles


@dataclass(kw_only=True, frozen=True)
class LanguageRule:
    """Remove a row if a side is in the wrong language.

    min_probability: least probability of other languages.
    min_letters: least number of letters of a side that is judged.
    """

    min_probability: float = 0.5
    min_letters: int = 10

    def __post_init__(self) -> None:
        if not 0.5 <= self.min_probability <= 1:
            raise ValueError(
                f"corpus.rules.language.min_probability={self.min_probability} is no confidence; choose 0.5 to 1"
            )
        if self.min_letters < 1:
            raise ValueError(f"corpus.rules.language.min_letters={self.min_letters} must be at least 1; 10 is usual")


@dataclass(kw_only=True, frozen=True)
class HeldOutRule:
    """Remove a row if it shares a sentence or a run of words with a dev or test text of any pair.

    shingle_words: words of such a run; 0 compares sentences alone.
    """

    shingle_words: int = 8

    def __post_init__(self) -> None:
        if self.shingle_words < 0:
            raise ValueError(f"corpus.rules.held_out.shingle_words={self.shingle_words} is negative; choose 0 or 8")


@dataclass(kw_only=True, frozen=True)
class NearDuplicateRule:
    """Remove a row if it is nearly the same as an earlier one.

    threshold: least Jaccard similarity of the two sets of shingles, as estimated.
    num_hashes: hashes of a signature. The estimate has a standard deviation of at most 0.5 / sqrt(num_hashes).
    shingle_words: words of a shingle. Two letters of a script without spaces count as a word.
    """

    threshold: float = 0.8
    num_hashes: int = 128
    shingle_words: int = 2

    def __post_init__(self) -> None:
        if not 0.5 <= self.threshold < 1:
            raise ValueError(
                f"corpus.rules.near_duplicates.threshold={self.threshold} must lie in [0.5, 1), such as 0.8"
            )
        if not 16 <= self.num_hashes <= 1024:
            raise ValueError(
                f"corpus.rules.near_duplicates.num_hashes={self.num_hashes} must lie in 16 to 1024; 128 is usual"
            )
        if self.shingle_words < 1:
            raise ValueError(
                f"corpus.rules.near_duplicates.shingle_words={self.shingle_words} must be at least 1; 2 is usual"
            )


@dataclass(kw_only=True, frozen=True)
class Rules:
    """Rules that remove training rows, in the order in which they apply. Null or false switches a rule off.

    max_chars: most characters of a side.
    max_length_ratio: most characters of the longer side for one of the shorter; Chinese to English has 3 to 5.
    identical: remove rows whose sides are the same text.
    min_letters: least share of letters and combining marks among the visible characters of a side.
    min_digit_overlap: least share of the digits 1 to 9 that both sides have, of those of the side with more.
    max_end_difference: greatest difference of the numbers of sentence ends of the sides.
    min_script: least share of letters in a script of the language, of all letters.
    held_out: remove rows that share text with a dev or test set.
    language: remove rows in the wrong language.
    duplicates: remove rows of which both sides repeat an earlier row.
    near_duplicates: remove rows that are nearly the same as an earlier one.
    """

    max_chars: int | None = 1000
    max_length_ratio: float | None = 6.0
    identical: bool | None = True
    min_letters: float | None = 0.25
    min_digit_overlap: float | None = 0.5
    max_end_difference: int | None = 3
    min_script: float | None = 0.5
    held_out: HeldOutRule | None = field(default_factory=HeldOutRule)
    language: LanguageRule | None = field(default_factory=LanguageRule)
    duplicates: bool | None = True
    near_duplicates: NearDuplicateRule | None = None

    def __post_init__(self) -> None:
        if self.max_chars is not None and self.max_chars < 1:
            raise ValueError(f"corpus.rules.max_chars={self.max_chars} keeps no row; choose 1000, say, or null")
        if self.max_length_ratio is not None and not self.max_length_ratio >= 1:
            raise ValueError(
                f"corpus.rules.max_length_ratio={self.max_length_ratio} is no ratio of longer to shorter side; "
                "choose 1 or more, such as 6, or null"
            )
        if self.max_end_difference is not None and self.max_end_difference < 0:
            raise ValueError(f"corpus.rules.max_end_difference={self.max_end_difference} is negative; choose 3 or null")
        for name in ("min_letters", "min_digit_overlap", "min_script"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"corpus.rules.{name}={value} is not a share; choose 0 to 1, or null")


@dataclass(kw_only=True, frozen=True)
class SplitConfig:
    """Dev and test sets that are split off the training rows, for pairs that have none.

    dev, test: about so many rows; whole documents are taken.
    max_share: most of the rows that each of the two may take, as a share.
    block: rows that count as a document, if the corpus has no names of documents.
    seed: decides which documents or blocks are split off.
    """

    dev: int = 200
    test: int = 300
    max_share: float = 0.1
    block: int = 20
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("dev", "test", "block"):
            if getattr(self, name) < 1:
                raise ValueError(f"corpus.split.{name}={getattr(self, name)} must be at least 1")
        if not 0 < self.max_share <= 0.4:
            raise ValueError(f"corpus.split.max_share={self.max_share} must lie in (0, 0.4], such as 0.1")
        if self.seed < 0:
            raise ValueError(f"corpus.split.seed={self.seed} is negative; choose 0 or more")


@dataclass(kw_only=True, frozen=True)
class CorpusConfig:
    """The configuration of a corpus.

    path: directory of the files, absolute or relative to the root of the repository.
    manifest: path of the manifest; by default manifest.yaml in the directory, or else the names of the files.
    add: directories of further corpora, for more training rows; their dev and test sets are held out.
    split: sizes of dev and test sets that are split off.
    rules: rules that remove training rows.
    learned: scores by which the worst rows are removed after the rules, or null.
    keep_removed: whether to write the rows that the rules and the scores remove.
    """

    path: str
    manifest: str = ""
    add: list[str] = field(default_factory=list)
    split: SplitConfig = field(default_factory=SplitConfig)
    rules: Rules = field(default_factory=Rules)
    learned: DualCleaning | ScoreFiles | None = None
    keep_removed: bool = False

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError(
                "corpus.path is empty; give the directory of the files: CORPUS=path/to/dir, or CORPUS_PATH=path/to/dir "
                "beside the name of a corpus (data/README.md)"
            )


def corpus_defaults() -> dict[str, Any]:
    """Return the settings from which every corpus starts, without a path, as plain values: `corpus=rules` in Hydra."""
    return {key: value for key, value in asdict(CorpusConfig(path=".")).items() if key != "path"}
