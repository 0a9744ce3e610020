"""The BCP-47 codes of the languages that a checkpoint of M2M100 or NLLB has tags for."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from pipeline.corpus.languages import LangPair, normalize_code, parse_pairs

_M2M = re.compile(r"__([a-z]{2,3}(?:-[A-Za-z0-9]+)*)__")  # of the original, letters alone
M2M_LANGUAGES = (  # the tags of M2M100, in the order of their ids; its files need not name them
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi "
    "hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns "
    "oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh "
    "zu"
)
_FLORES = re.compile(  # ISO 639-3 and ISO 15924, as in NLLB; then a region and variants, where a run of ours added it
    r"([a-z]{3})_([A-Z][a-z]{3})((?:_[A-Za-z0-9]+)*)"
)
# where the standard has another name, or none, and where a macrolanguage has no other language in NLLB
_NAMED = {"ns": "nso", "arb": "ar", "prs": "prs", "tgl": "tl", "pbt": "ps", "quy": "qu", "fuv": "ff"}


def tag_language(token: str) -> str:
    """Return the checkpoint's own code for the language of a token, such as de or deu_Latn; empty for another token."""
    match = _M2M.fullmatch(token)
    return match[1] if match else token if _FLORES.fullmatch(token) else ""


def bcp47_codes(codes: Sequence[str]) -> dict[str, str]:
    """Return a BCP-47 code for each of the checkpoint's own codes: the shortest that is clear among them.

    deu_Latn becomes de, but zho_Hans and zho_Hant become zh-Hans and zh-Hant.
    """
    import langcodes  # late, because it loads its tables

    candidates = {}
    for code in codes:
        flores = _FLORES.fullmatch(code)
        language = flores[1] if flores else code
        named = _NAMED.get(language)
        if flores is None:
            candidates[code] = (named or normalize_code(code),) * 3
        else:
            short, macro = (named or langcodes.standardize_tag(language, macro=macro) for macro in (False, True))
            script, further = flores[2], flores[3].replace("_", "-")
            if further and langcodes.Language.get(short + further).maximize().script != script:
                further = f"-{script}{further}"  # sr-Latn-RS, because sr-RS is in Cyrillic
            candidates[code] = (macro + further, short + further, (further and short + further) or f"{short}-{script}")
    names: dict[str, str] = {}
    for rank in range(3):
        counts = Counter(
            [*names.values(), *(options[rank] for code, options in candidates.items() if code not in names)]
        )
        names |= {
            c: options[rank] for c, options in candidates.items() if c not in names and counts[options[rank]] == 1
        }
    return names


def pairs_of(texts: Sequence[str], codes: Mapping[str, str], source: str) -> tuple[LangPair, ...]:
    """Return the directions that a user names, in BCP-47 codes or in the checkpoint's own. Raises ValueError.

    codes: BCP-47 code by the checkpoint's own code.
    source: name of the checkpoint, for messages.
    """
    if not texts:
        raise ValueError(
            f"LANG_PAIRS is empty; give the directions to translate, such as de-en; FROM={source} has "
            f"{', '.join(sorted(codes.values()))}"
        )
    translated = []
    for text in texts:
        sides = text.split("-")
        is_own = len(sides) == 2 and all(side in codes for side in sides)
        translated.append(":".join(codes[side] for side in sides) if is_own else text)
    try:
        return parse_pairs(translated, codes.values())
    except ValueError as error:
        raise ValueError(f"LANG_PAIRS: {error}") from error
