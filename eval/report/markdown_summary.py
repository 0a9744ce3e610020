"""The file summary.md: scores of a run and its baselines as a Markdown table, and one line with its time and machine.

The README shows the summary of the demo between the two comments MARKERS.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from eval.number_format import MISSING, decimal, duration, integer, signed
from eval.records.ending import MARK, MEANING
from eval.records.results import RunResults, load_results
from eval.records.run_record import Json
from eval.records.scores import BASELINE, SYSTEM, Change, SignificanceRow
from eval.report.summary import PairSummary, ensemble_sentence, summarise

SUMMARY, COMMAND = "summary.md", "command.json"
MARKERS = ("<!-- demo table: runs/demo/summary.md -->\n", "<!-- end of demo table -->\n")
VERSIONS = ("python", "torch", "deepspeed", "sentencepiece", "sacrebleu")


def write_summary(run_dir: Path, into: Path | None = None) -> Path:
    """Write summary.md into a finished run's directory and return its path.

    into: a Markdown file, in which the summary replaces the text between MARKERS.
    Raises ValueError for a file without MARKERS, and for a directory without run.json or scores.
    """
    text = render_summary(load_results([("", run_dir)])[0], _read_command(run_dir / COMMAND))
    if into is not None:
        _replace(into, text)
    path = run_dir / SUMMARY
    path.write_text(text, encoding="utf-8")
    return path


def render_summary(run: RunResults, command: Json) -> str:
    """Return the table and the lines below it as Markdown. command: the contents of command.json, empty without it."""
    summaries = summarise(run)
    note = [f"{MARK} {MEANING}.", ""] if any(summary.unfinished for summary in summaries) else []
    unjudged = [f"{s.pair} ({s.no_verdict})" for s in summaries if _lacks_verdict(s)]
    note += [f"No verdict, neither significant nor not: {', '.join(unjudged)}.", ""] if unjudged else []
    note += [f"Ensemble:{sentence}", ""] if (sentence := ensemble_sentence(run.record)) else []
    began = bool(run.forgetting)
    head, rows = table_head("MoE" if run.is_moe else "dense", began), [table_row(s, began) for s in summaries]
    return "\n".join([*head, *rows, "", *note, provenance(run, command), ""])


def table_head(kind: str, began: bool = False) -> list[str]:
    """Return the two lines above the rows.

    kind: the multilingual model, MoE or dense.
    began: whether its training started from a model that could translate some pairs.
    """
    before = ("BLEU before", "since") if began else ()
    columns = ("pair", "training pairs", f"BLEU, {kind}", *before, "BLEU, bilingual", "difference and 95 % interval")
    return [_cells(columns), "|---" + "|---:" * (len(columns) - 1) + "|"]


def table_row(summary: PairSummary, began: bool = False) -> str:
    """Return one pair's line of the table. began: as in `table_head`."""
    gain, change = summary.gains.get("bleu"), summary.forgetting.get("bleu")
    before: tuple[str, ...] = ()
    if began:
        before = (decimal(change.before), signed(change.delta) + _interval(change)) if change else (MISSING, MISSING)
    own, bilingual = (
        decimal(summary.score(name, "bleu")) + (f" {MARK}" if name in summary.unfinished else "")
        for name in (SYSTEM, BASELINE)
    )
    difference = signed(summary.gain("bleu")) + _interval(gain) + (", no verdict" if _lacks_verdict(summary) else "")
    return _cells((summary.pair, integer(summary.train_pairs), own, *before, bilingual, difference))


def _lacks_verdict(summary: PairSummary) -> bool:
    """Return True if the pair has a difference from its bilingual model, but no verdict on it."""
    return "bleu" in summary.gains and bool(summary.no_verdict)


def _interval(row: SignificanceRow | Change | None) -> str:
    return "" if row is None else f" [{signed(row.ci_low)}, {signed(row.ci_high)}]"


def provenance(run: RunResults, command: Json) -> str:
    """Return the line with time, machine, versions, commit and date, as far as the run recorded them."""
    environment = run.record.environment
    parts = []
    if command:
        rest = f"{command['made']} stages; earlier commands had finished the others"
        work = rest if command["earlier"] else "the whole command"
        parts.append(f"{duration(command['seconds'])} for {work}")
    if "cpu" in environment:
        cores = environment["cores"]
        parts.append(f"{environment['cpu']}, {cores} core{'s' if cores != 1 else ''}")
    parts.append(", ".join(f"{name} {environment[name]}" for name in VERSIONS if name in environment))
    parts.append(f"commit {run.record.commit}" if run.record.commit not in ("", "unknown") else "")
    parts.append(run.record.created[:10])
    return "; ".join(part for part in parts if part) + "."


def _cells(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _read_command(path: Path) -> Json:
    if not path.is_file():
        return {}
    command: Json = json.loads(path.read_text(encoding="utf-8"))
    return command


def _replace(path: Path, text: str) -> None:
    before, begin, following = path.read_text(encoding="utf-8").partition(MARKERS[0])
    _, end, after = following.partition(MARKERS[1])
    if not (begin and end):
        raise ValueError(
            f"{path} lacks the lines {' and '.join(m.strip() for m in MARKERS)}; put them around the table"
        )
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
