"""Labels of figures do not cover each other, and legends do not leave the figure."""

from itertools import combinations

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from eval.report.plots.faults import FaultPoint, FaultPoints, plot_faults
from eval.report.plots.labels import label_line_ends
from eval.report.plots.style import INK, new_axes


def texts_of(figure: Figure) -> list:
    figure.draw_without_rendering()
    return [text for text in figure.axes[0].texts if text.get_text()]


@pytest.mark.parametrize("places", [(0.84, 0.84, 0.91, 0.95), (0.2, 0.25, 0.96, 0.97), (0.5, 0.93, 1.0)])
def test_labels_of_lines_that_end_close_together_do_not_cover_each_other(places: tuple[float, ...]) -> None:
    figure, axes = new_axes(5.6, 4.8)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    ends = [(x, 0.5 + 0.001 * number, f"system {number}", INK) for number, x in enumerate(places)]
    label_line_ends(figure, axes, ends, INK)
    boxes = [Text.get_window_extent(text) for text in texts_of(figure)]  # without the lines to them
    assert len(boxes) == len(places)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.parametrize(("length", "columns"), [(5, 4), (30, 2), (100, 1)])
def test_a_legend_has_as_many_columns_as_its_names_leave_room_for(length: int, columns: int) -> None:
    points = [FaultPoint(label="de-en", train_pairs=600, share=0.1)]
    systems = {f"{number}{'x' * length}": points for number in range(4)}
    figure = plot_faults(FaultPoints(what="faulty translations", systems=systems, baseline=[], floors=points))
    (legend,) = figure.legends
    figure.draw_without_rendering()
    assert legend._ncols == columns
    assert columns == 1 or legend.get_window_extent().width <= figure.bbox.width
