"""What data sets call a language, from its BCP-47 code."""

from collections.abc import Callable, Mapping

import langcodes


def _iso639_3(code: str) -> str:
    return langcodes.get(code).to_alpha3()


def _flores(code: str) -> str:
    """ISO 639-3 and script, as FLORES and NLLB write them: deu_Latn, zho_Hans."""
    tag = langcodes.get(code)
    return f"{tag.to_alpha3()}_{tag.script or tag.maximize().script}"


SCHEMES: Mapping[str, Callable[[str], str]] = {
    "bcp47": lambda code: code,
    "iso639-3": _iso639_3,
    "flores": _flores,
}


def own_code(code: str, scheme: str, renames: Mapping[str, str]) -> str:
    """Code by which a data set names the language: as the manifest's `codes` say, or else by a scheme.

    renames: name in the files -> BCP-47, the manifest's `codes`; where several mean one language, the first is taken.
    Raises ValueError for a scheme that is not known or has no code for the language.
    """
    named = next((name for name, meant in renames.items() if meant == code), None)
    if named is not None:
        return named
    if scheme not in SCHEMES:
        raise ValueError(f"no codes are called {scheme!r}; the schemes are {', '.join(SCHEMES)}")
    try:
        return SCHEMES[scheme](code)
    except LookupError as error:
        raise ValueError(f"{code} has no {scheme} code; name it in the manifest, as codes: {{xyz: {code}}}") from error


def from_iso639_3(code: str) -> str:
    """BCP-47 code of an ISO 639-3 code, with script and country where they are given: deu is de, por_BR is pt-BR."""
    return langcodes.standardize_tag(code)


def is_language(code: str) -> bool:
    """Whether all parts of a BCP-47 code are registered (zh-Hans is, br-EN is not)."""
    return langcodes.tag_is_valid(code)
