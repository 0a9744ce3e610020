"""Configuration of the corpus and of its cleaning."""

from dataclasses import dataclass


@dataclass(kw_only=True, frozen=True)
class CorpusConfig:
    """Where the corpus is and which training rows are kept.

    The default thresholds remove less than 0.5 % of any pair of the embedded sample (held by test_clean.py).
    """

    path: str  # directory, absolute or relative to the root of the repository
    max_chars: int = 1000  # longest side of a row, characters
    max_length_ratio: float = 6.0  # longer over shorter side, characters; Chinese against English is 3 to 5
    min_letters: float = 0.25  # letters and combining marks over visible characters, on either side
    decontaminate: bool = True  # drop training rows that share a sentence with dev or test

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("corpus.path is empty; give the directory of a corpus, such as data/sample")
        if self.max_chars < 1:
            raise ValueError(f"corpus.max_chars={self.max_chars} keeps no row; choose 1000, say")
        if not self.max_length_ratio >= 1:
            raise ValueError(
                f"corpus.max_length_ratio={self.max_length_ratio} is no ratio of longer to shorter side; "
                "choose 1 or more, such as 6"
            )
        if not 0 <= self.min_letters <= 1:
            raise ValueError(f"corpus.min_letters={self.min_letters} is not a share; choose 0 to 1, such as 0.25")
