"""tokenizer.json, for the `tokenizers` library, that gives the ids of a SentencePiece model of ours.

A text becomes tag of the target language + pieces + `</s>`. No text can contain a tag or another special symbol: with
split_special_tokens transformers looks for none in it, and here the ones that are written out in a text are cut in two
before pieces are looked for (`tokenizers` would take them for pieces; SentencePiece knows better).
"""

import re
from typing import Any

from pipeline.vocab.symbols import BOS, EOS, PAD, UNK
from pipeline.vocab.tokenizer import Vocabulary

TOKENIZATION = "tokenization_babelshard"
_SPACE = "▁"  # the character of SentencePiece for a space
_NEVER = -1e4  # score of a piece that must not be chosen


def tokenizer_json(vocabulary: Vocabulary, target: str) -> dict[str, Any]:
    """Return the content of tokenizer.json for a shared vocabulary. target: language whose tag each text gets."""
    model = vocabulary.source_model
    pieces = [model.id_to_piece(index) for index in range(vocabulary.source_size)]
    special = [BOS, PAD, EOS, UNK, *vocabulary.tags.values(), *vocabulary.source_tags.values()]
    written_out = [index for index in range(len(pieces)) if index in special or model.is_byte(index)]
    scores = [_NEVER if index in written_out else model.get_score(index) for index in range(len(pieces))]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(index, pieces[index]) for index in sorted(special)],
        "normalizer": _normalizer(),
        "pre_tokenizer": _cut([pieces[index] for index in written_out]),
        "post_processor": _template(pieces, vocabulary.tag(target)),
        "decoder": _decoder(),
        "model": {
            "type": "Unigram",
            "unk_id": UNK,
            "vocab": [list(item) for item in zip(pieces, scores, strict=True)],
            "byte_fallback": True,
        },
    }


def tokenizer_settings(vocabulary: Vocabulary, target: str, *, longest: int) -> dict[str, Any]:
    """Return the content of tokenizer_config.json. longest: tokens of the longest source."""
    name = vocabulary.source_model.id_to_piece
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "auto_map": {"AutoTokenizer": [None, f"{TOKENIZATION}.BabelshardTokenizer"]},
        "bos_token": name(BOS),
        "pad_token": name(PAD),
        "eos_token": name(EOS),
        "unk_token": name(UNK),
        "tags": {code: name(index) for code, index in vocabulary.tags.items()},
        "tgt_lang": target,
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": longest,
    }


def _added(index: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": content, **flags}


def _normalizer() -> dict[str, Any]:
    """Return SentencePiece's `identity`: spaces at the ends are removed, several become one, and one is put in front.

    It takes spaces off the end after writing them as ▁, so a ▁ of the text goes there too.
    """
    rules = [(r"\A +", ""), (rf"[ {_SPACE}]+\z", ""), (" {2,}", " ")]
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content} for pattern, content in rules
    ]
    steps.append({"type": "Prepend", "prepend": _SPACE})
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    return {"type": "Sequence", "normalizers": steps}


def _cut(symbols: list[str]) -> dict[str, Any]:
    """Return the rule that cuts <2de> in a text into < and 2de>."""
    rest = "|".join(re.escape(symbol[1:]) for symbol in symbols if symbol.startswith("<"))
    return {"type": "Split", "pattern": {"Regex": f"<(?={rest})"}, "behavior": "MergedWithPrevious", "invert": False}


def _template(pieces: list[str], tag: int) -> dict[str, Any]:
    def symbol(index: int, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": pieces[index], "type_id": segment}}

    single = [symbol(tag, 0), {"Sequence": {"id": "A", "type_id": 0}}, symbol(EOS, 0)]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}, symbol(EOS, 1)]
    used = {pieces[index]: {"id": pieces[index], "ids": [index], "tokens": [pieces[index]]} for index in (tag, EOS)}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": used}


def _decoder() -> dict[str, Any]:
    return {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1_000_000, "stop": 0},
        ],
    }
