import pytest

from eval.records.faults import REFERENCE, FaultRow, FaultyLine
from eval.records.run_record import Translation
from eval.score.faults import most_repeats, pair_faults, surely_more

ENGLISH = "Choose this command to save the document under another name."
GERMAN = "Wählen Sie diesen Befehl, um das Dokument unter einem anderen Namen zu speichern."
FRENCH = "Choisissez cette commande pour enregistrer le document sous un autre nom."
LOOP = "Wählen Sie diesen Befehl, wählen Sie diesen Befehl, wählen Sie diesen Befehl, wählen Sie diesen Befehl."


def lines_of(
    *texts: str, source: str = ENGLISH, reference: str = GERMAN, at_limit: bool | None = False
) -> list[Translation]:
    return [
        Translation(source=source, hypothesis=text, reference=reference, score=None, at_limit=at_limit)
        for text in texts
    ]


def counted(target: str, translations: list[Translation]) -> tuple[FaultRow, FaultRow, list[FaultyLine]]:
    """Return the rows of a system and of the references, and the system's faulty lines."""
    (own, floor), lines = pair_faults(f"en-{target}", target, {"moe": translations})
    assert (own.system, floor.system) == ("moe", REFERENCE)
    return own, floor, [line for line in lines if line.system == "moe"]


def test_every_fault_is_counted_and_its_line_is_listed() -> None:
    texts = [GERMAN, FRENCH, "", " ", ENGLISH.upper(), LOOP, GERMAN]
    translations = lines_of(*texts)
    translations[6:] = lines_of(GERMAN, at_limit=True)
    own, floor, lines = counted("de", translations)
    assert (own.n_test, own.judged, own.wrong_language, own.empty, own.copied) == (7, 5, 2, 2, 1)
    assert (own.repeated, own.truncated, own.faulty, own.not_judged) == (1, 1, 6, "")
    assert own.length_ratio == pytest.approx(sum(map(len, texts)) / (7 * len(GERMAN)))
    assert {(line.fault, line.line, line.degree, line.language) for line in lines} == {
        ("wrong_language", 2, len(FRENCH), "fr"),
        ("wrong_language", 5, len(ENGLISH), "en"),
        ("empty", 3, len(ENGLISH), ""),
        ("empty", 4, len(ENGLISH), ""),
        ("copied", 5, len(ENGLISH), ""),
        ("repeated", 6, 3, ""),
        ("truncated", 7, len(GERMAN), ""),
    }
    assert (floor.judged, floor.faulty, floor.truncated, floor.length_ratio) == (7, 0, 0, 1.0)


def test_references_have_their_own_rates_and_lines() -> None:
    same = lines_of("Weiter", source="LibreOffice Calc", reference="LibreOffice Calc")
    rows, lines = pair_faults("en-de", "de", {"moe": same, "bilingual": same})
    assert [(row.system, row.copied) for row in rows] == [("moe", 0), ("bilingual", 0), (REFERENCE, 1)]
    assert [(line.system, line.fault, line.line) for line in lines] == [(REFERENCE, "copied", 1)]


def test_numbers_are_no_copies_and_short_texts_have_no_language() -> None:
    own, _, _ = counted("de", lines_of("12.5 %", "Save …", source="12.5 %"))
    assert (own.copied, own.judged, own.wrong_language) == (0, 0, 0)


def test_relatives_of_the_target_are_not_wrong() -> None:
    serbian = "Ne koristite nijednu reč koja se nalazi u rečnicima ili u nekom jeziku."
    own, _, _ = counted("hr", lines_of(serbian, GERMAN, reference=serbian))
    assert (own.judged, own.wrong_language) == (2, 1)


@pytest.mark.parametrize(("wrong", "judged"), [(1, True), (2, False)])
def test_a_language_is_not_judged_where_its_references_are_taken_for_another(wrong: int, judged: bool) -> None:
    translations = lines_of(*[FRENCH] * wrong, reference=FRENCH) + lines_of(*[GERMAN] * (60 - wrong))
    own, floor, lines = counted("de", translations)
    assert floor.wrong_language == wrong
    assert (own.judged, own.wrong_language, own.faulty) == ((60, wrong, wrong) if judged else (0, 0, 0))
    assert own.not_judged == floor.not_judged
    assert own.not_judged == ("" if judged else "3.3 % of its references are taken for another language")
    assert len(lines) == (wrong if judged else 0)
    assert floor.faulty == (wrong if judged else 0)


def test_a_language_that_the_model_does_not_know_is_not_judged() -> None:
    own, floor, _ = counted("tlh", lines_of(ENGLISH.replace("document", "tlhIngan"), reference=ENGLISH))
    assert own.not_judged == floor.not_judged == "the model does not know tlh"
    assert (own.judged, floor.judged, own.faulty) == (0, 0, 0)


def test_translations_without_a_record_of_the_limit_are_not_counted_as_whole() -> None:
    own, floor, _ = counted("de", lines_of(GERMAN, at_limit=None))
    assert (own.truncated, floor.truncated) == (None, 0)


def test_a_repetition_that_the_source_has_is_no_fault() -> None:
    source = "to be or not, to be or not, to be or not, to be or not,"
    own, _, _ = counted("de", lines_of(LOOP, source=source))
    assert own.repeated == 0


@pytest.mark.parametrize(
    ("more", "fewer", "surely"),  # p of the binomial test: 2/64, 2/32, 22/1024, 18/256, 1
    [(6, 0, True), (5, 0, False), (9, 1, True), (7, 1, False), (0, 6, False), (0, 0, False), (3000, 2000, True)],
)
def test_more_faults_than_the_references_are_sure_by_mcnemars_test(more: int, fewer: int, surely: bool) -> None:
    same = range(-50, 0)  # lines that are faulty on both sides count for neither
    assert surely_more({*same, *range(more)}, {*same, *range(10_000, 10_000 + fewer)}) is surely


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("", 1),
        ("a b c", 1),
        ("a b c d e a b c d f a b c d", 3),
        ("the the the the the the", 3),
        ("the the the the the", 2),
        ("a b c a b d a b e a b", 1),  # two words recur, and no four
        ("打开文件的时候请选择" * 3, 3),
        ("ok " * 3 + "打开文件", 1),  # four characters and three words
        ("a b c d a b c d a b c d 漢", 3),  # a quoted character changes nothing for words
        ("請選擇檔案,再請選擇檔案,又請選擇檔案", 1),  # four characters, and no eight
    ],
)
def test_the_most_frequent_ngram_is_counted(text: str, times: int) -> None:
    assert most_repeats(text) == times
