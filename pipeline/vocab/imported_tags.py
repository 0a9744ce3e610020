"""New languages in a vocabulary that was imported from M2M100 or NLLB: their tags, and pieces of their text."""

import json
import logging
import shutil
from collections.abc import Collection
from pathlib import Path

import sentencepiece

from pipeline.vocab.config import VocabConfig
from pipeline.vocab.new_pieces import NewText, with_new_pieces
from pipeline.vocab.pieces import Pieces
from pipeline.vocab.rows import RowSources
from pipeline.vocab.symbols import is_filler
from pipeline.vocab.vocabulary import ADDED_TAGS, ORIGINAL, VOCABULARY, vocabulary_sha256

logger = logging.getLogger(__name__)


def tag_token(code: str, tokens: Collection[str]) -> str:
    """Return the token for a new language, in the form of the others: `__cv__` in M2M100, `chv_Cyrl` in NLLB.

    NLLB's form is ISO 639-3 and ISO 15924. A region or variant of the code follows: `por_Latn_BR` for pt-BR.

    code: BCP-47 code of the language.
    tokens: the tags that the vocabulary has.
    Raises ValueError for a malformed code, or one of a language that ISO 639-3 does not know.
    """
    import langcodes  # late, because it loads its tables

    if has_m2m100_form(tokens):
        return f"__{code}__"
    language = langcodes.Language.get(code, normalize=False)
    try:
        parts = [language.to_alpha3(), language.maximize().script, language.territory, *(language.variants or ())]
    except LookupError as error:
        raise ValueError(f"{code} is no language of ISO 639-3") from error
    return "_".join(part for part in parts if part)


def has_m2m100_form(tokens: Collection[str]) -> bool:
    """Return whether tags are those of M2M100, such as `__de__`."""
    return any(token.startswith("__") for token in tokens)


def extend_imported(config: VocabConfig, text: NewText, base: Path, out: Path) -> None:
    """Write the imported vocabulary `base` with the tags and pieces of `vocab.extend` to `out`, and log them.

    A tag takes an id that no token has, the first one after the last token. So transformers, which numbers added tokens
    without gaps, gives a tag the same id. Pieces come last. With null in place of a relative a tag starts from the mean
    of all tags.

    text: the run's training text.
    Raises ValueError if vocab.extend_size is too small for the characters of the new text.
    """
    relatives = config.extend or {}
    content = json.loads((base / VOCABULARY).read_text(encoding="utf-8"))
    model, tags = Pieces.read(base / "shared.model", imported=True), content["tags"]
    tokens = [model.names[index] for index in tags.values()]
    new = {code: tag_token(code, tokens) for code in relatives}
    sources = {new[code]: [tags[relative]] if relative else [*tags.values()] for code, relative in relatives.items()}
    grown = with_new_pieces(config, model.with_tags(sources), text, "shared")
    new_tags = {code: grown.names.index(token) for code, token in new.items()}
    (out / "shared.model").write_bytes(grown.proto.SerializeToString())
    before, after = (sum(not is_filler(name) for name in names) for names in (model.names, grown.names))
    content |= {
        "source_size": len(grown.rows),
        "target_size": len(grown.rows),
        "tags": {**tags, **new_tags},
        ADDED_TAGS: [*content.get(ADDED_TAGS, []), *new],
        "sentencepiece": sentencepiece.__version__,
        "changes": {"shared": {"before": before, "added": after - before, "removed": 0, "after": after}},
    }
    (out / VOCABULARY).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    shutil.copytree(base / ORIGINAL, out / ORIGINAL, dirs_exist_ok=True)
    RowSources(vocabulary=vocabulary_sha256(base), source=grown.rows, target=grown.rows).save(out)
    for code, index in new_tags.items():
        start = f"that of {relatives[code]}" if relatives[code] else "the mean of all tags"
        logger.info("vocabulary: %s has the new tag %s, id %d, which starts from %s", code, new[code], index, start)
