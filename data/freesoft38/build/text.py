"""Text rules that every source shares: cleaning, counting, sentences, and the form in which texts are compared."""

import re
import unicodedata

INVISIBLE = re.compile("[\u00ad\u200b\ufeff]")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=(\S))|(?<=[。！？])(?=(\S))")
NO_LETTERS = re.compile(r"[\W\d_]+")
# Han, kana and Khmer put no space between words: two of their characters count as a word.
UNSPACED = re.compile("[\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def clean(text: str) -> str:
    """Return the text in NFC, without invisible characters, with single spaces."""
    return " ".join(INVISIBLE.sub("", unicodedata.normalize("NFC", text)).split())


def count_words(text: str) -> int:
    """Count half the characters of scripts that are written without spaces, and the white-space tokens of the rest."""
    return len(UNSPACED.findall(text)) // 2 + len(UNSPACED.sub(" ", text).split())


def normalise(text: str) -> str:
    """Return the lower-case words of the text, letters only: texts that agree in this form count as the same."""
    return NO_LETTERS.sub(" ", text.lower()).strip()


def word_runs(text: str, length: int) -> set[str]:
    """Return every run of `length` words of a normalised text; none if the text is shorter."""
    words = text.split()
    return {" ".join(words[start : start + length]) for start in range(len(words) - length + 1)}


def split_sentences(text: str) -> list[str]:
    """Split a cleaned paragraph after a full stop, an exclamation or a question mark."""
    parts, start = [], 0
    for match in SENTENCE_END.finditer(text):
        first = match[1]
        if first is None or first == "(" or first.isupper() or unicodedata.category(first) == "Lo":
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


def align_sentences(foreign: str, english: str) -> list[tuple[str, str]]:
    """Pair the sentences of two paragraphs where their numbers agree, else the paragraphs as wholes."""
    foreign_parts, english_parts = split_sentences(foreign), split_sentences(english)
    if len(foreign_parts) == len(english_parts):
        return list(zip(foreign_parts, english_parts, strict=True))
    return [(foreign, english)]
