"""The pieces that were added to an imported NLLB, in the files of its tokenizer for transformers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.vocab.pieces import Pieces
from pipeline.vocab.symbols import UNK
from pipeline.vocab.vocabulary import ORIGINAL_MODEL, Vocabulary

FAST = "tokenizer.json"
_SYMBOLS = 3  # <unk>, <s> and </s>, with which the SentencePiece model of NLLB begins


def write_added_pieces(vocabulary: Vocabulary, directory: Path) -> None:
    """Put the pieces that an import did not have into the files of its tokenizer in a directory.

    The SentencePiece model gets all tokens in the order of their ids, because NllbTokenizer takes the place there + 1
    for an id. Tags of languages, which come before the new pieces, are symbols there that no text contains.

    A tokenizer.json, if there is one, is of BPE (pipeline/dag/reuse.py).
    """
    old = Pieces.read(directory / ORIGINAL_MODEL, imported=True)
    model = Pieces.read(vocabulary.directory / "shared.model", imported=True)
    if model.scores.keys() == old.scores.keys():
        return
    proto = old.proto
    del proto.pieces[_SYMBOLS:]
    proto.pieces.extend(model.proto.pieces[UNK + 1 :])
    proto.trainer_spec.vocab_size = len(proto.pieces)
    (directory / ORIGINAL_MODEL).write_bytes(proto.SerializeToString())
    path = directory / FAST
    if path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
        _update_fast(content, model)
        path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _update_fast(content: dict[str, Any], model: Pieces) -> None:
    """Give the content of tokenizer.json all tokens and merges of a model.

    Tags are tokens of its BPE too: those without an id there would be numbered after the pieces.
    """
    bpe = content["model"]
    merges = _merges(model.scores)
    joined = any(isinstance(merge, str) for merge in bpe.get("merges", ()))  # as tokenizers before 0.20 writes them
    bpe["vocab"] = {name: index for index, name in enumerate(model.names)}
    bpe["merges"] = [" ".join(merge) for merge in merges] if joined else merges


def _merges(scores: Mapping[str, float]) -> list[list[str]]:
    """Return the merges of a BPE model of SentencePiece, the first one first.

    SentencePiece merges two neighbours if the result is a piece, the one of the highest score first. So each way to cut
    a piece into two is a merge.
    """
    return [
        [name[:end], name[end:]]
        for name in sorted(scores, key=lambda name: -scores[name])
        for end in range(1, len(name))
        if name[:end] in scores and name[end:] in scores
    ]
