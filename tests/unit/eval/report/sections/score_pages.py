"""Pages of scores for the tests of this folder: runs made and scored, and the cells of their tables."""

from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from eval import number_format
from eval.records.results import group_seeds, load_results
from eval.report.sections.scores import scores_section
from eval.report.templating import environment
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun

RESAMPLES = 40


def scored_run(
    make_run: MakeRun, folder: str, damage: dict[str, float], pairs: list[str], num_lines: int = 20, **keys: Any
) -> tuple[str, Path]:
    """Make a run in a folder, with damaged translations, and score it. Returns its label and its directory."""
    run_dir = make_run(pairs, damage, num_lines, folder, **keys)
    write_scores(run_dir, metrics=["bleu", "chrf"], n_resamples=RESAMPLES)
    return folder, run_dir


def section_of(out: Path, runs: list[tuple[str, Path]]) -> Mapping[str, Any]:
    """Return the content of the section of scores on a page of these runs."""
    return scores_section(out, group_seeds(load_results(runs)))


class Rows(HTMLParser):
    """The cells of every row of the tables of a page. Spanned cells are in it once."""

    def __init__(self, section: Mapping[str, Any]) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.text = environment().get_template("scores_section.html.j2").render(scores=section, n=number_format)
        self.inside = False
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True
        elif tag == "br" and self.inside:
            self.rows[-1][-1] += " "

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data
