import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from eval.records.run_record import LossPoint
from eval.report.plots.labels import spread
from eval.report.plots.loss import LossSeries, plot_loss, plot_losses
from eval.report.plots.scores import ScorePoint, correlations, plot_bleu_by_resource, plot_trendline
from eval.report.plots.style import PALETTE, compact_count, inline_svg, save_figure, series_style
from eval.report.plots.trendline import TrendPoint


def _gains(count: int, offset: float = 0.0) -> list[TrendPoint]:
    return [
        TrendPoint(
            pair=f"l{n}-en",
            label=f"l{n}",
            train_pairs=6000 // (n + 1),
            delta=n + offset,
            ci_low=n - 1,
            ci_high=n + 1,
            joint=n + offset + np.linspace(-1.0, 1.0, 80),
        )
        for n in range(count)
    ]


def _scores(count: int) -> list[ScorePoint]:
    return [
        ScorePoint(label=f"l{n}", train_pairs=6000 // (n + 1), score=20 - n, ci_low=19 - n, ci_high=21 - n)
        for n in range(count)
    ]


def _texts(figure: Figure) -> list[str]:
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.axes[0].texts]


def _upright(figure: Figure) -> list[float]:
    """Return the places of the upright lines through the whole axes."""
    lines = [line.get_xdata() for line in figure.axes[0].lines]
    return [float(x[0]) for x in lines if len(x) == 2 and x[0] == x[1]]


@pytest.mark.parametrize("count", [1, 2, 3, 38])
def test_trendline_draws_any_number_of_pairs_in_order(tmp_path: Path, count: int) -> None:
    figure = plot_trendline({"moe": list(reversed(_gains(count)))})
    axes = figure.axes[0]
    assert ("moe" in _texts(figure)) == (count >= 8)  # at the end of a line, which fewer pairs do not have
    assert len(axes.collections) == (2 if count >= 8 else 1)  # the band beside the bars
    labels = [label.get_text().split()[0] for label in axes.get_xticklabels()]
    assert labels == [f"l{n}" for n in range(count)]
    assert "bilingual" in _texts(figure)
    save_figure(figure, tmp_path / "trendline", ("png",))
    assert (tmp_path / "trendline.png").read_bytes().startswith(b"\x89PNG")


def test_systems_differ_in_colour_line_and_marker_and_may_lack_pairs() -> None:
    systems = {"moe-8": _gains(9), "moe-32": _gains(8, 0.5), "dense": _gains(9, -1)}
    figure = plot_trendline(systems)
    legend = figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == list(systems)
    lines = legend.get_lines()
    assert [to_hex(line.get_color()) for line in lines] == list(PALETTE[:3])
    assert len({line.get_marker() for line in lines}) == 3
    styles = [series_style(number) for number in range(7)]
    assert len({style.line for style in styles}) == len({style.marker for style in styles}) == 7
    assert set(systems) <= set(_texts(figure))  # at the ends of their lines too
    assert len(figure.axes[0].collections) == 3  # bands; of three systems single points have no bars
    smoothed = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 100]
    assert len(smoothed) == 3
    assert {line.get_marker() for line in smoothed} == {"None"}
    few = plot_trendline({name: points[:7] for name, points in systems.items()}).axes[0]
    assert len(few.collections) == 0
    assert max(len(line.get_xdata()) for line in few.lines) == 7


def test_baselines_that_their_budget_cut_off_and_boundaries_of_their_settings_are_marked() -> None:
    points = [dataclasses.replace(point, baseline_unfinished=point.pair == "l1-en") for point in _gains(4)]
    plain, marked = plot_trendline({"moe": points[2:]}), plot_trendline({"moe": points}, boundaries=[2500, 6000, 10])
    labels = [label.get_text() for label in marked.axes[0].get_xticklabels()]
    assert labels == ["l0\n6k", "l1†\n3k", "l2\n2k", "l3\n1.5k"]
    assert "† its baseline ended by budget while still improving" in marked.axes[0].get_xlabel()
    assert "†" not in plain.axes[0].get_xlabel()

    # 6,000 rows belong to the lower side of a boundary of 6,000; all pairs have more than 10.
    assert _upright(marked) == [1.5]
    assert _upright(plain) == []
    assert [text for text in _texts(marked) if "2.5k" in text] == [
        "baselines of 2.5k pairs\nor fewer: other settings →"
    ]


def test_svg_is_the_same_every_time_and_undated(tmp_path: Path) -> None:
    for name in ("first", "second"):
        save_figure(plot_trendline({"moe": _gains(5)}), tmp_path / name, ("svg",))
    first = (tmp_path / "first.svg").read_bytes()
    assert first == (tmp_path / "second.svg").read_bytes()
    assert b"<dc:date>" not in first


def test_inline_svg_has_its_own_ids_and_the_colours_of_the_page() -> None:
    svg = inline_svg(plot_trendline({"moe": _gains(3)}), "gain", "a &quot;description&quot;")
    assert svg.startswith('<svg role="img" aria-label="a &quot;description&quot;"')
    assert 'id="gain-axes_1"' in svg
    assert "var(--series-0)" in svg
    assert PALETTE[0] not in svg
    assert "<metadata>" not in svg


def test_resource_plot_names_languages_and_the_baseline() -> None:
    points = _scores(9)
    few = plot_bleu_by_resource({"moe-8": points}, points[::-1])
    assert {f"l{n}" for n in range(9)} == set(_texts(few))
    assert [text.get_text() for text in few.legends[0].get_texts()][1] == "bilingual, with 95 % interval"
    many = plot_bleu_by_resource({"moe-8": points, "moe-32": points[1:]}, points[::-1])
    assert {f"l{n}" for n in range(9)} | {"moe-8", "moe-32", "bilingual"} == set(_texts(many))
    curves = [line for line in many.axes[0].lines if len(line.get_xdata()) > 100]
    assert [line.get_marker() for line in curves] == ["None"] * 3
    fewer = plot_bleu_by_resource({"moe-8": points[:7], "moe-32": points[:7]}, points[:7])
    assert not {"moe-8", "moe-32", "bilingual"} & set(_texts(fewer))


@pytest.mark.parametrize("systems", [1, 3])
def test_the_resource_plot_has_the_marks_of_the_baselines_too(systems: int) -> None:
    points = _scores(9)
    baseline = [dataclasses.replace(point, unfinished=point.label == "l1") for point in points]
    scores = {f"moe-{number}": points for number in range(systems)}
    plain, marked = (
        plot_bleu_by_resource(scores, points),
        plot_bleu_by_resource(scores, baseline, [2500, 6000, 10]),
    )
    labels = {f"l{n}" for n in range(9)}
    assert labels <= set(_texts(plain))
    assert labels - {"l1"} | {"l1†"} <= set(_texts(marked))
    assert "l1" not in _texts(marked)
    assert "† its baseline ended by budget while still improving" in marked.axes[0].get_xlabel()
    assert "†" not in plain.axes[0].get_xlabel()
    assert _upright(marked) == [2500]  # all pairs have more than 10, and none more than 6,000
    assert _upright(plain) == []
    boundary = [text for text in marked.axes[0].texts if "2.5k" in text.get_text()]
    assert [text.get_text() for text in boundary] == ["← baselines of 2.5k pairs\nor fewer: other settings"]
    pair_labels = [text for text in marked.axes[0].texts if text.get_text() in labels and text.get_rotation() == 0]
    box = Text.get_window_extent(boundary[0])
    assert not any(box.overlaps(Text.get_window_extent(text)) for text in pair_labels)
    several = plot_bleu_by_resource(scores, points, [900, 2500])
    several.draw_without_rendering()
    first, second = (Text.get_window_extent(t) for t in several.axes[0].texts if t.get_text().startswith("←"))
    assert not first.overlaps(second)
    own_mark = plot_bleu_by_resource({"moe": baseline}, points)  # the budget of the system, not of a baseline
    assert not any("†" in text for text in _texts(own_mark))


def test_labels_above_columns_that_coincide_do_not_overlap() -> None:
    points = [dataclasses.replace(point, train_pairs=5000) for point in _scores(9)] + _scores(10)[9:]
    figure = plot_bleu_by_resource({"a": points, "b": points, "c": points})
    figure.draw_without_rendering()
    boxes = [
        Text.get_window_extent(text) for text in figure.axes[0].texts if text.get_rotation() == 90
    ]  # without their lines
    assert len(boxes) == 10
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[:place])


def test_correlations_are_said_where_they_are_defined() -> None:
    points = _scores(6)
    sentence = correlations({"moe-8": points, "bilingual": points[::-1], "two": points[:2]})
    assert sentence == "Spearman’s ρ of the two: moe-8 1.00, bilingual 1.00."
    for undefined in (points[:2], [dataclasses.replace(point, score=5.0) for point in points]):
        assert correlations({"moe": undefined}) == (
            "Spearman’s ρ is undefined: there are fewer than three pairs, or all have one score or one size."
        )


def test_plots_without_points_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one pair"):
        plot_trendline({"moe": []})
    with pytest.raises(ValueError, match="no points"):
        plot_bleu_by_resource({})
    with pytest.raises(ValueError, match="no loss to plot"):
        plot_loss([], [])
    with pytest.raises(ValueError, match="no loss to plot"):
        plot_losses([LossSeries(system="a", train=[], validation=[])], "time")


@pytest.mark.parametrize(("num_train", "num_validation"), [(1, 0), (0, 1), (60, 4)])
def test_loss_plot_draws_what_there_is(num_train: int, num_validation: int) -> None:
    def points(count: int, pairs: dict[str, float]) -> list[LossPoint]:
        return [
            LossPoint(step=n, target_tokens=100 * n, cross_entropy=3 + 2 / n, pairs=pairs) for n in range(1, count + 1)
        ]

    figure = plot_loss(points(num_train, {}), points(num_validation, {"de-en": 3.0, "fr-en": 3.0}))
    assert set(_texts(figure)) == ({"de-en", "fr-en"} if num_validation else set())


def test_losses_of_several_runs_are_drawn_by_tokens_and_by_hours() -> None:
    def run(system: str, speed: int) -> LossSeries:
        points = [
            LossPoint(step=n, target_tokens=100 * n, cross_entropy=3 + 2 / n, pairs={}, seconds=3600.0 * n / speed)
            for n in range(1, 21)
        ]
        return LossSeries(system=system, train=points, validation=points[9::10])

    runs = [run("dense", 1), run("dense", 1), run("moe", 2)]
    by_tokens, by_time = plot_losses(runs, "tokens").axes[0], plot_losses(runs, "time").axes[0]
    assert [line.get_xdata()[-1] for line in by_tokens.lines] == [2000] * 6
    assert [line.get_xdata()[-1] for line in by_time.lines] == [20, 20, 20, 20, 10, 10]
    assert by_time.get_xlabel() == "training time (hours)"
    assert sorted(text.get_text() for text in by_time.texts) == ["dense", "moe"]


def test_spread_keeps_order_and_distance_and_moves_no_more_than_needed() -> None:
    assert spread([5.0, 1.0], 1.0) == [5.0, 1.0]
    assert spread([2.0, 2.0, 2.0], 1.0) == [1.0, 2.0, 3.0]
    assert spread([0.0, 0.5, 9.0], 1.0) == [-0.25, 0.75, 9.0]
    assert spread([], 1.0) == []


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (6000, "6k"), (1234, "1.2k"), (232_397, "232k"), (999_999, "1M"), (2.5e6, "2.5M")],
)
def test_compact_counts(count: float, text: str) -> None:
    assert compact_count(count) == text
