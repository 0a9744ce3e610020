"""Language codes (BCP-47) and ordered pairs of them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.spelling import nearest_names

LONGEST_CODE = 64  # characters; BCP-47 needs at most 35 (RFC 5646, section 4.4.1)
LONGEST_PAIR = 2 * LONGEST_CODE + 1

# BCP-47 (RFC 5646): language, script, region, variants; no extlang, extensions or private use.
_BCP47 = re.compile(
    r"(?P<language>[a-z]{2,3})(-(?P<script>[a-z]{4}))?(-(?P<region>[a-z]{2}|[0-9]{3}))?"
    r"(?P<variants>(-([a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*)"
)
# Names of languages in packages (glibc, gettext, withdrawn ISO 639 codes), in lower case and with hyphens.
_ALIASES = {
    "zh-cn": "zh-Hans",
    "zh-sg": "zh-Hans-SG",
    "zh-tw": "zh-Hant",
    "zh-hk": "zh-Hant-HK",
    "iw": "he",
    "in": "id",
    "ji": "yi",
}
_COUNTRIES = {  # codes of countries that are often taken for those of their languages, and are no language themselves
    "cn": "zh",
    "cz": "cs",
    "dk": "da",
    "gb": "en",
    "gr": "el",
    "jp": "ja",
    "kr": "ko",
    "ua": "uk",
    "us": "en",
    "vn": "vi",
}
_MODIFIERS = {
    "latin": "latn",
    "cyrillic": "cyrl",
    "arabic": "arab",
    "devanagari": "deva",
    "valencia": "valencia",
}


class MissingPairError(ValueError):
    """An error for a corpus that lacks a language pair; its other pairs may be read."""


@dataclass(frozen=True, order=True)
class LangPair:
    """A translation direction from `src` to `tgt`, both BCP-47 codes."""

    src: str
    tgt: str

    def __post_init__(self) -> None:
        if not self.src or not self.tgt:
            raise ValueError(f"pair {self.src}:{self.tgt}: a side is empty; write it as de-en")
        if self.src == self.tgt:
            raise ValueError(f"pair {self.name}: source and target are one language; choose two")

    @property
    def name(self) -> str:
        return f"{self.src}-{self.tgt}"

    def __str__(self) -> str:
        return self.name


def normalize_code(code: str) -> str:
    """Return the BCP-47 form of a code in its usual case. Names of packages are translated: zh_CN is zh-Hans.

    Raises ValueError if the code is not well-formed, or has more than LONGEST_CODE characters.
    """
    if len(code) > LONGEST_CODE:
        raise ValueError(_malformed(code))
    base, at, modifier = code.strip().partition("@")
    text = base.replace("_", "-").lower()
    if at:
        if modifier.lower() not in _MODIFIERS:
            raise ValueError(_malformed(code))
        text = f"{text}-{_MODIFIERS[modifier.lower()]}"
    text = _ALIASES.get(text, text).lower()
    match = _BCP47.fullmatch(text)
    if match is None:
        raise ValueError(_malformed(code))
    parts = [match["language"]]
    if match["script"]:
        parts.append(match["script"].title())
    if match["region"]:
        parts.append(match["region"].upper())
    return "-".join(parts) + match["variants"]


def _malformed(code: str) -> str:
    excerpt = code if len(code) <= 40 else f"{code[:40]}…"  # it may be a whole line of text
    return f"language code {excerpt!r} is not of BCP-47 form; write it as de, pt-BR or zh-Hans"


def split_pair(text: str) -> list[tuple[str, str]]:
    """Return every way to cut `text` into source and target: at its colon, or else at each of its hyphens.

    Raises ValueError if the text has more than LONGEST_PAIR characters.
    """
    if len(text) > LONGEST_PAIR:
        raise ValueError(
            f"pair {text[:40]!r}… has {len(text)} characters, and two codes have at most {LONGEST_PAIR}; write it as "
            "de-en"
        )
    if ":" in text:
        source, _, target = text.partition(":")
        return [(source.strip(), target.strip())]
    cuts = [i for i, char in enumerate(text) if char == "-"]
    return [(text[:i], text[i + 1 :]) for i in cuts if text[:i] and text[i + 1 :]]


def check_pair_form(text: str) -> None:
    """Raise ValueError for a text that is no pair whatever codes a corpus has, because none is on either side."""
    if text.strip() in ("", "all") or split_pair(text):
        return
    cut = re.fullmatch(r"\s*([a-z]{2,3})[^a-z0-9@]+([a-z]{2,3})\s*|(..)2(..)|(..)(..)", text.lower())
    codes = [code for code in cut.groups() if code] if cut else []
    remedy = f"did you mean {'-'.join(codes)}?" if codes else "write it as de-en"
    raise ValueError(f"{text!r} is no pair, which has a hyphen between its codes; {remedy}")


def parse_pair(text: str, codes: Iterable[str], default_target: str | None = None) -> LangPair:
    """Return the pair that `text` names, as src-tgt or src:tgt (never ambiguous), among the given codes.

    Codes that match exactly win over codes that match after normalisation.

    default_target: used in the advice of error messages alone.
    Raises ValueError if a code is unknown, the text has two readings or is too long, or both sides are one language.
    """
    text = text.strip()
    corpus_codes = sorted(set(codes))
    candidates = split_pair(text)
    if not candidates:
        raise ValueError(_no_pair(text, corpus_codes, default_target))
    readings = {(s, t) for s, t in candidates if s in corpus_codes and t in corpus_codes}
    if not readings:
        resolved = ((_resolve(s, corpus_codes), _resolve(t, corpus_codes)) for s, t in candidates)
        readings = {(s, t) for s, t in resolved if s and t}
    if not readings:
        raise ValueError(_unknown_code(text, candidates, corpus_codes))
    if len(readings) > 1:
        listed = " or ".join(f"{s}:{t}" for s, t in sorted(readings))
        raise ValueError(f"pair {text!r} is ambiguous; write the one you mean, {listed}")
    return LangPair(*readings.pop())


def parse_pairs(
    pairs: str | Sequence[str], codes: Iterable[str], default_target: str | None = None
) -> tuple[LangPair, ...]:
    """Return the pairs of a list, or of a text with spaces or commas between them, in the order given.

    Raises ValueError as `parse_pair` does, and if a pair is named twice or none is named.
    """
    corpus_codes = sorted(set(codes))
    texts = re.split(r"[\s,]+", pairs.strip()) if isinstance(pairs, str) else list(pairs)
    texts = [text for text in texts if text]
    if not texts:
        raise ValueError(f"no language pair is given; name some, as src-tgt, of {', '.join(corpus_codes)}")
    parsed: dict[LangPair, str] = {}
    for text in texts:
        pair = parse_pair(text, corpus_codes, default_target)
        if pair in parsed:
            raise ValueError(f"pair {pair} is named twice ({parsed[pair]!r} and {text!r}); remove one")
        parsed[pair] = text
    return tuple(parsed)


def _resolve(text: str, corpus_codes: Sequence[str]) -> str | None:
    """Return the code of the corpus that `text` means, None if it has none."""
    try:
        code = normalize_code(text)
    except ValueError:
        return None  # the pair was cut in the wrong place; the caller reports a text without any reading
    return code if code in corpus_codes else None


def _meant(text: str, corpus_codes: Sequence[str]) -> str | None:
    """Return the code of the corpus for the language of `text`: with or without script and region, or of ISO 639-2."""
    import langcodes  # late, because it loads its tables

    standard = (
        _COUNTRIES.get(text.lower()) or langcodes.standardize_tag(text) if re.fullmatch("[A-Za-z]{2,3}", text) else text
    )
    for name in (text, standard):
        longer = [code for code in corpus_codes if name and code.lower().startswith(name.lower() + "-")]
        if code := _resolve(name, corpus_codes) or next(iter(longer), None):
            return code
    return _resolve(re.split("[-_]", text)[0], corpus_codes)


def _nearest(text: str, corpus_codes: Sequence[str]) -> str | None:
    """Return the code of the corpus for the language of `text`, or else the most similar one."""
    return _meant(text, corpus_codes) or next(iter(nearest_names(text, corpus_codes)), None)


def _cut_elsewhere(text: str, corpus_codes: Sequence[str]) -> tuple[str, str] | None:
    """Return the two codes of a text that has something else than a hyphen between them, as de_en, de2en or deen."""
    marks = [(match.start(), match.end()) for match in re.finditer(r"[^A-Za-z0-9@]+|2", text)]
    for start, end in marks or [(position, position) for position in range(2, len(text) - 1)]:
        src, tgt = (
            _meant(side, corpus_codes) if marks else _resolve(side, corpus_codes) for side in (text[:start], text[end:])
        )
        if src and tgt and src != tgt:
            return src, tgt
    return None


def _no_pair(text: str, corpus_codes: Sequence[str], default_target: str | None) -> str:
    listed = f"(the corpus has {', '.join(corpus_codes)})"
    if cut := _cut_elsewhere(text, corpus_codes):
        return f"{text!r} is no pair, which has a hyphen between its codes; did you mean {'-'.join(cut)}? {listed}"
    code = _nearest(text, corpus_codes)
    target = default_target or ("en" if "en" in corpus_codes else None)
    advice = f"did you mean {code}-{target}?" if code and target and code != target else "write it as src-tgt"
    return f"{text!r} is one language, or none, and no pair; {advice} {listed}"


def _unknown_code(text: str, candidates: Sequence[tuple[str, str]], corpus_codes: Sequence[str]) -> str:
    """Return a message that blames as little of `text` as possible, by the cut whose sides are known best."""
    pairs = re.split(r"[\s;+|]+", text)
    if len(pairs) > 1 and all(split_pair(pair) for pair in pairs):
        separate = f"{text!r} is several pairs in one; put commas between them, {','.join(pairs)}"
        return f"{separate} (the corpus has {', '.join(corpus_codes)})"

    def closeness(cut: tuple[str, str]) -> int:
        return sum(2 if _resolve(side, corpus_codes) else 1 if _nearest(side, corpus_codes) else 0 for side in cut)

    best = max(candidates, key=closeness)
    unknown = [side for side in best if not _resolve(side, corpus_codes)]
    nearest = [_nearest(side, corpus_codes) for side in best]
    blame = " and ".join(repr(side) for side in unknown)
    hint = ""
    if nearest[0] and nearest[1] and nearest[0] != nearest[1]:
        hint = f"; did you mean {nearest[0]}-{nearest[1]}?"
    return f"pair {text!r}: the corpus has no {blame}{hint} (it has {', '.join(corpus_codes)})"
