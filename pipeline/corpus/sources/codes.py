"""Codes of languages in data sets, from and to BCP-47."""

from collections.abc import Callable, Mapping

import langcodes

from pipeline.corpus.languages import MissingPairError

LISTED = "listed"  # the scheme of a manifest whose `codes` name all languages that its corpus has


def _iso639_3(code: str) -> str:
    return langcodes.get(code).to_alpha3()


def _flores(code: str) -> str:
    """Return ISO 639-3 code and script, as in FLORES and NLLB: deu_Latn, zho_Hans."""
    tag = langcodes.get(code)
    return f"{tag.to_alpha3()}_{tag.script or tag.maximize().script}"


SCHEMES: Mapping[str, Callable[[str], str]] = {
    "bcp47": lambda code: code,
    "iso639-3": _iso639_3,
    "flores": _flores,
}


def own_code(code: str, scheme: str, renames: Mapping[str, str]) -> str:
    """Return the code of a data set for a language, from the manifest's `codes` or else by a scheme.

    renames: the manifest's `codes`: BCP-47 code by name in the files. The first of several names is taken.
    Raises ValueError for an unknown scheme, MissingPairError for a language that a scheme has no code for, or that a
    manifest with all languages in `codes` does not list.
    """
    own_name = next((name for name, bcp47 in renames.items() if bcp47 == code), None)
    if own_name is not None:
        return own_name
    if scheme == LISTED:
        raise MissingPairError(f"the corpus has no {code}; it has {', '.join(sorted(set(renames.values())))}")
    if scheme not in SCHEMES:
        raise ValueError(f"no codes are called {scheme!r}; the schemes are {', '.join((*SCHEMES, LISTED))}")
    try:
        return SCHEMES[scheme](code)
    except LookupError as error:
        raise MissingPairError(
            f"{code} has no {scheme} code; name it in the manifest, as codes: {{xyz: {code}}}"
        ) from error


def from_iso639_3(code: str) -> str:
    """Return the BCP-47 code of an ISO 639-3 code with optional script and country: deu is de, por_BR is pt-BR."""
    return langcodes.standardize_tag(code)


def is_language(code: str) -> bool:
    """Return whether all parts of a BCP-47 code are registered (zh-Hans is, br-EN is not)."""
    return langcodes.tag_is_valid(code)
