"""Removal of the rows with the lowest scores from a cleaned pair. N: its training rows."""

import gzip
import json
import logging
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.corpus.bitext import BitextWriter, iter_bitext
from pipeline.corpus.cleaning.clean import FEW_ROWS, REMOVED
from pipeline.corpus.cleaning.codepoints import Bools, Ints
from pipeline.corpus.funnel import FUNNEL, funnel
from pipeline.corpus.learned_config import Limits
from pipeline.files import write_atomically

SCORES = "scores.tsv.gz"
_NUM_EXAMPLES = 3

_log = logging.getLogger(__name__)

Scores = npt.NDArray[np.float64]


def dual_score(forward: Scores, backward: Scores) -> Scores:
    """Return exp(-(|HA - HB| + (HA + HB) / 2)) (arXiv:1809.00197): 1 is best, 0 is worst.

    forward, backward: HA and HB, the cross-entropies of the two directions, in nats per token.
    """
    score: Scores = np.exp(-(np.abs(forward - backward) + (forward + backward) / 2))
    return score


def places(scores: Scores, is_second: Bools) -> Scores:
    """Return the place of each row in its half: 0 for the lowest score of the half, rising to less than 1: [N].

    scores: [N], comparable within a half alone.
    is_second: [N], True for the rows of the second half.
    """
    result = np.empty(len(scores))
    for half in (is_second, ~is_second):
        rows = np.flatnonzero(half)
        result[rows[np.argsort(scores[rows], kind="stable")]] = np.arange(len(rows)) / max(1, len(rows))
    return result


def worst_rows(scores: Scores, limits: Limits) -> Ints:
    """Return the numbers of the rows to remove, the worst first; of equal scores the earlier row goes first.

    scores: [N], NaN for a row without a score, which stays.
    """
    order = np.argsort(scores, kind="stable")[: np.count_nonzero(~np.isnan(scores))]  # NaN comes last
    count = int(limits.share * len(order))
    if limits.min_score is not None:
        count = max(count, int(np.searchsorted(scores[order], limits.min_score)))
    return order[:count]


def remove_worst(
    cleaned: Path,
    scores: Scores,
    parts: Mapping[str, Scores],
    limits: Limits,
    *,
    rule: str,
    keep_removed: bool,
    out: Path,
) -> None:
    """Write a cleaned pair without its worst rows to `out`, its funnel with one rule more, and `scores.tsv.gz`.

    scores: [N], as in `worst_rows`.
    parts: numbers of each row that its score is made of, by name, for `scores.tsv.gz`.
    rule: name of the rule in the funnel.
    keep_removed: also write all removed rows, those of the rules first.
    Raises ValueError if no row is left.
    """
    content = funnel(cleaned)
    assert len(scores) == content["train"]["kept"], "each row needs a score, or NaN"
    worst = worst_rows(scores, limits)
    kept = np.ones(len(scores), dtype=bool)
    kept[worst] = False
    if not kept.any():
        raise ValueError(
            f"pair {content['pair']}: all {len(scores)} rows have a score below "
            f"corpus.learned.min_score={limits.min_score}; lower it, or set it to null"
        )
    ends = [0, *accumulate(source["kept"] for source in content["sources"])]
    spans = list(zip(ends, ends[1:], strict=False))
    of_sources = [worst[(worst >= start) & (worst < end)][:_NUM_EXAMPLES].tolist() for start, end in spans]
    examples = {row: ["", ""] for rows in (worst[:_NUM_EXAMPLES].tolist(), *of_sources) for row in rows}
    _write_rows(cleaned, {"score": scores, **parts}, kept, examples, rule if keep_removed else None, out)
    for split in ("dev", "test"):
        shutil.copyfile(cleaned / f"{split}.arrow", out / f"{split}.arrow")
    content["train"]["removed"][rule] = len(worst)
    content["train"]["kept"] = int(kept.sum())
    content["examples"][rule] = [examples[row] for row in worst[:_NUM_EXAMPLES].tolist()]
    for source, (start, end), rows in zip(content["sources"], spans, of_sources, strict=True):
        source["kept"] = int(kept[start:end].sum())
        source["examples"][rule] = [examples[row] for row in rows]
    write_atomically(out / FUNNEL, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    if kept.sum() < FEW_ROWS:
        _log.warning("pair %s: only %d train rows are left after corpus.learned", content["pair"], kept.sum())


def _write_rows(
    cleaned: Path,
    columns: Mapping[str, Scores],
    kept: Bools,
    examples: dict[int, list[str]],
    rule: str | None,
    out: Path,
) -> None:
    """Write `train.arrow`, `scores.tsv.gz`, and the removed rows if there is a rule to write beside them.

    columns: numbers of all rows by the name of their column.
    examples: gets the texts of those rows that are its keys.
    """
    start = 0
    if rule is not None:
        shutil.copyfile(cleaned / REMOVED, out / REMOVED)
    with ExitStack() as stack:
        writer = stack.enter_context(BitextWriter(out / "train.arrow"))
        table = stack.enter_context(gzip.GzipFile(out / SCORES, "wb", mtime=0))
        removed = stack.enter_context(gzip.GzipFile(out / REMOVED, "ab", mtime=0)) if rule is not None else None
        table.write("\t".join([*columns, "removed", "source", "target"]).encode() + b"\n")
        for batch in iter_bitext(cleaned, "train"):
            mask = kept[start : start + batch.num_rows]
            writer.write(batch.filter(pa.array(mask)))
            texts = zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True)
            for row, (source, target) in enumerate(texts, start):
                numbers = ["" if np.isnan(values[row]) else f"{values[row]:.6g}" for values in columns.values()]
                table.write("\t".join([*numbers, "01"[not kept[row]], source, target]).encode() + b"\n")
                if removed is not None and not kept[row]:
                    removed.write(f"{rule}\t{source}\t{target}\n".encode())
                if row in examples:
                    examples[row] = [source, target]
            start += batch.num_rows
