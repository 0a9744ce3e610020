"""Vocabularies: SentencePiece models of source and target, with language tags at fixed ids; light to import."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece

from pipeline.vocab.symbols import BOS, EOS, PAD, UNK

VOCABULARY = "vocab.json"
ORIGINAL = "tokenizer"  # directory with the files of another program that a vocabulary was imported from
ORIGINAL_MODEL = "sentencepiece.bpe.model"  # the SentencePiece model among them
ADDED_TAGS = "added_tags"  # key of vocab.json: languages whose tags an imported vocabulary did not have at first


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Source and target SentencePiece models, and the ids of the tags.

    source_model, target_model: SentencePiece processors, the same one if shared.
    tags: id in the source model by BCP-47 code.
    source_tags: id by the tag of a training source, such as bt.
    tags_by_side: a source begins with the tag of its own language, and a target with that of its language, as in M2M100
        and NLLB. Otherwise a source begins with the tag of the target language, and a target with none.
    added_tags: languages whose tags were added after the import; empty for a vocabulary that was not imported.
    directory: directory from which it was loaded.
    sha256: checksum of the models there, from `vocabulary_sha256`.
    """

    source_model: Any
    target_model: Any
    tags: Mapping[str, int]
    shared: bool
    source_tags: Mapping[str, int] = field(default_factory=dict)
    tags_by_side: bool = False
    added_tags: Sequence[str] = ()
    directory: Path = Path()
    sha256: str = ""

    @classmethod
    def load(cls, directory: Path) -> "Vocabulary":
        """Load the vocabulary that `train_vocabulary` wrote."""
        content = json.loads((directory / VOCABULARY).read_text(encoding="utf-8"))
        names = ["shared"] * 2 if content["shared"] else ["source", "target"]
        models = [sentencepiece.SentencePieceProcessor(model_file=str(directory / f"{name}.model")) for name in names]
        return cls(
            source_model=models[0],
            target_model=models[1],
            tags=content["tags"],
            shared=content["shared"],
            source_tags=content.get("source_tags", {}),
            tags_by_side=content.get("tags_by_side", False),
            added_tags=content.get(ADDED_TAGS, ()),
            directory=directory,
            sha256=vocabulary_sha256(directory),
        )

    @property
    def source_size(self) -> int:
        return int(self.source_model.get_piece_size())

    @property
    def target_size(self) -> int:
        return int(self.target_model.get_piece_size())

    def pieces(self, side: str) -> list[str]:
        """Return the pieces of a side, source or target, by id."""
        model = self.source_model if side == "source" else self.target_model
        return [str(model.id_to_piece(index)) for index in range(model.get_piece_size())]

    def special_ids(self, side: str) -> set[int]:
        """Return the ids of a side that stand for no text by themselves: control symbols, tags and bytes."""
        model = self.source_model if side == "source" else self.target_model
        tags = {*self.tags.values(), *self.source_tags.values()} if side == "source" or self.shared else set()
        return {UNK, BOS, EOS, PAD, *tags, *(i for i in range(model.get_piece_size()) if model.is_byte(i))}

    def tag(self, code: str, side: str = "target") -> int:
        """Return the id of the symbol of a language. Raises ValueError if there is none. side: for the message."""
        if code not in self.tags:
            raise ValueError(f"{side} language {code!r} has no tag; the vocabulary has {', '.join(self.tags)}")
        return self.tags[code]

    def first_source_tag(self, src: str, tgt: str) -> int:
        """Return the id that a source of a direction begins with. Raises ValueError if its language has no tag."""
        return self.tag(src, "source") if self.tags_by_side else self.tag(tgt)

    def first_target_tags(self, tgt: str) -> list[int]:
        """Return the ids that a target begins with, at most one. Raises ValueError if the language has no tag."""
        return [self.tag(tgt)] if self.tags_by_side else []

    def source_tag(self, tag: str) -> int:
        """Return the id of the tag of a training source, -1 for no tag. Raises ValueError for an unknown tag."""
        if tag and tag not in self.source_tags:
            names = ", ".join(self.source_tags) or "none"
            raise ValueError(
                f"tag {tag!r} of a source is not in the vocabulary, which has {names}; "
                "train the vocabulary on the pairs that have this source"
            )
        return self.source_tags[tag] if tag else -1

    def encode_source(self, texts: Sequence[str], tgt: str, src: str = "") -> list[list[int]]:
        """Return the ids of each text: tag, pieces, EOS. Raises ValueError if the language has no tag.

        src: is needed for a vocabulary with tags by side.
        """
        tag = self.first_source_tag(src, tgt)
        return [[tag, *ids, EOS] for ids in self.source_model.encode(list(texts))]

    def source_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of ids that `encode_source` gives each text."""
        return [len(ids) + 2 for ids in self.source_model.encode(list(texts))]

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text: pieces, EOS."""
        return [[*ids, EOS] for ids in self.target_model.encode(list(texts))]

    def decode_target(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each sequence up to its first EOS, without special symbols and tags."""
        special = {BOS, PAD, UNK, *((*self.tags.values(), *self.source_tags.values()) if self.shared else ())}
        texts: list[str] = self.target_model.decode([_pieces(sequence, special) for sequence in ids])
        return texts


def vocabulary_sha256(directory: Path) -> str:
    """Return the SHA-256 of the models of a vocabulary, by which a checkpoint identifies its vocabulary."""
    digest = hashlib.sha256()
    for model in sorted(directory.glob("*.model")):
        digest.update(model.read_bytes())
    return digest.hexdigest()


def _pieces(sequence: Sequence[int], special: set[int]) -> list[int]:
    """Return the ids before the first EOS that stand for text."""
    pieces: list[int] = []
    for index in sequence:
        if index == EOS:
            break
        if index not in special:
            pieces.append(int(index))
    return pieces
