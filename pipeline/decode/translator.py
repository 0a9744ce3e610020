"""Lines of text in, translations out: what is between a text and the search."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.decode.batches import plan_batches
from pipeline.decode.config import DecodeConfig
from pipeline.decode.search import Hypothesis, Request, search
from pipeline.model.transformer import Transformer
from pipeline.vocab.tokenizer import Vocabulary

_NO_PIECES = 2  # tokens: tag and end


@dataclass(frozen=True, kw_only=True)
class Line:
    """text: in the source language. target: code of the language asked for. prefix: what the translation begins with.
    number: of the line in its text, from 0, by which sampling draws."""

    text: str
    target: str
    prefix: str = ""
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """text: a translation. score: of `Hypothesis`."""

    text: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Translated:
    """What became of a line. alternatives: best first, `n_best` of them, none of a line that is skipped. skipped: why,
    `empty` or `too_long`, else empty. cut: `split` into parts or `truncated` because it was too long, else empty."""

    alternatives: tuple[Alternative, ...] = ()
    skipped: str = ""
    cut: str = ""

    @property
    def text(self) -> str:
        return self.alternatives[0].text if self.alternatives else ""

    @property
    def score(self) -> float:
        return self.alternatives[0].score if self.alternatives else 0.0


class Translator:
    """A model, its vocabulary and how it translates. max_source_tokens: of a line, tag and end counted."""

    def __init__(
        self, model: Transformer, vocabulary: Vocabulary, config: DecodeConfig, *, max_source_tokens: int
    ) -> None:
        self.model, self.vocabulary, self.config = model, vocabulary, config
        self.max_source_tokens = max_source_tokens

    def translate(self, lines: Sequence[Line]) -> Iterator[tuple[int, Translated]]:
        """Index and fate of each line, batch by batch, longest first."""
        requests: dict[int, Request] = {}
        for index, line in enumerate(lines):
            (tokens,) = self.vocabulary.encode_source([line.text], line.target)
            if len(tokens) == _NO_PIECES:
                yield index, Translated(skipped="empty")
            elif len(tokens) > self.max_source_tokens:
                yield index, Translated(skipped="too_long")
            else:
                requests[index] = Request(source=tokens, number=line.number)
        indices = list(requests)
        for batch in plan_batches([len(requests[index].source) for index in indices], self.config):
            chosen = [indices[number] for number in batch]
            found = search(self.model, [requests[index] for index in chosen], self.config)
            yield from zip(chosen, map(self._translated, found), strict=True)

    def _translated(self, hypotheses: Sequence[Hypothesis]) -> Translated:
        texts = self.vocabulary.decode_target([hypothesis.tokens for hypothesis in hypotheses])
        pairs = zip(texts, hypotheses, strict=True)
        return Translated(alternatives=tuple(Alternative(text=text, score=h.score) for text, h in pairs))
