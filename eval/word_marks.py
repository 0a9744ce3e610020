"""Which words of a translation are not those of its reference."""

import unicodedata
from difflib import SequenceMatcher
from functools import cache

from markupsafe import Markup, escape

# As Unicode's names of characters begin.
_UNSPACED_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_WORD, _SPACE, _SINGLE, _MARK = range(4)


def words_of(text: str) -> list[str]:
    """Words, spaces and single punctuation marks that make up the text; in scripts without spaces single characters."""
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
    """The hypothesis as HTML, escaped, with <u> around runs of words that the reference does not have in that order."""
    ours, theirs = words_of(hypothesis), words_of(reference)
    matcher = SequenceMatcher(
        None,
        [word for word in ours if not word.isspace()],
        [word for word in theirs if not word.isspace()],
        autojunk=False,
    )
    places = [place for place, word in enumerate(ours) if not word.isspace()]
    same = {places[at + k] for at, _, size in matcher.get_matching_blocks() for k in range(size)}
    found, differing = Markup(), [place for place in places if place not in same]
    end = 0
    while differing:
        first = last = differing.pop(0)
        while differing and all(ours[k].isspace() for k in range(last + 1, differing[0])):
            last = differing.pop(0)
        found += escape("".join(ours[end:first])) + Markup("<u>{}</u>").format("".join(ours[first : last + 1]))
        end = last + 1
    return found + escape("".join(ours[end:]))


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
