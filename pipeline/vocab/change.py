"""Change the vocabulary of a finished run: add languages and their pieces, and leave out pieces without a use.

Old pieces keep their scores, and, unless the vocabulary is trimmed, their ids. pipeline/vocab/new_pieces.py has the
pieces that are added.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.languages import LangPair
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.imported_tags import extend_imported
from pipeline.vocab.new_pieces import SIDES, NewText, with_new_pieces
from pipeline.vocab.pieces import Pieces
from pipeline.vocab.ragged import encode_texts
from pipeline.vocab.rows import RowSources
from pipeline.vocab.symbols import tag_of
from pipeline.vocab.vocabulary import VOCABULARY, vocabulary_sha256

_USED_SPLITS = ("train", "dev")

logger = logging.getLogger(__name__)


def change_vocabulary(config: VocabConfig, base: Path, bitexts: Mapping[LangPair, Path], out: Path) -> None:
    """Write the vocabulary `base` with the changes of `vocab.extend` and `vocab.trim` to `out`.

    `vocab.json` says how the sizes changed, and `rows.json` which old rows each new row of an embedding starts from.
    Both are logged.

    bitexts: directory of the cleaned rows of each pair.
    Raises ValueError if vocab.extend_size is too small for the characters of the new text.
    """
    content = json.loads((base / VOCABULARY).read_text(encoding="utf-8"))
    if content.get("tags_by_side"):
        extend_imported(config, NewText(config, bitexts), base, out)
        return
    names = ("shared",) if content["shared"] else ("source", "target")
    before = {name: Pieces.read(base / f"{name}.model") for name in names}
    models = dict(before)
    tags: dict[str, int] = content["tags"]
    text = NewText(config, bitexts)
    if config.extend:
        models = {name: with_new_pieces(config, model, text, name) for name, model in models.items()}
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


def _count(model: Pieces, bitexts: Mapping[LangPair, Path], name: str) -> NDArray[np.int64]:
    """Return how often each piece occurs in the training and development text of all pairs."""
    processor, counts = model.processor(), np.zeros(len(model.rows), dtype=np.int64)
    for directory in bitexts.values():
        for split in _USED_SPLITS:
            for batch in iter_bitext(directory, split):
                for side in SIDES[name]:
                    texts = [text.encode() for text in batch.column(side).to_pylist()]
                    counts += np.bincount(encode_texts(processor, texts, -1).tokens, minlength=len(counts))
    return counts


def _described(sizes: Mapping[str, int]) -> str:
    changes = (
        ", ".join(f"{sizes[change]:,} {change}" for change in ("added", "removed") if sizes[change]) or "none added"
    )
    return f"{sizes['before']:,} pieces before, {sizes['after']:,} after ({changes})"
