"""Scores of a challenge set: for each kind of changed line the loss in chrF++, against the same lines unchanged.

The unchanged lines are part of the set, and the same search translates all of them. To compare, the change is made to
the translation of the unchanged line too: a full stop is removed, a word is looked for. So a model loses nothing if it
translates a changed line as it translates the unchanged one, apart from the change. A line that has to be copied as it
is has no unchanged line, and is compared with the copy.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.language import TURKIC, without_full_stop
from eval.records.challenge import KINDS, PLAIN, ChallengeRow, save_challenge
from eval.records.run_record import Translation, load_run, load_translations
from eval.score.significance import NUM_RESAMPLES, SEED, Resampled, compare, resample
from eval.text_table import aligned

METRIC = "chrf++"


def write_challenge(run_dir: Path, *, n_resamples: int = NUM_RESAMPLES, seed: int = SEED) -> None:
    """Score every system, pair and kind of a challenge set, from run.json and translations/, and write challenge.csv.

    Raises ValueError for a missing file, and for lines that no plain line belongs to.
    """
    record = load_run(run_dir)
    rows: list[ChallengeRow] = []
    for pair in record.pairs_by_resource:
        for system in record.systems_of(pair):
            lines, target = load_translations(run_dir, system, pair), record.languages[pair][1]
            for kind in KINDS:
                if scores := score_kind(lines, kind, target, n_resamples=n_resamples, seed=seed):
                    rows.append(_row(pair, system, kind, *scores))
    save_challenge(run_dir, rows)


def score_kind(
    lines: Sequence[Translation], kind: str, tgt: str, *, n_resamples: int = NUM_RESAMPLES, seed: int = SEED
) -> tuple[Resampled, Resampled] | None:
    """Score the plain and the changed lines of a kind, on the same resamples. None if no line is of this kind.

    lines: the translated challenge set of one pair.
    """
    changed = [line for line in lines if line.kind == kind]
    if not changed:
        return None
    references = [line.reference for line in changed]
    plain = [_expected(kind, _plain_line(lines, line).hypothesis, line.reference) for line in changed]
    texts = [plain, [line.hypothesis for line in changed], references]
    if KINDS[kind].any_case:
        texts = [[_folded(text, tgt) for text in of_system] for of_system in texts]
    before, after = resample(texts[:2], texts[2], tgt, METRIC, n_resamples=n_resamples, seed=seed)
    return before, after


def text_table(rows: Sequence[ChallengeRow], titles: Mapping[str, str]) -> str:
    """Return the rows as a table for a terminal. titles: of the systems."""
    systems = list(dict.fromkeys(row.system for row in rows))
    header = ["pair", "kind", "lines"]
    for system in systems:
        header += [f"{titles[system]} plain", "changed", "loss", "95 % of it"]
    by_place = {(row.pair, row.kind, row.system): row for row in rows}
    lines = [header]
    for pair, kind in dict.fromkeys((row.pair, row.kind) for row in rows):
        of_place = [by_place.get((pair, kind, system)) for system in systems]
        line = [pair, KINDS[kind].title, str(next(row.n_test for row in of_place if row))]
        for row in of_place:
            numbers = [f"{row.plain:.2f}", f"{row.changed:.2f}", f"{row.loss:.2f}"] if row else ["", "", ""]
            line += [*numbers, f"{row.ci_low:.2f} to {row.ci_high:.2f}" if row and row.has_interval else ""]
        lines.append(line)
    return aligned(lines, left=(0, 1))


def _row(pair: str, system: str, kind: str, plain: Resampled, changed: Resampled) -> ChallengeRow:
    loss = compare(plain, changed)
    return ChallengeRow(
        pair=pair,
        system=system,
        kind=kind,
        n_test=plain.n,
        plain=plain.score,
        changed=changed.score,
        loss=loss.delta,
        ci_low=loss.ci_low,
        ci_high=loss.ci_high,
        p_value=loss.p_value,
        signature=plain.signature,
    )


def _plain_line(lines: Sequence[Translation], line: Translation) -> Translation:
    plain = lines[line.plain_line - 1] if line.plain_line and line.plain_line <= len(lines) else None
    if plain is None or plain.kind != PLAIN:
        raise ValueError(f"a line of the kind {line.kind} names no plain line; score the challenge set again")
    return plain


def _expected(kind: str, hypothesis: str, reference: str) -> str:
    """Return the translation of a plain line with the change of its kind."""
    if kind == "full_stop":
        return without_full_stop(hypothesis)
    if kind == "word":
        return reference if reference in re.findall(r"[^\W\d_]+", hypothesis) else ""
    if kind in ("number", "url", "emoji"):
        return reference
    return hypothesis


def _folded(text: str, tgt: str) -> str:
    if tgt.split("-")[0] in TURKIC:
        text = text.replace("İ", "i").replace("I", "ı")
    return text.casefold()
