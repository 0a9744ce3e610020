"""The check of languages, on the held-out rows of the sample."""

import numpy as np
import pyarrow as pa
import pytest
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from eval.language_id import GROUPS, unjudged
from eval.language_model import MAX_BYTES, language_model
from pipeline.corpus.cleaning.codepoints import Texts
from pipeline.corpus.cleaning.language_id import wrong_language

SENTENCES = {
    "en": "Choose this command to save the document under another name.",
    "es": "Elija esta orden para guardar el documento con otro nombre en el disco duro.",
    "pt": "Escolha este comando para gravar o documento com outro nome no disco rígido.",
    "hr": "Zaključavanje ovog ključa osigurava da korisnik ne može promijeniti postavke.",
    "sr-Latn": "Ne koristite nijednu reč koja se nalazi u rečnicima ili u nekom jeziku.",
    "ru": "Выберите эту команду, чтобы сохранить документ под другим именем.",
    "uk": "Виберіть цю команду, щоб зберегти документ під іншою назвою.",
}


@pytest.fixture(scope="module")
def held_out(held_out_texts: dict[str, list[str]]) -> dict[str, Texts]:
    return {code: texts_of(*column) for code, column in held_out_texts.items()}


def texts_of(*texts: str) -> Texts:
    return Texts.normalized(pa.array(texts, pa.string()))


def test_many_texts_at_once_have_the_probabilities_of_the_library(held_out: dict[str, Texts]) -> None:
    library = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    texts = [text for code in held_out for text in held_out[code].array.to_pylist()[:5]]
    texts = [text for text in [*texts, "ALL IN CAPITALS", "x", "12.5 %"] if len(text.encode()) <= MAX_BYTES]
    probabilities = language_model().probabilities(pa.array(texts))
    ranks = [dict(library.rank(text)) for text in texts]
    expected = np.array([[rank[label] for label in language_model().labels] for rank in ranks])
    assert len(texts) > 60
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)  # sums of float32 in another order


def test_clean_text_stays(held_out: dict[str, Texts]) -> None:
    assert len(held_out) == 14
    for code, texts in held_out.items():
        assert wrong_language(texts, code).mean() < 0.005, code


def test_text_of_another_language_is_removed(held_out: dict[str, Texts]) -> None:
    for code, texts in held_out.items():
        if code != "en":
            assert wrong_language(held_out["en"], code).mean() > 0.85, f"English as {code}"
            long_enough = np.flatnonzero(texts.lengths >= 10)
            assert wrong_language(texts, "en")[long_enough].mean() > 0.85, f"{code} as English"


def test_confused_languages_stay_and_others_are_removed() -> None:
    def removed(language: str, code: str) -> bool:
        return bool(wrong_language(texts_of(SENTENCES[language]), code)[0])

    assert not removed("hr", "sr-Latn")
    assert not removed("sr-Latn", "hr")
    assert removed("es", "pt")
    assert removed("pt", "es-MX")
    assert removed("ru", "uk")
    assert removed("uk", "ru")


def test_short_and_wordless_texts_are_not_judged() -> None:
    texts = texts_of("Save as", "", "1.5 + 2.5 = 4", "#include <stdio.h>", SENTENCES["en"])
    assert wrong_language(texts, "de").tolist() == [False, False, False, False, True]
    assert wrong_language(texts, "de", min_letters=50).tolist() == [False, False, False, False, True]
    assert wrong_language(texts, "de", min_letters=51).tolist() == [False] * 5


def test_more_certainty_removes_less(held_out: dict[str, Texts]) -> None:
    shares = [wrong_language(held_out["en"], "de", min_probability=p).mean() for p in (0.3, 0.5, 0.7, 0.9)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]


def test_texts_are_judged_on_their_own(held_out: dict[str, Texts]) -> None:
    texts = [*held_out["de"].array.to_pylist()[:20], *held_out["km"].array.to_pylist()[:20], SENTENCES["en"] * 30]
    assert len(texts[-1].encode()) > MAX_BYTES
    together = wrong_language(texts_of(*texts), "de").tolist()
    assert together == [bool(wrong_language(texts_of(text), "de")[0]) for text in texts]
    assert together[-1]
    assert not together[0]
    sliced = pa.array(["ignored", *texts]).slice(1)  # an array that does not begin at its buffers
    np.testing.assert_array_equal(
        language_model().probabilities(sliced), language_model().probabilities(pa.array(texts))
    )


def test_languages_that_the_model_does_not_know_are_not_judged() -> None:
    assert unjudged("tlh") == "the model does not know tlh"
    assert unjudged("kk-Arab") == "the model does not know kk in the script Arab"
    for code in ("de", "nb", "sr-Latn", "zh-Hant", "zh-TW", "cmn", "fil", "pt-BR", "ca-valencia"):
        assert unjudged(code) is None, code
    assert not wrong_language(texts_of(SENTENCES["en"]), "tlh")[0]


def test_groups_name_languages_of_the_model() -> None:
    assert {label for group in GROUPS for label in group} <= set(language_model().labels)
