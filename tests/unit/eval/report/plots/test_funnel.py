from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from eval.report.plots.funnel import plot_funnel
from eval.report.plots.style import save_figure
from tests.unit.eval.funnels import pair_funnel

RULES = ["empty_side", "too_long", "length_ratio", "identical", "few_letters", "digits", "sentence_ends"]
RULES += ["script", "held_out", "language", "duplicate", "near_duplicate"]


def _bars(figure: Figure) -> list[tuple[str, list[float], str, str]]:
    """Return (name, widths, colour, hatch) of each series."""
    return [
        (str(c.get_label()), [p.get_width() for p in c.patches], to_hex(c.patches[0].get_facecolor()), h or "")
        for c in figure.axes[0].containers
        for h in [c.patches[0].get_hatch()]
    ]


@pytest.mark.parametrize("count", [1, 7, 38])
def test_bars_are_the_shares_of_the_rules(tmp_path: Path, count: int) -> None:
    funnels = [pair_funnel(f"l{n}-en", 1000, {"too_long": 10, "held_out": n, "digits": 0}) for n in range(count)]
    figure = plot_funnel(funnels, {f"l{n}-en": f"l{n}" for n in range(count)})
    widths_of = {name: widths for name, widths, _, _ in _bars(figure)}
    assert widths_of["too long"] == [0.01] * count
    assert widths_of.get("held out", [0]) == pytest.approx([n / 1000 for n in range(count)])
    assert "digits" not in widths_of
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"l{n}" for n in range(count)]
    assert axes.texts[0].get_text() == "990 of 1,000 kept"
    save_figure(figure, tmp_path / "funnel", ("svg",))
    assert b"990 of 1,000 kept" in (tmp_path / "funnel.svg").read_bytes()


def _looks(rules: Sequence[str]) -> list[tuple[str, list[float], str, str]]:
    return _bars(plot_funnel([pair_funnel("de-en", 1000, dict.fromkeys(rules, 2))], {}))


def test_twelve_rules_look_different_and_more_share_one_bar() -> None:
    assert len({(colour, hatch) for _, _, colour, hatch in _looks(RULES)}) == len(RULES) == 12
    names = [name for name, _, _, _ in _looks([*RULES, "mine", "yours"])]
    assert len(names) == 12
    assert names[-1] == "all other rules"
    assert _looks([*RULES, "mine", "yours"])[-1][1] == [pytest.approx(0.006)]


def test_nothing_removed_and_nothing_to_plot() -> None:
    figure = plot_funnel([pair_funnel("de-en", 10, {"too_long": 0})], {})
    assert figure.axes[0].get_xlim()[1] > 0.01
    assert not figure.legends
    with pytest.raises(ValueError, match="no pair"):
        plot_funnel([], {})
