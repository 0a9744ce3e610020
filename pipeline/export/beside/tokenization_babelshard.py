"""The tokenizer with a target language that can be chosen."""

from collections.abc import Mapping
from typing import Any

from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast


class _WithTarget(PreTrainedTokenizerFast):  # type: ignore[misc]
    def __init__(self, *args: Any, tags: Mapping[str, str], tgt_lang: str, **kwargs: Any) -> None:
        super().__init__(*args, tags=tags, tgt_lang=tgt_lang, **kwargs)
        self.tags = dict(tags)
        self.tgt_lang = tgt_lang

    @property
    def tgt_lang(self) -> str:
        return self._tgt_lang

    @tgt_lang.setter
    def tgt_lang(self, code: str) -> None:
        if code not in self.tags:
            raise ValueError(f"tgt_lang={code!r} is none of the target languages: {', '.join(self.tags)}")
        self._tgt_lang = code
        tag, end = self.tags[code], self.eos_token
        self.backend_tokenizer.post_processor = TemplateProcessing(
            single=[tag, "$A", end],
            pair=[tag, "$A", end, "$B:1", f"{end}:1"],
            special_tokens=[(symbol, self.convert_tokens_to_ids(symbol)) for symbol in (tag, end)],
        )


class BabelshardTokenizer(_WithTarget):
    """tgt_lang: the language to translate into, whose tag each text begins with; may be set at any time.

    tags: symbol of each language that there is. transformers 5 reads tokenizer.json only where the class itself has no
    __init__.
    """
