"""Configuration of the vocabularies."""

from dataclasses import dataclass

from pipeline.earlier_runs import CHANGES

OF_A_RUN = ("from_run", *CHANGES)  # settings of the use of a finished run's vocabulary


@dataclass(kw_only=True, frozen=True)
class VocabConfig:
    """Sizes of the SentencePiece models, and the text on which they are trained.

    from_run: name of a finished run, or its directory, whose vocabulary is used; empty trains a new one. Its settings
        then take the place of the others, but for `extend`, `extend_size` and `trim`. With `extend` those of the sample
        can be overridden.
    extend: languages that are new to the vocabulary of `from_run`, each with the language from whose tag its own tag
        starts, or with null for a language without a tag, which is a source alone. In an imported vocabulary, whose
        sources have tags too, null starts a tag from the mean of all tags. The text of the languages gives more pieces.
    extend_size: most pieces that `extend` adds to a model; 0 adds tags alone.
    trim: leave out the pieces of `from_run` that neither training nor development text of this run uses.
    shared: one model for both sides; the two sizes must then be equal.
    source_size, target_size: pieces of a model, special symbols and tags included.
    sample_lines: most rows of the training text, of all pairs together.
    sample_chars: most characters of the training text. Training needs 20 to 45 bytes of memory for each.
    temperature: a pair of n rows gets a share of the sample in proportion to n ** (1 / temperature).
    character_coverage: share of characters that become pieces; the others are spelled in bytes, or stay unknown in an
        imported vocabulary.
    seed: decides which rows the models are trained on.
    """

    shared: bool
    source_size: int
    target_size: int
    sample_lines: int = 200_000
    sample_chars: int = 24_000_000
    temperature: float = 2.0
    character_coverage: float = 0.9995
    seed: int = 1
    from_run: str = ""
    extend: dict[str, str | None] | None = None
    extend_size: int = 2000
    trim: bool = False

    def __post_init__(self) -> None:
        for name in ("source_size", "target_size", "sample_lines", "sample_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"vocab.{name}={getattr(self, name)} is not positive; choose 1000 or more")
        if self.shared and self.source_size != self.target_size:
            raise ValueError(
                f"vocab.shared=true with source_size={self.source_size} and target_size={self.target_size}: "
                "one model has one size; set both to it, or vocab.shared=false"
            )
        if not self.temperature >= 1:
            raise ValueError(
                f"vocab.temperature={self.temperature} would favour large pairs; choose 1 (proportional) or more"
            )
        if not 0.9 <= self.character_coverage <= 1:
            raise ValueError(
                f"vocab.character_coverage={self.character_coverage} is out of range; choose 0.9 to 1, such as 0.9995"
            )
        if self.extend is not None and not self.extend:
            raise ValueError("vocab.extend={} names no language; name one, as vocab.extend={pt: es}, or leave it out")
        for name in ("extend", "trim"):
            if getattr(self, name) and not self.from_run:
                raise ValueError(
                    f"vocab.{name} changes the vocabulary of a finished run; name the run, by vocab.from_run=NAME, or "
                    f"leave vocab.{name} out"
                )
        if self.extend_size != VocabConfig.extend_size and not self.extend:
            raise ValueError(
                f"vocab.extend_size={self.extend_size} has no effect without vocab.extend; name the new languages, as "
                "vocab.extend={pt: es}, or leave it out"
            )
        if self.extend_size < 0:
            raise ValueError(f"vocab.extend_size={self.extend_size} is negative; choose 0 (tags alone) or more")
        if self.seed < 0:
            raise ValueError(f"vocab.seed={self.seed} is negative; choose 0 or more")

    @property
    def changed(self) -> bool:
        """True if the vocabulary of `from_run` is not used as it is."""
        return bool(self.extend) or self.trim
