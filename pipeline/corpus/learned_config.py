"""Configuration of learned cleaning: rows are sorted by a score after the rules, and the worst share is removed."""

from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.corpus.languages import check_pair_form

DUAL, LOW_SCORE = "dual_cross_entropy", "low_score"  # names by which the funnel counts the removed rows
SCORE_COUNTS = "scores.json"  # of an artifact of `scores`: numbers of lines, of rows, and of rows with a score


@dataclass(kw_only=True, frozen=True)
class Limits:
    """The rows of a pair that are removed.

    share: share of the rows with a score, rounded down, those with the lowest scores.
    min_score: rows with a lower score are removed too.
    """

    share: float
    min_score: float | None = None


@dataclass(kw_only=True, frozen=True)
class DualCleaning:
    """Dual conditional cross-entropy (arXiv:1809.00197): scores by two small models, one for each direction of a pair.

    kind: two small models of our own score the rows.
    remove: share of the rows of each pair that is removed, those with the lowest scores.
    remove_of: shares of single pairs in place of remove, as {de-en: 0.2}; 0 leaves a pair as it is.
    trusted: names of sources. Their rows alone train the small models; empty takes the rows of all sources.
    rows: most rows that train a model.
    max_tokens: target tokens of the training of a model.
    vocab_size: pieces of each vocabulary of a model.
    dim: size of a model.
    ffn_dim: hidden size of its feed-forward networks.
    heads: its attention heads.
    layers: layers of its encoder, and of its decoder.
    dropout: probability of dropping an activation in its training.
    seed: decides which rows train which model, and the training itself.
    """

    kind: Literal["dual"] = "dual"
    remove: float = 0.1
    remove_of: dict[str, float] = field(default_factory=dict)
    trusted: list[str] = field(default_factory=list)
    rows: int = 200_000
    max_tokens: int = 1_200_000
    vocab_size: int = 4000
    dim: int = 128
    ffn_dim: int = 512
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1
    seed: int = 1

    def __post_init__(self) -> None:
        _check_shares(self.remove, self.remove_of)
        for name in ("rows", "max_tokens", "vocab_size", "dim", "ffn_dim", "heads", "layers"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"corpus.learned.{name}={value} must be at least 1; leave it out for the default")
        if self.dim % 2 or self.dim % self.heads:
            raise ValueError(
                f"corpus.learned.dim={self.dim} must be even and divisible by corpus.learned.heads={self.heads}; "
                "128 and 4 are usual"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"corpus.learned.dropout={self.dropout} must lie in [0, 1), such as 0.1")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"corpus.learned.seed={self.seed} is negative or too large; choose 0 to {2**32 - 1}")

    def share(self, pair: str) -> float:
        """Return the share of the rows of a pair that is removed."""
        return self.remove_of.get(pair, self.remove)


@dataclass(kw_only=True, frozen=True)
class ScoreFiles:
    """Scores that others computed, as of Bicleaner AI or of sentence embeddings; a higher one is better.

    kind: files have the scores.
    files: path of the scores of each pair, as {de-en: scores.tsv}. A pair without a file is left as it is.
    remove: as of kind dual, of the rows that have a score.
    remove_of: as of kind dual.
    min_score: rows with a lower score are removed too; null for no such limit.
    column: column of the score between tabs, as a number from 1 or the name in the header line; by default the last.
    source_column: column of the source text, as column. With it, a line belongs to the row with its texts. Without it,
        line N belongs to row N of the source.
    target_column: column of the target text, as column.
    source: name of the source whose rows the lines are; needed where a pair has several and lines have no texts. A pair
        with one source needs no name.
    """

    kind: Literal["scores"] = "scores"
    files: dict[str, str] = field(default_factory=dict)
    remove: float = 0.1
    remove_of: dict[str, float] = field(default_factory=dict)
    min_score: float | None = None
    column: str | int = ""
    source_column: str | int = ""
    target_column: str | int = ""
    source: str = ""

    def __post_init__(self) -> None:
        _check_shares(self.remove, self.remove_of)
        if not self.files:
            raise ValueError("corpus.learned.files is empty; name the scores of a pair, as {de-en: scores.tsv}")
        for pair, path in self.files.items():
            _check_pair("files", pair)
            if not path:
                raise ValueError(f"corpus.learned.files.{pair} is empty; give the path of the scores")
        for name, column in self.columns.items():
            if isinstance(column, int) and column < 1:
                raise ValueError(f"corpus.learned.{name}={column}: columns are counted from 1")
        if (self.source_column == "") != (self.target_column == ""):
            raise ValueError(
                "corpus.learned: give source_column and target_column together, or none of them, if line N belongs to "
                "row N of the source"
            )
        if self.has_texts and self.source:
            raise ValueError(
                f"corpus.learned.source={self.source} has no effect where lines have texts; leave out source, or "
                "source_column and target_column"
            )
        kinds = {type(column) for column in self.columns.values() if column != ""}
        if len(kinds) > 1:
            raise ValueError(
                "corpus.learned: name all columns by the header line, or give all of them as numbers from 1, not a "
                "mixture"
            )

    @property
    def columns(self) -> dict[str, str | int]:
        """The columns by the name of their setting."""
        return {name: getattr(self, name) for name in ("column", "source_column", "target_column")}

    @property
    def has_texts(self) -> bool:
        """True if each line has the texts of its row."""
        return self.source_column != ""

    def share(self, pair: str) -> float:
        """Return the share of the rows of a pair that is removed."""
        return self.remove_of.get(pair, self.remove)

    def to_key(self) -> dict[str, Any]:
        """Return the settings that decide how a file is read."""
        return {**self.columns, "source": self.source}


def _check_shares(remove: float, remove_of: dict[str, float]) -> None:
    for pair in remove_of:
        _check_pair("remove_of", pair)
    for name, share in {"remove": remove, **{f"remove_of.{pair}": share for pair, share in remove_of.items()}}.items():
        if not 0 <= share < 1:
            raise ValueError(f"corpus.learned.{name}={share} is no share of the rows; choose 0 to less than 1, as 0.1")


def _check_pair(setting: str, pair: str) -> None:
    try:
        check_pair_form(pair)
    except ValueError as error:
        raise ValueError(f"corpus.learned.{setting}: {error}") from error
