"""Configuration of a corpus: where it is, which training rows are kept, what is held out."""

from dataclasses import dataclass, field


@dataclass(kw_only=True, frozen=True)
class LanguageRule:
    """A side is in another language than it should be: with at least this probability, and letters enough to judge."""

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
    """A row shares with any dev or test text, of any pair, a whole sentence or a run of so many words (0: sentences
    alone)."""

    shingle_words: int = 8

    def __post_init__(self) -> None:
        if self.shingle_words < 0:
            raise ValueError(f"corpus.rules.held_out.shingle_words={self.shingle_words} is negative; choose 0 or 8")


@dataclass(kw_only=True, frozen=True)
class NearDuplicateRule:
    """A row is like an earlier one: the estimated Jaccard similarity of their sets of shingles is at least threshold.

    num_hashes: of a signature; the estimate has a standard deviation of at most 0.5 / sqrt(num_hashes).
    shingle_words: words of a shingle, where two letters of a script without spaces count as a word.
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
    """Which training rows are removed; null or false switches a rule off. They apply in this order.

    max_chars: longest side. max_length_ratio: longer over shorter side, characters; Chinese against English is 3 to 5.
    identical: both sides are one text. min_letters: letters and combining marks over visible characters, either side.
    min_digit_overlap: digits 1 to 9 that both sides have, over those of the side with more. max_end_difference: of the
    numbers of sentence ends. min_script: letters in a script of the language over all letters. duplicates: a row like
    an earlier one in both sides.
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
    """Documents that become dev and test of languages that have none.

    dev, test: rows wanted, reached by whole documents; max_share: of the rows, most that dev and test may take each.
    block: rows that count as a document where the corpus does not say which it is.
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
    """path: directory of the files, absolute or relative to the root of the repository. manifest: what describes them,
    by default manifest.yaml beside them or, without one, their names. add: directories of further corpora, whose
    sources are trained on too; their dev and test sets are held out. keep_removed: write what the rules remove."""

    path: str
    manifest: str = ""
    add: list[str] = field(default_factory=list)
    split: SplitConfig = field(default_factory=SplitConfig)
    rules: Rules = field(default_factory=Rules)
    keep_removed: bool = False

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError(
                "corpus.path is empty; give the directory of the files: CORPUS=path/to/dir, or CORPUS_PATH=path/to/dir "
                "beside the name of a corpus (data/README.md)"
            )
