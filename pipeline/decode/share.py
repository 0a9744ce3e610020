"""What the processes of both kinds of translation jobs do with their share of the batches."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pipeline.decode.search import Hypothesis
from pipeline.decode.translator import Part, Translator
from pipeline.parallel.process import StopRequest
from pipeline.stage import Stopped

Batch = Sequence[Part]


def translate_batches(
    translator: Translator,
    batches: Iterable[Batch],
    write: Callable[[Batch, list[dict[str, Any]]], None],
    *,
    stop: StopRequest,
    title: str,
) -> None:
    """Translate batch by batch; `write` gets each with text and score of its lines, none of which is in parts. Raises
    Stopped between two of them."""
    for batch in batches:
        if stop:
            raise Stopped(title)
        best: list[Hypothesis] = [first for first, *_ in translator.search(batch)]
        texts = translator.texts(best)
        write(batch, [{"text": text, "score": round(found.score, 5)} for text, found in zip(texts, best, strict=True)])
