"""Translation of lines of text: encode them, make batches, search, and decode the hypotheses."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.ensemble import Ensemble
from pipeline.decode.search.search import Alone, DropCount, Hypothesis, Peers, Request, search
from pipeline.decode.text.agreement import best_by_agreement
from pipeline.decode.text.batches import plan_batches
from pipeline.decode.text.line import (
    EMPTY,
    PREFIX_TOO_LONG,
    SPLIT,
    TOO_LONG,
    TRUNCATED,
    Alternative,
    Line,
    Long,
    Translated,
)
from pipeline.decode.text.long_lines import joiner, split_text
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import EOS
from pipeline.vocab.tokenizer import Vocabulary

__all__ = ["Alternative", "Line", "Long", "Part", "Translated", "TranslationPlan", "Translator"]

_NO_PIECES = 2  # tokens: tag and end


@dataclass(frozen=True, kw_only=True)
class Part:
    """A line, or a part of a split line, that is translated as one sentence.

    line: index of the line.
    part: number of the part, from 0.
    target: code of the language of translations.
    """

    line: int
    part: int
    target: str
    request: Request


@dataclass(frozen=True, kw_only=True)
class TranslationPlan:
    """A plan for translating some lines. It depends on the lines and the settings only.

    fates: outcomes of skipped lines, by index.
    cut: as in `Translated`, by index.
    batches: all parts, in batches, longest first.
    """

    fates: dict[int, Translated]
    cut: dict[int, str]
    batches: list[list[Part]]


class Translator:
    """A model, or an ensemble, with its vocabulary and its settings of decoding, which translates lines of text.

    max_source_tokens: most tokens of a line, tag and end included.
    long: treatment of a longer line. It is split into parts that are translated separately, truncated, skipped, or
        translated whole. A line with a prefix of more tokens is skipped, unless it is translated whole.
    peers: as in `search`.
    drops: count of the choices that a capacity of the experts has dropped so far.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        vocabulary: Vocabulary,
        config: DecodeConfig,
        *,
        max_source_tokens: int,
        long: Long = "split",
        peers: Peers | None = None,
    ) -> None:
        self.model, self.vocabulary, self.config = model, vocabulary, config
        self.max_source_tokens, self.long, self.peers = max_source_tokens, long, peers
        self.drops = DropCount()

    def using(self, config: DecodeConfig) -> "Translator":
        """Return a translator with the same model and other settings of decoding."""
        return Translator(
            self.model,
            self.vocabulary,
            config,
            max_source_tokens=self.max_source_tokens,
            long=self.long,
            peers=self.peers,
        )

    def translate(
        self, lines: Sequence[Line], *, check: Callable[[], None] | None = None
    ) -> Iterator[tuple[int, Translated]]:
        """Yield index and outcome of each line as soon as they are known.

        With peers it is a collective: each process has lines of its own, and idles until the others are done.
        check: called before each batch. It raises an error to end the translation.
        Raises ValueError if a target language has no tag.
        """
        plan = self.plan(lines)
        yield from plan.fates.items()
        missing = {index: 0 for index in range(len(lines)) if index not in plan.fates}
        for batch in plan.batches:
            for part in batch:
                missing[part.line] += 1
        hypotheses_of: dict[int, dict[int, list[Hypothesis]]] = {index: {} for index in missing}
        batches, peers = deque(plan.batches), self.peers or Alone()
        while peers.any(bool(batches)):
            batch = batches.popleft() if batches else []
            if check is not None:
                check()
            for part, hypotheses in zip(batch, self.search(batch), strict=True):
                hypotheses_of[part.line][part.part] = hypotheses
                missing[part.line] -= 1
                if not missing[part.line]:
                    parts = [hypotheses for _, hypotheses in sorted(hypotheses_of.pop(part.line).items())]
                    space = joiner(lines[part.line].target) if len(parts) > 1 else ""
                    yield part.line, self._translated(parts, space, plan.cut.get(part.line, ""))

    def plan(self, lines: Sequence[Line]) -> TranslationPlan:
        """Decide for every line if it is translated, in how many parts and in which batches."""
        fates: dict[int, Translated] = {}
        cut: dict[int, str] = {}
        parts: list[Part] = []
        for index, (line, tokens) in enumerate(zip(lines, self._encode(lines), strict=True)):
            sources, fate = self._sources(line, tokens)
            prefix = self.vocabulary.encode_target([line.prefix])[0][:-1] if line.prefix else []
            if len(prefix) > self.max_source_tokens and self.long != "whole" and not fate.skipped:
                fate = Translated(skipped=PREFIX_TOO_LONG)  # each of its tokens costs a step
            if fate.skipped:
                fates[index] = fate
                continue
            if fate.cut:
                cut[index] = fate.cut
            start = self.vocabulary.first_target_tags(line.target)
            for number, source in enumerate(sources):
                request = Request(
                    source=source,
                    start=start,
                    prefix=[] if number else prefix,
                    number=line.number,
                    part=number,
                    pair=f"{line.source}:{line.target}",
                )
                parts.append(Part(line=index, part=number, target=line.target, request=request))
        lengths = [max(len(part.request.source), len(part.request.prefix)) for part in parts]
        numbers = plan_batches(lengths, self.config)
        return TranslationPlan(fates=fates, cut=cut, batches=[[parts[number] for number in batch] for batch in numbers])

    def search(self, batch: Sequence[Part]) -> list[list[Hypothesis]]:
        """Return at most `n_best` hypotheses of each part, best first, in the order that `decode.choose` says.

        Without parts this process idles until its peers are done.
        """
        hypotheses = search(self.model, [part.request for part in batch], self.config, self.peers, self.drops)
        if self.config.choose == "likeliest":
            return hypotheses
        return [
            [of_part[place] for place in best_by_agreement(self.texts(of_part), self.config, part.target)]
            for part, of_part in zip(batch, hypotheses, strict=True)
        ]

    def texts(self, hypotheses: Sequence[Hypothesis]) -> list[str]:
        """Decode hypotheses to texts. A line feed, which a model can produce as a byte, becomes a space."""
        decoded = self.vocabulary.decode_target([hypothesis.tokens for hypothesis in hypotheses])
        return [text.replace("\n", " ") for text in decoded]

    def _encode(self, lines: Sequence[Line]) -> list[list[int]]:
        tokens_of: dict[int, list[int]] = {}
        for source, target in dict.fromkeys((line.source, line.target) for line in lines):
            indices = [index for index, line in enumerate(lines) if (line.source, line.target) == (source, target)]
            tokens = self.vocabulary.encode_source([lines[index].text for index in indices], target, source)
            tokens_of.update(zip(indices, tokens, strict=True))
        return [tokens_of[index] for index in range(len(lines))]

    def _sources(self, line: Line, tokens: list[int]) -> tuple[list[list[int]], Translated]:
        """Return the token sequences to translate for a line, and its outcome if it is skipped or cut."""
        longest = self.max_source_tokens
        if len(tokens) == _NO_PIECES:
            return [], Translated(skipped=EMPTY)
        if len(tokens) <= longest or self.long == "whole":
            return [tokens], Translated()
        if self.long == "skip":
            return [], Translated(skipped=TOO_LONG)
        if self.long == "truncate":
            return [[*tokens[: longest - 1], EOS]], Translated(cut=TRUNCATED)

        def fits(text: str) -> bool:
            return len(self.vocabulary.encode_source([text], line.target, line.source)[0]) <= longest

        parts = self.vocabulary.encode_source(split_text(line.text, fits), line.target, line.source)
        # even one character may have more than `longest` tokens
        fitting = [part if len(part) <= longest else [*part[: longest - 1], EOS] for part in parts]
        return [part for part in fitting if len(part) > _NO_PIECES], Translated(cut=SPLIT)

    def _translated(self, parts: Sequence[Sequence[Hypothesis]], space: str, cut: str) -> Translated:
        """Join the parts of a line. The n-th best translation is made of the n-th best hypothesis of every part.

        parts: hypotheses of each part.
        space: text between two parts.
        """
        weights = [len(part[0].tokens) + 1 for part in parts]  # the same for all ranks, so that the scores fall
        alternatives = []
        for rank in range(max(map(len, parts))):
            ranked = [part[min(rank, len(part) - 1)] for part in parts]
            score = sum(h.score * weight for h, weight in zip(ranked, weights, strict=True)) / sum(weights)
            alternatives.append(Alternative(text=space.join(filter(None, self.texts(ranked))), score=score))
        return Translated(alternatives=tuple(alternatives), cut=cut)
