import pytest

from eval.report.sections.word_marks import mark_differences, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Open the file, now.", ["Open", " ", "the", " ", "file", ",", " ", "now", "."]),
        ("a  b", ["a", "  ", "b"]),
        ("don't!", ["don", "'", "t", "!"]),
        ("हिन्दी में", ["हिन्दी", " ", "में"]),
        ("打开文件。OK", ["打", "开", "文", "件", "。", "OK"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("", []),
    ],
)
def test_words_make_up_the_text(text: str, words: list[str]) -> None:
    assert words_of(text) == words
    assert "".join(words) == text


@pytest.mark.parametrize(
    ("hypothesis", "reference", "marked"),
    [
        ("Open the file.", "Open the file.", "Open the file."),
        ("Close the old file.", "Open the file.", "<u>Close</u> the <u>old</u> file."),
        ("Click on the cell", "Select a cell", "<u>Click on the</u> cell"),
        ("the the the", "the end", "the <u>the the</u>"),
        ("打开新文件", "打开文件", "打开<u>新</u>文件"),
        ("<b> & co", "co", "<u>&lt;b&gt; &amp;</u> co"),
        ("", "Open", ""),
        ("all wrong", "", "<u>all wrong</u>"),
    ],
)
def test_words_that_the_reference_lacks_are_underlined(hypothesis: str, reference: str, marked: str) -> None:
    assert str(mark_differences(hypothesis, reference)) == marked
