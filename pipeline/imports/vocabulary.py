"""The tokenizer of a checkpoint as a vocabulary of ours: one SentencePiece model whose ids are rows of the embedding.

SentencePiece's own ids differ from those of M2M100 and NLLB, which put four special symbols first, and the tags of
languages last. Segmentation depends on pieces and their scores only, so the pieces can be put in another order.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from pipeline.imports.checkpoint import Checkpoint
from pipeline.imports.languages import M2M_LANGUAGES, bcp47_codes, tag_language
from pipeline.vocab.symbols import BOS, EOS, PAD, UNK, filler_of
from pipeline.vocab.vocabulary import ORIGINAL, ORIGINAL_MODEL, VOCABULARY

PIECES = "vocab.json"  # of M2M100: the id of each piece
TOKENIZERS = ("M2M100Tokenizer", "NllbTokenizer")
SPECIAL_TOKENS, TOKENIZER_CONFIG = "special_tokens_map.json", "tokenizer_config.json"
FILES = (ORIGINAL_MODEL, PIECES, SPECIAL_TOKENS, TOKENIZER_CONFIG, "tokenizer.json", "added_tokens.json")
SYMBOLS = {BOS: "<s>", PAD: "<pad>", EOS: "</s>", UNK: "<unk>"}
_Piece = sentencepiece_model_pb2.ModelProto.SentencePiece

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """The tokenizer of a checkpoint.

    pieces: the SentencePiece model in its own order.
    ids: id of each of its pieces, by piece; special symbols excluded.
    added: id of each token that is no piece: tags of languages and <mask>.
    """

    pieces: Any
    ids: Mapping[str, int]
    added: Mapping[str, int]

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> "Tokenizer":
        """Read the files of a checkpoint. Raises ValueError for a missing file, and for a tokenizer of another kind."""
        _check_kind(checkpoint)
        path = checkpoint.directory / ORIGINAL_MODEL
        if not path.is_file():
            raise checkpoint.error(f"{ORIGINAL_MODEL} is missing; copy it from where the checkpoint came from")
        model = sentencepiece_model_pb2.ModelProto()
        try:
            model.ParseFromString(path.read_bytes())
        except DecodeError as error:
            raise checkpoint.error(f"{ORIGINAL_MODEL} is no SentencePiece model: {error}") from error
        names = [piece.piece for piece in model.pieces]
        if names[:3] != ["<unk>", "<s>", "</s>"]:
            raise checkpoint.error(f"{ORIGINAL_MODEL} begins with {names[:3]}, not with <unk>, <s> and </s>")
        added = _added_tokens(checkpoint)
        if any(token.startswith("__") for token in added):  # M2M100, whose tags are __de__
            listed = checkpoint.json(PIECES)
            _check_pieces(checkpoint, listed)
            ids = {piece: index for piece, index in listed.items() if index > UNK}
            if lost := [name for name in names[3:] if name not in ids]:
                _log.warning(
                    "warning: %d pieces of %s, such as %s, are not in %s: text with them becomes smaller pieces, and "
                    "not <unk> as in transformers",
                    *(len(lost), ORIGINAL_MODEL, lost[0], PIECES),
                )
        else:
            ids = {
                piece.piece: index + 1
                for index, piece in enumerate(model.pieces)
                if index > 2 and piece.type != _Piece.CONTROL  # an export with new pieces has the tags among them
            }
        first = max(ids.values()) + 1
        numbered = {
            token: first + place if index is None else index for place, (token, index) in enumerate(added.items())
        }
        return cls(pieces=model, ids=ids, added=numbered)

    @property
    def languages(self) -> dict[str, str]:
        """BCP-47 code by the checkpoint's own code."""
        return bcp47_codes([code for token in self.added if (code := tag_language(token))])

    @property
    def tags(self) -> dict[str, int]:
        """Id of the tag by BCP-47 code."""
        codes = self.languages
        return {codes[code]: index for token, index in self.added.items() if (code := tag_language(token))}

    def reordered(self, size: int) -> bytes:
        """Return a SentencePiece model of `size` pieces, in the order of the ids.

        A token of the checkpoint that is no piece is a control symbol, which no text contains. So is a filler, for an
        id that the checkpoint leaves free.
        """
        reordered = sentencepiece_model_pb2.ModelProto()
        reordered.CopyFrom(self.pieces)
        del reordered.pieces[:]
        scored = {piece.piece: piece for piece in self.pieces.pieces[3:]}
        names = {**SYMBOLS, **{index: piece for piece, index in {**self.ids, **self.added}.items()}}
        for index in range(size):
            name = names.get(index, filler_of(index))
            if index == UNK:
                piece = _Piece(piece=name, type=_Piece.UNKNOWN)
            elif name in scored and name in self.ids:
                piece = scored[name]
            else:
                unused = name in self.ids  # a piece of vocab.json that SentencePiece never gives
                piece = _Piece(piece=name, type=_Piece.UNUSED if unused else _Piece.CONTROL)
            reordered.pieces.append(piece)
        trained = reordered.trainer_spec
        trained.vocab_size = size
        trained.bos_id, trained.pad_id, trained.eos_id, trained.unk_id = BOS, PAD, EOS, UNK
        trained.bos_piece, trained.pad_piece, trained.eos_piece, trained.unk_piece = SYMBOLS.values()
        return bytes(reordered.SerializeToString())


def check_vocabulary(checkpoint: Checkpoint, tokenizer: Tokenizer, size: int) -> None:
    """Raise ValueError if an id has no row in an embedding of `size` rows, or stands for two tokens.

    Also raise it for two tags of one language.
    """
    ids = [*tokenizer.ids.values(), *tokenizer.added.values()]
    if min(ids) <= UNK:
        raise checkpoint.error(
            f"a token of its tokenizer has the id {min(ids)}, and 0 to {UNK} are {', '.join(SYMBOLS.values())}"
        )
    if len({*ids}) < len(ids):
        raise checkpoint.error(f"two tokens of its tokenizer have one id; {SPECIAL_TOKENS} or {PIECES} is damaged")
    if max(ids) >= size:
        raise checkpoint.error(
            f"its tokenizer has the id {max(ids)}, and its embedding only {size} rows; the files are of two checkpoints"
        )
    tags = [code for token in tokenizer.added if (code := tag_language(token))]
    if unnamed := [code for code in tags if code not in tokenizer.languages]:
        raise checkpoint.error(f"its tag {unnamed[0]} is of a language that another of its tags has, too")


def write_vocabulary(checkpoint: Checkpoint, tokenizer: Tokenizer, size: int, out: Path) -> None:
    """Write the vocabulary, and the checkpoint's own files of the tokenizer for an export."""
    proto = tokenizer.reordered(size)
    assert sentencepiece.SentencePieceProcessor(model_proto=proto).get_piece_size() == size
    (out / "shared.model").write_bytes(proto)
    content = {
        "shared": True,
        "source_size": size,
        "target_size": size,
        "tags": tokenizer.tags,
        "tags_by_side": True,
        "sentencepiece": sentencepiece.__version__,
    }
    (out / VOCABULARY).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (out / ORIGINAL).mkdir(exist_ok=True)
    for file in tokenizer_files(checkpoint):
        shutil.copyfile(file, out / ORIGINAL / file.name)


def tokenizer_files(checkpoint: Checkpoint) -> list[Path]:
    """Return the files of the tokenizer that the checkpoint has."""
    return [file for name in FILES if (file := checkpoint.directory / name).is_file()]


def _added_tokens(checkpoint: Checkpoint) -> dict[str, int | None]:
    """Return the tokens that are no pieces, with their ids, or with None for the ids after those of the pieces.

    Newer versions of transformers write ids. Older ones list the tokens in their order alone.
    """
    tokens: dict[str, int | None] = _numbered_tokens(checkpoint)
    if not any(map(tag_language, tokens)):
        names = checkpoint.json(SPECIAL_TOKENS, optional=True)
        more = [names["mask_token"]] if "mask_token" in names else []
        tokens = dict.fromkeys(map(_content, [*(names.get("additional_special_tokens") or []), *more]))
    if not any(map(tag_language, tokens)) and (checkpoint.directory / PIECES).is_file():
        codes = checkpoint.json(TOKENIZER_CONFIG, optional=True).get("language_codes", "m2m100")
        if codes != "m2m100":
            raise checkpoint.error(f"{TOKENIZER_CONFIG} has language_codes={codes}, and import knows m2m100 only")
        tokens = dict.fromkeys([f"__{code}__" for code in M2M_LANGUAGES.split()])
    if not any(map(tag_language, tokens)):
        raise checkpoint.error(
            f"{TOKENIZER_CONFIG}, tokenizer.json and {SPECIAL_TOKENS} name no tag of a language, such as __de__ or "
            "deu_Latn; copy them from where the checkpoint came from"
        )
    return {token: index for token, index in tokens.items() if token not in SYMBOLS.values()}


def _numbered_tokens(checkpoint: Checkpoint) -> dict[str, int | None]:
    """Return the tokens whose ids tokenizer_config.json, or else tokenizer.json, has.

    Raises ValueError for a damaged file, and for a token that is text.
    """
    decoder = checkpoint.json(TOKENIZER_CONFIG, optional=True).get("added_tokens_decoder") or {}
    listed = checkpoint.json("tokenizer.json", optional=True).get("added_tokens") or []
    try:
        entries = [{**entry, "id": index} for index, entry in decoder.items()] or listed
        tokens = {str(entry["content"]): int(entry["id"]) for entry in entries}
        texts = [str(entry["content"]) for entry in entries if entry.get("special") is False]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise checkpoint.error(
            f"the added tokens of {TOKENIZER_CONFIG} or tokenizer.json are damaged: {error!r}"
        ) from error
    if texts:
        raise checkpoint.error(
            f"its tokenizer has the added token {texts[0]!r}, which is text and no piece; import reads pieces of "
            "SentencePiece and special tokens only"
        )
    return {**tokens}


def _check_kind(checkpoint: Checkpoint) -> None:
    """Raise ValueError for a tokenizer that puts the tags of languages elsewhere than M2M100's and NLLB's do."""
    settings = checkpoint.json(TOKENIZER_CONFIG, optional=True)
    kind = settings.get("tokenizer_class")
    if kind is not None and str(kind).removesuffix("Fast") not in TOKENIZERS:
        raise checkpoint.error(
            f"{TOKENIZER_CONFIG} has tokenizer_class={kind}, and import knows {' and '.join(TOKENIZERS)} only"
        )
    if settings.get("legacy_behaviour"):
        raise checkpoint.error(
            f"{TOKENIZER_CONFIG} has legacy_behaviour=true, which puts the source tag last; import puts it first"
        )


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _check_pieces(checkpoint: Checkpoint, listed: Mapping[str, Any]) -> None:
    if sorted(index for index in listed.values() if type(index) is int) != list(range(len(listed))):
        raise checkpoint.error(f"{PIECES} does not have the ids from 0 to {len(listed) - 1}, each once")
    if any(listed.get(name) != index for index, name in SYMBOLS.items()):
        raise checkpoint.error(f"{PIECES} does not begin with {', '.join(SYMBOLS.values())}")
