"""A SentencePiece model while its pieces change, and the rows of the old embedding that each piece starts from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2

from pipeline.vocab.symbols import is_filler

_TYPES = sentencepiece_model_pb2.ModelProto.SentencePiece
_TRAINER = sentencepiece_model_pb2.TrainerSpec
NORMAL, CONTROL = _TYPES.NORMAL, _TYPES.CONTROL
RULES = ("identity", "nfkc", "nfkc_cf", "nmt_nfkc", "nmt_nfkc_cf")  # normalisations that SentencePiece has by name


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece model, and where the embedding of each of its pieces comes from.

    proto: the model as a protocol buffer.
    rows: for each piece the ids of the old model whose embeddings have the new one as their mean.
    """

    proto: Any
    rows: list[list[int]]

    @classmethod
    def read(cls, path: Path, *, imported: bool = False) -> "Pieces":
        """Read a model, whose pieces come from themselves.

        imported: true for the model of an imported checkpoint, which may be of any kind. For others ValueError is
            raised if it is not a unigram model.
        """
        proto = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
        if not imported and not _is_unigram(proto):
            raise ValueError(
                f"{path} is {_described(proto)}; pieces can be added to unigram models with one of {', '.join(RULES)}"
            )
        return cls(proto, [[index] for index in range(len(proto.pieces))])

    @property
    def names(self) -> list[str]:
        return [piece.piece for piece in self.proto.pieces]

    @property
    def is_bpe(self) -> bool:
        return bool(self.proto.trainer_spec.model_type == _TRAINER.BPE)

    def check_growth(self) -> None:
        """Raise ValueError if no pieces can be added to the model of an imported checkpoint."""
        with_bytes = any(piece.type == _TYPES.BYTE for piece in self.proto.pieces)
        if not (_is_unigram(self.proto) or (self.is_bpe and not with_bytes)):
            model = f"{_described(self.proto)}{' and pieces for bytes' if with_bytes else ''}"
            raise ValueError(
                f"pieces cannot be added to {model}, but to unigram models with one of {', '.join(RULES)}, and to BPE "
                "models without bytes"
            )

    @property
    def scores(self) -> dict[str, float]:
        """Scores of the pieces that stand for text: log-probabilities of a unigram model, ranks of BPE."""
        return {piece.piece: piece.score for piece in self.proto.pieces if piece.type == NORMAL}

    @property
    def characters(self) -> set[str]:
        """All characters of the pieces that stand for text."""
        return set("".join(self.scores))

    def processor(self) -> Any:
        """Return the model as a SentencePieceProcessor."""
        return sentencepiece.SentencePieceProcessor(model_proto=self.proto.SerializeToString())

    def speller(self) -> Any:
        """Return the model as a processor that takes a text as it is: it normalises nothing and adds no space."""
        proto = _copy(self.proto)
        proto.normalizer_spec.CopyFrom(sentencepiece_model_pb2.NormalizerSpec(name="identity"))
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False
        return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())

    def with_pieces(self, scores: Mapping[str, float]) -> "Pieces":
        """Return the model with more pieces at its end. Each starts from the pieces that spell it so far."""
        spelled = self.speller().encode(list(scores))
        rows = [[row for index in ids for row in self.rows[index]] for ids in spelled]
        return self._with(scores, rows, NORMAL)

    def with_symbols(self, symbols: Mapping[str, int]) -> "Pieces":
        """Return the model with more control symbols at its end. symbols: the id whose row each one starts from."""
        return self._with(dict.fromkeys(symbols, 0.0), [list(self.rows[index]) for index in symbols.values()], CONTROL)

    def with_tags(self, tags: Mapping[str, Sequence[int]]) -> "Pieces":
        """Return the model with more control symbols after its last token: in place of fillers, as far as it has them.

        tags: the ids whose rows have the row of each symbol as their mean.
        """
        end = max(index for index, name in enumerate(self.names, start=1) if not is_filler(name))
        proto, rows = _copy(self.proto), [[row for index in ids for row in self.rows[index]] for ids in tags.values()]
        for place, name in enumerate(tags, start=end):
            if place < len(proto.pieces):
                proto.pieces[place].piece = name
            else:
                proto.pieces.add(piece=name, score=0.0, type=CONTROL)
        proto.trainer_spec.vocab_size = len(proto.pieces)
        return Pieces(proto, [*self.rows[:end], *rows, *self.rows[end + len(rows) :]])

    def _with(self, scores: Mapping[str, float], rows: Sequence[list[int]], kind: int) -> "Pieces":
        proto = _copy(self.proto)
        for name, score in scores.items():
            proto.pieces.add(piece=name, score=score, type=kind)
        proto.trainer_spec.vocab_size = len(proto.pieces)
        return Pieces(proto, [*self.rows, *rows])

    def without(self, names: Collection[str]) -> "Pieces":
        """Return the model without some pieces. The others keep their order and scores."""
        kept = [index for index, piece in enumerate(self.proto.pieces) if piece.piece not in names]
        proto, pieces = _copy(self.proto), [self.proto.pieces[index] for index in kept]
        del proto.pieces[:]
        proto.pieces.extend(pieces)
        proto.trainer_spec.vocab_size = len(proto.pieces)
        return Pieces(proto, [self.rows[index] for index in kept])

    def unused(self, counts: NDArray[np.int64]) -> set[str]:
        """Return the pieces of text that were never counted, but for one of the lowest score.

        The lowest score decides what SentencePiece takes for an unknown character, so it stays.

        counts: how often each piece occurs.
        """
        scores = self.scores
        lowest = min(scores, key=lambda name: scores[name])
        pairs = zip(self.proto.pieces, counts.tolist(), strict=True)
        return {piece.piece for piece, count in pairs if piece.type == NORMAL and not count} - {lowest}


def _is_unigram(proto: Any) -> bool:
    return proto.trainer_spec.model_type == _TRAINER.UNIGRAM and proto.normalizer_spec.name in RULES


def _described(proto: Any) -> str:
    kind = _TRAINER.ModelType.Name(proto.trainer_spec.model_type).lower()
    return f"a {kind} model with the normalisation {proto.normalizer_spec.name!r}"


def _copy(proto: Any) -> Any:
    copy = sentencepiece_model_pb2.ModelProto()
    copy.CopyFrom(proto)
    return copy
