"""Lines of text in, translations out: what is between a text and the search."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.decode.batches import plan_batches
from pipeline.decode.config import DecodeConfig
from pipeline.decode.long_lines import joiner, split_text
from pipeline.decode.search import DropCount, Hypothesis, Peers, Request, search
from pipeline.decode.text import EMPTY, PREFIX_TOO_LONG, SPLIT, TOO_LONG, TRUNCATED, Alternative, Line, Long, Translated
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import EOS
from pipeline.vocab.tokenizer import Vocabulary

__all__ = ["Alternative", "Line", "Long", "Part", "Plan", "Translated", "Translator"]

_NO_PIECES = 2  # tokens: tag and end


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is translated in one go: a line, or part `part` of one that is split. line: its index."""

    line: int
    part: int
    request: Request


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What becomes of some lines. fates: of those that are skipped. cut: as of `Translated`, by line. batches: of all
    parts, longest first; what is in a batch depends on the lines alone."""

    fates: dict[int, Translated]
    cut: dict[int, str]
    batches: list[list[Part]]


class Translator:
    """A model, its vocabulary and how it translates.

    max_source_tokens: of a line, tag and end counted. long: a line of more is split into parts that are translated
    each by itself, truncated, skipped, or translated whole, whatever comes of it. A line with a prefix of more is
    skipped, unless it is translated whole. peers: as of `search`. drops: what a capacity of the experts has dropped so
    far.
    """

    def __init__(
        self,
        model: Transformer,
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
        """The same with other settings of decoding."""
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
        """Index and fate of each line, as they are known. check: called before each batch, raises where nobody waits
        any more. Raises ValueError on a language without a tag."""
        plan = self.plan(lines)
        yield from plan.fates.items()
        missing = {index: 0 for index in range(len(lines)) if index not in plan.fates}
        for batch in plan.batches:
            for part in batch:
                missing[part.line] += 1
        found: dict[int, dict[int, list[Hypothesis]]] = {index: {} for index in missing}
        for batch in plan.batches:
            if check is not None:
                check()
            for part, hypotheses in zip(batch, self.search(batch), strict=True):
                found[part.line][part.part] = hypotheses
                missing[part.line] -= 1
                if not missing[part.line]:
                    parts = [of for _, of in sorted(found.pop(part.line).items())]
                    space = joiner(lines[part.line].target) if len(parts) > 1 else ""
                    yield part.line, self._translated(parts, space, plan.cut.get(part.line, ""))

    def plan(self, lines: Sequence[Line]) -> Plan:
        """Decide what is translated, and together with what."""
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
            for number, source in enumerate(sources):
                request = Request(source=source, prefix=[] if number else prefix, number=line.number, part=number)
                parts.append(Part(line=index, part=number, request=request))
        lengths = [max(len(part.request.source), len(part.request.prefix)) for part in parts]
        numbers = plan_batches(lengths, self.config)
        return Plan(fates=fates, cut=cut, batches=[[parts[number] for number in batch] for batch in numbers])

    def search(self, batch: Sequence[Part]) -> list[list[Hypothesis]]:
        """Hypotheses of each part, best first; without parts it is idle with its peers."""
        return search(self.model, [part.request for part in batch], self.config, self.peers, self.drops)

    def texts(self, hypotheses: Sequence[Hypothesis]) -> list[str]:
        """Of one line each: a line feed, which a model can spell in bytes, is a space."""
        decoded = self.vocabulary.decode_target([hypothesis.tokens for hypothesis in hypotheses])
        return [text.replace("\n", " ") for text in decoded]

    def _encode(self, lines: Sequence[Line]) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for target in dict.fromkeys(line.target for line in lines):
            indices = [index for index, line in enumerate(lines) if line.target == target]
            tokens = self.vocabulary.encode_source([lines[index].text for index in indices], target)
            found.update(zip(indices, tokens, strict=True))
        return [found[index] for index in range(len(lines))]

    def _sources(self, line: Line, tokens: list[int]) -> tuple[list[list[int]], Translated]:
        """What is translated of a line, in one part or several, and what will have to be said of it."""
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
            return len(self.vocabulary.encode_source([text], line.target)[0]) <= longest

        parts = self.vocabulary.encode_source(split_text(line.text, fits), line.target)
        # of one character even `longest` may be too little
        fitting = [part if len(part) <= longest else [*part[: longest - 1], EOS] for part in parts]
        return [part for part in fitting if len(part) > _NO_PIECES], Translated(cut=SPLIT)

    def _translated(self, parts: Sequence[Sequence[Hypothesis]], space: str, cut: str) -> Translated:
        """parts: hypotheses of each part of one line. An n-th best translation is made of the parts' n-th best."""
        weights = [len(of[0].tokens) + 1 for of in parts]  # of all ranks, which keeps the scores falling
        alternatives = []
        for rank in range(max(map(len, parts))):
            chosen = [of[min(rank, len(of) - 1)] for of in parts]
            score = sum(h.score * weight for h, weight in zip(chosen, weights, strict=True)) / sum(weights)
            alternatives.append(Alternative(text=space.join(filter(None, self.texts(chosen))), score=score))
        return Translated(alternatives=tuple(alternatives), cut=cut)
