"""Change the vocabulary of a finished run: add languages and their pieces, and leave out pieces without a use.

Old pieces keep their scores, and, unless the vocabulary is trimmed, their ids. A new piece either has a character that
no old piece has, or it occurs in no sampled sentence of the other languages. So the others keep their segmentation:
every text of the old pieces' characters if the new pieces are of the first kind, and the sampled text in any case.
"""

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2

from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.imported_tags import add_tags
from pipeline.vocab.pieces import NORMAL, Pieces
from pipeline.vocab.ragged import encode_texts
from pipeline.vocab.rows import RowSources
from pipeline.vocab.sample import Sample, allocate_lines, sample_rows
from pipeline.vocab.symbols import tag_of
from pipeline.vocab.tokenizer import train_model
from pipeline.vocab.vocabulary import VOCABULARY, vocabulary_sha256

_UNCOUNTED = 4 + 256  # pieces of a model that is trained for an extension, which every model has: symbols and bytes
_SIDES = {"shared": ("src", "tgt"), "source": ("src",), "target": ("tgt",)}
_USED_SPLITS = ("train", "dev")

logger = logging.getLogger(__name__)


def change_vocabulary(config: VocabConfig, base: Path, bitexts: Mapping[LangPair, Path], out: Path) -> None:
    """Write the vocabulary `base` with the changes of `vocab.extend` and `vocab.trim` to `out`.

    `vocab.json` says how the sizes changed, and `rows.json` which old rows each new row of an embedding starts from.
    Both are logged. An imported vocabulary gets tags alone (`add_tags`).

    bitexts: directory of the cleaned rows of each pair.
    Raises ValueError if vocab.extend_size is too small for the characters of the new text.
    """
    content = json.loads((base / VOCABULARY).read_text(encoding="utf-8"))
    if content.get("tags_by_side"):
        add_tags(config.extend or {}, base, out)
        return
    names = ("shared",) if content["shared"] else ("source", "target")
    before = {name: Pieces.read(base / f"{name}.model") for name in names}
    models = dict(before)
    tags: dict[str, int] = content["tags"]
    text = _Text(config, bitexts)
    if config.extend:
        models = {name: _with_new_pieces(config, model, text, name) for name, model in models.items()}
        first = len(models[names[0]].rows)
        relatives = {code: relative for code, relative in config.extend.items() if relative}
        symbols = {tag_of(code): tags[relative] for code, relative in relatives.items()}
        models[names[0]] = models[names[0]].with_symbols(symbols)
        tags = tags | {code: first + number for number, code in enumerate(relatives)}
    grown = {name: len(model.rows) for name, model in models.items()}
    if config.trim:
        models = {name: model.without(model.unused(_count(model, bitexts, name))) for name, model in models.items()}
    sizes = {
        name: {
            "before": len(before[name].rows),
            "added": grown[name] - len(before[name].rows),
            "removed": grown[name] - len(model.rows),
            "after": len(model.rows),
        }
        for name, model in models.items()
    }
    for name, model in models.items():
        (out / f"{name}.model").write_bytes(model.proto.SerializeToString())
        logger.info("vocabulary, %s: %s", name, _described(sizes[name]))
    ids = {piece: index for index, piece in enumerate(models[names[0]].names)}
    old_names = before[names[0]].names
    changed = {
        **content,
        "source_size": sizes[names[0]]["after"],
        "target_size": sizes[names[-1]]["after"],
        "tags": {
            code: ids[old_names[index]] if index < len(old_names) else ids[tag_of(code)] for code, index in tags.items()
        },
        "sentencepiece": sentencepiece.__version__,
        "changes": sizes,
    }
    if marks := content.get("source_tags"):
        changed["source_tags"] = {tag: ids[old_names[index]] for tag, index in marks.items()}
    (out / VOCABULARY).write_text(json.dumps(changed, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    RowSources(vocabulary=vocabulary_sha256(base), source=models[names[0]].rows, target=models[names[-1]].rows).save(
        out
    )


class _Text:
    """The training text of a run, told apart by whether its language is new to the vocabulary."""

    def __init__(self, config: VocabConfig, bitexts: Mapping[LangPair, Path]) -> None:
        self._config, self._bitexts = config, bitexts
        self._new = set(config.extend or ())

    def sampled(self, name: str, *, new: bool) -> Iterator[str]:
        """Yield sampled training text for the model of this name: of the new languages, or of the others."""
        for side in _SIDES[name]:
            pairs = sorted(
                pair for pair in self._bitexts if ((pair.src if side == "src" else pair.tgt) in self._new) == new
            )
            rows = {pair: funnel(self._bitexts[pair])["train"]["kept"] for pair in pairs}
            lines = allocate_lines(rows, self._config.sample_lines, self._config.temperature)
            seed = self._config.seed
            chosen = {pair: sample_rows(rows[pair], lines[pair], pair, seed) for pair in pairs}
            if chosen:
                sample = Sample(self._bitexts, chosen).limited([side], self._config.sample_chars, seed)
                yield from sample.texts([side])


def _with_new_pieces(config: VocabConfig, model: Pieces, text: _Text, name: str) -> Pieces:
    """Return the model with pieces of the new languages; as it is if it has no text of them."""
    if next(text.sampled(name, new=True), None) is None:
        return model
    trained = sentencepiece_model_pb2.ModelProto.FromString(
        train_model(
            config,
            text.sampled(name, new=True),
            config.extend_size,
            "vocab.extend_size",
            (),
            model.proto.normalizer_spec.name,
            uncounted=_UNCOUNTED,
        )
    )
    scores = _comparable({piece.piece: piece.score for piece in trained.pieces if piece.type == NORMAL}, model)
    old_characters = model.characters
    foreign = {piece: score for piece, score in scores.items() if not old_characters.issuperset(piece)}
    familiar = {piece: score for piece, score in scores.items() if piece not in foreign}
    kept = _without_effect(model, foreign, familiar, list(text.sampled(name, new=False)))
    logger.info(
        "vocabulary, %s: %d new pieces have a character that the vocabulary lacks, %d have not; %d more would change "
        "the segmentation of other languages",
        *(name, len(foreign), len(kept), len(familiar) - len(kept)),
    )
    return model.with_pieces({piece: score for piece, score in scores.items() if piece in foreign or piece in kept})


def _comparable(scores: Mapping[str, float], model: Pieces) -> dict[str, float]:
    """Return the pieces that a model lacks, with scores that compare with its own.

    Scores are log-probabilities, those of the new pieces in another text. In a mixture of both texts, in which each one
    has a share in proportion to its pieces, their ratio to the old ones changes by the ratio of these numbers. No score
    is below the lowest old one, which decides what SentencePiece takes for an unknown character.
    """
    old = model.scores
    shift, lowest = math.log(len(scores) / len(old)), min(old.values())
    names = {piece.piece for piece in model.proto.pieces}
    return {piece: max(score + shift, lowest) for piece, score in scores.items() if piece not in names}


def _without_effect(
    model: Pieces, foreign: Mapping[str, float], familiar: Mapping[str, float], texts: Sequence[str]
) -> dict[str, float]:
    """Return the pieces of `familiar` that the segmentation of no text uses; none without a text to look at.

    foreign: pieces that are added in any case.
    """
    kept = dict(familiar) if texts else {}
    while kept:
        processor = model.with_pieces({**foreign, **kept}).processor()
        first = len(model.rows) + len(foreign)
        rows = processor.encode(texts)
        used = {index for ids in rows for index in ids if index >= first}
        if not used:
            break
        texts = [text for text, ids in zip(texts, rows, strict=True) if not used.isdisjoint(ids)]
        for index in used:
            del kept[processor.id_to_piece(index)]
    return kept


def _count(model: Pieces, bitexts: Mapping[LangPair, Path], name: str) -> NDArray[np.int64]:
    """Return how often each piece occurs in the training and development text of all pairs."""
    processor, counts = model.processor(), np.zeros(len(model.rows), dtype=np.int64)
    for directory in bitexts.values():
        for split in _USED_SPLITS:
            for batch in iter_bitext(directory, split):
                for side in _SIDES[name]:
                    texts = [text.encode() for text in batch.column(side).to_pylist()]
                    counts += np.bincount(encode_texts(processor, texts, -1).tokens, minlength=len(counts))
    return counts


def _described(sizes: Mapping[str, int]) -> str:
    changes = (
        ", ".join(f"{sizes[change]:,} {change}" for change in ("added", "removed") if sizes[change]) or "none added"
    )
    return f"{sizes['before']:,} pieces before, {sizes['after']:,} after ({changes})"
