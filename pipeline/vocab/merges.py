"""New pieces for a BPE model: merges that continue the pieces by which it cuts a new text."""

import io
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby, pairwise
from typing import Any

import sentencepiece

_SPACE = "\u2581"  # SentencePiece's sign for a space, with which a word begins
_STAND_INS = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))  # private characters of Unicode
_IN_WORDS = ("L", "M", "Cf")  # letters, their marks, and joiners: categories of Unicode, or their first letters


def learn_merges(model: Any, texts: Iterable[str], size: int, coverage: float, *, spare: int = 0) -> list[str]:
    """Return the pieces that a BPE model should get for a text, in the order of their merges.

    First come the characters that the model lacks. The others are learned by SentencePiece's own trainer of BPE. It
    gets the words of the text with one private character in place of each old piece, so that it merges old pieces as if
    they were characters. No merge crosses a space, a digit or a punctuation mark.

    model: a SentencePieceProcessor.
    size: largest number of pieces to return, without the spare ones.
    coverage: share of the characters of the text that get a piece; the rarest others stay unknown.
    spare: more merges to return, for a caller who leaves some out.
    Raises ValueError if the new characters alone are more than `size`.
    """
    rows = Counter(chain.from_iterable(_words(model, text) for text in texts))
    known_pieces = {model.id_to_piece(index) for index in range(model.get_piece_size())}
    characters = _new_characters(rows, known_pieces, coverage)
    if len(characters) > size:
        raise ValueError(
            f"vocab.extend_size={size} is too small for the {len(characters)} characters of this text that the "
            f"vocabulary lacks; choose {len(characters)} or more, or lower vocab.character_coverage={coverage}"
        )
    known_pieces.update(characters)
    parts: Counter[tuple[str, ...]] = Counter()
    for word, count in rows.items():
        for mergeable, pieces in groupby(word, key=lambda piece: piece in known_pieces and _is_in_words(piece)):
            if mergeable:
                parts[tuple(pieces)] += count
    merges = [piece for piece in _merges(parts, size - len(characters) + spare) if piece not in known_pieces]
    return [*characters, *dict.fromkeys(merges)]


def _words(model: Any, text: str) -> Iterator[tuple[str, ...]]:
    """Yield the pieces of each word of a text. A character that the model does not know is a piece."""
    word: list[str] = []
    for piece in model.encode(text, out_type=str):
        if piece.startswith(_SPACE) and word:
            yield tuple(word)
            word = []
        word += [piece] if model.piece_to_id(piece) != model.unk_id() else piece
    if word:
        yield tuple(word)


def _new_characters(words: Counter[tuple[str, ...]], known_pieces: set[str], coverage: float) -> list[str]:
    """Return the characters that are not known, the most frequent first, up to a share of all characters."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in "".join(word):
            counts[character] += count
    new, covered, total = [], 0, counts.total()
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= coverage * total:
            break
        covered += count
        if character not in known_pieces:
            new.append(character)
    return new


def _is_in_words(piece: str) -> bool:
    return all(unicodedata.category(character).startswith(_IN_WORDS) for character in piece.removeprefix(_SPACE))


def _merges(parts: Counter[tuple[str, ...]], size: int) -> list[str]:
    """Return at most `size` merges of neighbouring pieces, in their order.

    parts: how often each sequence of pieces occurs.
    """
    frequent = Counter[str]()
    for part, count in parts.items():
        for piece in part if len(part) > 1 else ():
            frequent[piece] += count
    codes = chain.from_iterable(_STAND_INS)
    stand_ins = {piece: chr(code) for (piece, _), code in zip(frequent.most_common(), codes, strict=False)}
    lines: Counter[str] = Counter()
    for part, count in parts.items():
        for has_one, pieces in groupby(part, key=stand_ins.__contains__):
            if has_one and len(line := "".join(stand_ins[piece] for piece in pieces)) > 1:
                lines[line] += count
    if not size or not lines:
        return []
    trained = _train(lines, len({*chain.from_iterable(lines)}) + size)
    names = [trained.id_to_piece(index) for index in range(trained.get_piece_size())]
    ranks = {name: place for place, name in enumerate(names) if len(name) > 1}
    used = {name for row in trained.encode([*lines], out_type=str) for name in row}
    needed = set().union(*(_steps(name, ranks) for name in used))
    pieces_of = {character: piece for piece, character in stand_ins.items()}
    return ["".join(pieces_of[character] for character in name) for name in ranks if name in needed]


def _train(lines: Mapping[str, int], size: int) -> Any:
    """Return a BPE model of at most `size` characters and merges. lines: words and their counts."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"{line}\t{lines[line]}" for line in sorted(lines)),
        model_writer=model,
        model_type="bpe",
        input_format="tsv",
        vocab_size=size + 1,  # and <unk>
        hard_vocab_limit=False,  # a text may have fewer merges
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        split_by_unicode_script=False,
        split_by_number=False,
        bos_id=-1,
        eos_id=-1,
        max_sentence_length=1 << 20,  # bytes
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def _steps(name: str, ranks: Mapping[str, int]) -> set[str]:
    """Return the merges by which BPE makes a piece of its characters.

    If a text has too few pairs, SentencePiece also adds pairs that no longer occur. They are no step of any piece that
    does.
    """
    parts, steps = list(name), set()
    while len(parts) > 1:
        merges = [left + right for left, right in pairwise(parts)]
        place = min(range(len(merges)), key=lambda index: ranks.get(merges[index], sys.maxsize))
        parts[place : place + 2] = [merges[place]]
        steps.add(merges[place])
    return steps
