"""Marks on the words of a translation that its reference does not have."""

import unicodedata
from difflib import SequenceMatcher
from functools import cache

from markupsafe import Markup, escape

# Scripts without spaces between words, as Unicode's names of characters begin.
_UNSPACED_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_WORD, _SPACE, _SINGLE, _MARK = range(4)


def words_of(text: str) -> list[str]:
    """Cut a text into words, spaces and punctuation marks, or into characters in scripts without spaces."""
    words: list[str] = []
    last = _SINGLE
    for character in text:
        kind = _kind(character)
        if words and (kind == _MARK or (kind == last and kind != _SINGLE)):
            words[-1] += character
            last = last if kind == _MARK else kind
        else:
            words.append(character)
            last = _WORD if kind == _MARK else kind
    return words


def mark_differences(hypothesis: str, reference: str) -> Markup:
    """Return the hypothesis as escaped HTML, with <u> around words that the reference does not have in that order."""
    words, reference_words = words_of(hypothesis), words_of(reference)
    matcher = SequenceMatcher(
        None,
        [word for word in words if not word.isspace()],
        [word for word in reference_words if not word.isspace()],
        autojunk=False,
    )
    places = [place for place, word in enumerate(words) if not word.isspace()]
    matching = {places[start + k] for start, _, size in matcher.get_matching_blocks() for k in range(size)}
    html, differing = Markup(), [place for place in places if place not in matching]
    end = 0
    while differing:
        first = last = differing.pop(0)
        while differing and all(words[k].isspace() for k in range(last + 1, differing[0])):
            last = differing.pop(0)
        html += escape("".join(words[end:first])) + Markup("<u>{}</u>").format("".join(words[first : last + 1]))
        end = last + 1
    return html + escape("".join(words[end:]))


@cache
def _kind(character: str) -> int:
    if character.isspace():
        return _SPACE
    category = unicodedata.category(character)[0]
    if category == "M":
        return _MARK
    if category in "PS" or unicodedata.name(character, "").startswith(_UNSPACED_SCRIPTS):
        return _SINGLE
    return _WORD
