"""The tags that were added to an imported NLLB, in the files of its tokenizer for transformers."""

import json
from pathlib import Path
from typing import Any

from pipeline.vocab.imported_tags import has_m2m100_form
from pipeline.vocab.symbols import UNK, is_filler
from pipeline.vocab.vocabulary import Vocabulary

SETTINGS, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
FAST, OLD = "tokenizer.json", "added_tokens.json"
MASK = "<mask>"
FLAGS = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
MASK_FLAGS = {**FLAGS, "lstrip": True, "normalized": True}  # as NllbTokenizer has it


def check_added_tags(vocabulary: Vocabulary) -> None:
    """Raise ValueError if tags were added to M2M100, whose tokenizer has a fixed list of languages."""
    if vocabulary.added_tags and has_m2m100_form(_names(vocabulary, [*vocabulary.tags.values()])):
        raise ValueError(
            f"vocab.extend added {', '.join(vocabulary.added_tags)} to an imported M2M100, and its tokenizer in "
            "transformers has a fixed list of languages; translate here (make translate, make serve), or extend and "
            "export an imported NLLB"
        )


def write_added_tags(vocabulary: Vocabulary, directory: Path) -> None:
    """Add the tags that an import did not have to the files of its tokenizer in a directory.

    tokenizer_config.json then has the ids of all special tokens, as transformers from 4.34 on writes it.
    """
    new = [vocabulary.tags[code] for code in vocabulary.added_tags]
    if not new:
        return
    tokens = dict(zip(new, _names(vocabulary, new), strict=True))
    settings: dict[str, Any] = {"tokenizer_class": "NllbTokenizer", **_read(directory / SETTINGS)}
    special = _special(vocabulary)
    entries = {str(index): _entry(name) for index, name in special.items()}
    settings["added_tokens_decoder"] = {**entries, **settings.get("added_tokens_decoder", {})}
    settings["additional_special_tokens"] = [name for index, name in special.items() if index > UNK and name != MASK]
    _write(directory / SETTINGS, settings)
    if (directory / SPECIAL_TOKENS).is_file():
        names = _read(directory / SPECIAL_TOKENS)
        listed = names.get("additional_special_tokens") or []
        _write(directory / SPECIAL_TOKENS, {**names, "additional_special_tokens": [*listed, *tokens.values()]})
    if (directory / FAST).is_file():
        content = _read(directory / FAST)
        listed = content.get("added_tokens") or []
        content["added_tokens"] = [*listed, *({"id": index, **_entry(name)} for index, name in tokens.items())]
        _write(directory / FAST, content)
    if (directory / OLD).is_file():
        _write(directory / OLD, {**_read(directory / OLD), **{name: index for index, name in tokens.items()}})


def _special(vocabulary: Vocabulary) -> dict[int, str]:
    """Return all special tokens by id, in the order of ids."""
    model = vocabulary.source_model
    ids = [index for index in range(vocabulary.source_size) if index == UNK or model.is_control(index)]
    tokens = dict(zip(ids, _names(vocabulary, ids), strict=True))
    return {index: name for index, name in tokens.items() if not is_filler(name)}


def _names(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    return [vocabulary.source_model.id_to_piece(index) for index in ids]


def _entry(name: str) -> dict[str, Any]:
    return {"content": name, **(MASK_FLAGS if name == MASK else FLAGS)}


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
