"""The page translations.html: every sentence of the test sets by all systems, to search, to sort and to filter.

A further test set has such a page of its own, translations-NAME.html.
"""

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from eval import number_format
from eval.language import text_direction
from eval.records.faults import FAULTS, load_faulty_lines
from eval.records.results import RunResults, load_results
from eval.records.scores import METRICS
from eval.report.sections.further_tests import FurtherTest, further_page
from eval.report.sections.sentence_choice import sentence_scores
from eval.report.sections.sentences import ALL_SENTENCES, ShownSystems, shown_systems
from eval.report.templating import environment

# The most translations on a page, so that a browser can load it. Two systems and the baselines of 38 pairs with 700
# lines fit. Such a page, with texts of 120 characters and Cyrillic sources, took 23 s on two cores and has 18 MB.
MOST_TRANSLATIONS = 80_000
_SCRIPT = Path(__file__).parent / "templates" / "browser.js"
Faults = dict[tuple[str, str], dict[int, list[str]]]


def write_browser(out: Path, runs: Sequence[RunResults], title: str, name: str = ALL_SENTENCES) -> None:
    """Write the page `name` into a directory if the records of the runs permit it, else remove an earlier one.

    The page has its data and its script in it, needs no network, and may load nothing.
    Raises ValueError for missing translations.
    """
    every = shown_systems(runs)
    if every is None:
        (out / name).unlink(missing_ok=True)
        return
    systems = every.limited(MOST_TRANSLATIONS)
    shown_runs = [*systems.seeds, *([systems.baselines] if systems.baselines else [])]
    faults_of = {run.directory: _faults(run) for run in shown_runs}
    data = {
        "metric": METRICS[systems.metric].title,
        "faults": FAULTS,
        "pairs": [_pair(pair, systems, faults_of) for pair in systems.pairs],
    }
    script = _SCRIPT.read_text(encoding="utf-8")
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")  # ends no element
    page = (
        environment()
        .get_template("browser.html.j2")
        .render(
            title=title,
            n=number_format,
            metric=data["metric"],
            faults=FAULTS,
            pairs=systems.pairs,
            several=len(every.seeds) > 1,
            seeds=len(every.seeds) < len(runs),
            baselines=systems.baselines.label if systems.baselines else None,
            too_many=[run.label for run in every.seeds[len(systems.seeds) :]],
            most=MOST_TRANSLATIONS,
            uncounted=[run.label for run in systems.seeds if not run.faults],
            script=Markup(script),
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            data=Markup(text),
        )
    )
    partial = out / f"{name}.partial"
    partial.write_text(page, encoding="utf-8")
    partial.replace(out / name)


def write_further_browsers(out: Path, tests: Sequence[FurtherTest], title: str) -> None:
    """Write the page of each further test set whose sentences may be shown, and remove earlier ones."""
    for old in out.glob(further_page("*")):
        old.unlink()
    for test in tests:
        if test.page:
            write_browser(out, load_results(test.directories.items()), f"{title}: {test.title}", test.page)


def _pair(pair: str, systems: ShownSystems, faults_of: Mapping[Path, Faults]) -> dict[str, Any]:
    """Return the languages of a pair and its rows: source, reference, and of each system text, score and faults.

    faults_of: faults by the directory of a run.
    """
    by_label, left_out = systems.translations(pair)
    runs = systems.runs(pair)
    source, target = next(iter(runs.values()))[0].record.languages[pair]
    first = next(iter(by_label.values()))
    hypotheses = [[line.hypothesis for line in lines] for lines in by_label.values()]
    scores = sentence_scores(hypotheses, [line.reference for line in first], target, systems.metric)
    faults = [faults_of[runs[label][0].directory].get((pair, runs[label][1]), {}) for label in by_label]
    return {
        "pair": pair,
        "source": [source, text_direction(source)],
        "target": [target, text_direction(target)],
        "systems": list(by_label),
        "leftOut": left_out,
        "rows": [
            [
                line.source,
                line.reference,
                *(
                    [texts[place], round(float(scores[number, place]), 3), faults[number].get(place + 1, [])]
                    for number, texts in enumerate(hypotheses)
                ),
            ]
            for place, line in enumerate(first)
        ],
    }


def _faults(run: RunResults) -> Faults:
    """Return the faults of a run's translations by (pair, system) and the number of the line."""
    faults: Faults = defaultdict(lambda: defaultdict(list))
    for row in load_faulty_lines(run.directory):
        faults[row.pair, row.system][row.line].append(row.fault)
    return faults
