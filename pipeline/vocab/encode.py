"""Fourth stage: the rows of a pair as token ids."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.corpus.bitext import read_bitext
from pipeline.corpus.clean import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import SPLITS
from pipeline.vocab.encoded import EncodedSplit, RaggedWriter
from pipeline.vocab.symbols import EOS, UNK
from pipeline.vocab.tokenizer import Vocabulary

__all__ = ["ENCODED", "EncodedSplit", "encode", "encoded_counts"]

ENCODED = "encode.json"
_CHUNK_ROWS = 4096
_LEAST_TOKENS = 3  # tag, one piece, EOS

_log = logging.getLogger(__name__)


def encode(
    vocabulary: Path,
    bitext: Path,
    pair: LangPair,
    *,
    max_source_tokens: int,
    max_target_tokens: int,
    out: Path,
) -> None:
    """Write the token ids of every split of a cleaned pair, and `encode.json` with the counts, to `out`.

    Limits count the tag and EOS. Training rows beyond one are left out; dev and test rows are cut, EOS kept,
    so that their loss can be taken. Ids are uint16 if both vocabularies are below 65,536, else uint32.
    Raises ValueError if no training row is left.
    """
    limits = {"max_source_tokens": max_source_tokens, "max_target_tokens": max_target_tokens}
    for name, limit in limits.items():
        if limit < _LEAST_TOKENS:
            raise ValueError(f"{name}={limit} leaves no room for a tag, a piece and EOS; choose 3 or more")
    cleaned = funnel(bitext)["pair"]
    assert cleaned == pair.name, f"{bitext} holds {cleaned}, not {pair}"
    loaded = Vocabulary.load(vocabulary)
    dtype = np.uint16 if max(loaded.source_size, loaded.target_size) < 1 << 16 else np.uint32
    counts = {
        split: _encode_split(loaded, bitext, pair, split, tuple(limits.values()), np.dtype(dtype), out)
        for split in SPLITS
    }
    train = counts["train"]
    if train["rows"] == 0:
        raise ValueError(
            f"pair {pair}: all {train['dropped']} training rows exceed {max_source_tokens} source or "
            f"{max_target_tokens} target tokens; raise max_source_tokens or max_target_tokens"
        )
    if train["dropped"]:
        total = train["rows"] + train["dropped"]
        _log.info("pair %s: %d of %d training rows are too long", pair, train["dropped"], total)
    content = {"pair": pair.name, "dtype": np.dtype(dtype).name, **limits, "splits": counts}
    (out / ENCODED).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def encoded_counts(directory: Path) -> dict[str, Any]:
    """Content of `encode.json`: pair, dtype, limits, and counts per split."""
    content: dict[str, Any] = json.loads((directory / ENCODED).read_text(encoding="utf-8"))
    return content


def _encode_split(
    vocabulary: Vocabulary,
    bitext: Path,
    pair: LangPair,
    split: str,
    limits: tuple[int, ...],
    dtype: np.dtype[Any],
    out: Path,
) -> dict[str, int]:
    rows = read_bitext(bitext, split)
    counts = dict.fromkeys(
        ("rows", "source_tokens", "target_tokens", "dropped", "truncated", "source_unk", "target_unk"), 0
    )
    with (
        RaggedWriter(out / f"{split}.src", dtype) as sources,
        RaggedWriter(out / f"{split}.tgt", dtype) as targets,
    ):
        for start in range(0, len(rows), _CHUNK_ROWS):
            batch = rows[start : start + _CHUNK_ROWS]
            encoded = zip(
                vocabulary.encode_source(batch["src"], pair.tgt),
                vocabulary.encode_target(batch["tgt"]),
                strict=True,
            )
            kept = []
            for row in encoded:
                fits = len(row[0]) <= limits[0] and len(row[1]) <= limits[1]
                if fits:
                    kept.append(row)
                elif split == "train":
                    counts["dropped"] += 1
                else:
                    counts["truncated"] += 1
                    kept.append((_cut(row[0], limits[0]), _cut(row[1], limits[1])))
            counts["rows"] += len(kept)
            sources.write([src for src, _ in kept])
            targets.write([tgt for _, tgt in kept])
            counts["source_unk"] += sum(src.count(UNK) for src, _ in kept)
            counts["target_unk"] += sum(tgt.count(UNK) for _, tgt in kept)
    counts["source_tokens"], counts["target_tokens"] = sources.num_tokens, targets.num_tokens
    return counts


def _cut(ids: list[int], limit: int) -> list[int]:
    return ids if len(ids) <= limit else [*ids[: limit - 1], EOS]
