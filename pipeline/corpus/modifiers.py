"""Modifiers: rules that turn a sentence pair into what users type, such as capitals, typos or a single word.

Challenge sets and training use the same functions. Case, final punctuation, typos and merged lines are what OpusTrainer
(github.com/hplt-project/OpusTrainer) changes too. A modifier takes source and target, their languages and a generator,
and returns the changed source and target, or None where it does not apply. Its result depends on these alone.
"""

import re
import unicodedata
from collections.abc import Callable
from random import Random

from eval.language import TURKIC, without_full_stop
from pipeline.corpus.languages import LangPair

TextPair = tuple[str, str]  # source and target
Modifier = Callable[[str, str, LangPair, Random], TextPair | None]

LETTERS_PER_TYPO = 20
_ONE_CASE = ("ka", "kat")  # Unicode has capitals of Georgian letters, but Georgian has no case
_FIRST_LETTER = re.compile(r"(?<!\S)[^\w\s]*[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]{4,}")
_SITES = ("babel", "forum", "gallery", "garden", "library", "market", "museum", "news", "photos", "station")
_PAGES = ("about", "contact", "files/list", "help", "index.html", "item?id=", "p/", "search?q=", "tag/", "wiki/")
_EMOJI = "😀😂😅😉😊😍😎😘😜😢😭😱😴🙂🙄🙈👀👋👍👎👏💔💡💪💯🌍🌞🌸🍀🍎🍕🎁🎉🎵🏠🐱🐶🔥🚀🚗🚲🤔🤷🥳"


def upper(source: str, target: str, pair: LangPair, rng: Random) -> TextPair | None:
    """Write both sides in capitals."""
    text = _capitals(source, pair.src)
    return None if text == source else (text, _capitals(target, pair.tgt))


def title(source: str, target: str, pair: LangPair, rng: Random) -> TextPair | None:
    """Give every word of both sides a capital."""
    text = _headline(source, pair.src)
    return None if text == source else (text, _headline(target, pair.tgt))


def full_stop(source: str, target: str, pair: LangPair, rng: Random) -> TextPair | None:
    """Remove the final full stop, where both sides have one."""
    texts = without_full_stop(source), without_full_stop(target)
    return None if texts[0] == source or texts[1] == target else texts


def typos(source: str, target: str, pair: LangPair, rng: Random) -> TextPair | None:
    """Swap, drop or double a letter of the source, about one in LETTERS_PER_TYPO.

    The first letter of a word stays. Scripts with wide characters, such as Han and Hangul, are not typed so.
    """
    places = [place for place in range(1, len(source) - 1) if _is_typo_place(source, place)]
    if not places:
        return None
    letters = list(source)
    for place in sorted(rng.sample(places, max(1, len(places) // LETTERS_PER_TYPO)), reverse=True):
        one, two = letters[place : place + 2]
        letters[place : place + 2] = rng.choice(((two, one), (two,), (one, one, two)))
    return "".join(letters), target


def word(source: str, target: str, pair: LangPair, rng: Random) -> TextPair | None:
    """Leave a single word of at least four letters, which both sides spell alike: mostly a name."""
    in_target = set(_WORD.findall(target))
    words = [text for text in _WORD.findall(source) if text in in_target]
    if not words or words == source.split():
        return None
    text = rng.choice(words)
    return text, text


def number(source: str, target: str, pair: LangPair, rng: Random) -> TextPair | None:
    """Return a line with a number alone. Where the target has digits of its own script, it does not apply."""
    if any(character.isdecimal() and not character.isascii() for character in target):
        return None
    text = str(rng.randrange(10 ** rng.randint(1, 6)))
    return text, text


def url(source: str, target: str, pair: LangPair, rng: Random) -> TextPair | None:
    """Return a line with a URL alone."""
    text = f"https://www.{rng.choice(_SITES)}.{rng.choice(('org', 'com', 'net'))}/{rng.choice(_PAGES)}"
    text += str(rng.randrange(10000))
    return text, text


def emoji(source: str, target: str, pair: LangPair, rng: Random) -> TextPair | None:
    """Return a line with one to three emoji alone."""
    text = "".join(rng.choices(_EMOJI, k=rng.randint(1, 3)))
    return text, text


MODIFIERS: dict[str, Modifier] = {
    "upper": upper,
    "title": title,
    "full_stop": full_stop,
    "typos": typos,
    "word": word,
    "number": number,
    "url": url,
    "emoji": emoji,
}
ALONE = ("number", "url", "emoji")  # modifiers that use nothing of the source


def merged(first: TextPair, second: TextPair) -> TextPair:
    """Join two sentence pairs to one: with a space, or without one after a character of Chinese or Japanese."""
    source, target = (
        one + ("" if _is_unspaced(one[-1:]) else " ") + two for one, two in zip(first, second, strict=True)
    )
    return source, target


def _capitals(text: str, code: str) -> str:
    language = code.split("-")[0]
    if language in _ONE_CASE:
        return text
    return (text.replace("i", "İ") if language in TURKIC else text).upper()


def _headline(text: str, code: str) -> str:
    return _FIRST_LETTER.sub(lambda match: _capitals(match[0], code), text)


def _is_typo_place(text: str, place: int) -> bool:
    """Return whether the letter at a place and the next one may change: they differ, after a letter, without marks."""
    one, two = text[place], text[place + 1]
    if one == two or not all(_is_narrow_letter(letter) for letter in (text[place - 1], one, two)):
        return False
    return not unicodedata.category(text[place + 2 : place + 3] or " ").startswith("M")


def _is_narrow_letter(character: str) -> bool:
    return character.isalpha() and unicodedata.east_asian_width(character) not in ("W", "F")


def _is_unspaced(character: str) -> bool:
    if not character or unicodedata.category(character)[0] not in "LNP":  # emoji are wide too
        return False
    wide = unicodedata.east_asian_width(character) in ("W", "F")
    return wide and not unicodedata.name(character, "").startswith("HANGUL")
