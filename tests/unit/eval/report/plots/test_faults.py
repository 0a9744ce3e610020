from eval.report.plots.faults import FaultPoint, FaultPoints, plot_faults


def _points(count: int, share: float) -> list[FaultPoint]:
    return [FaultPoint(label=f"l{n}", train_pairs=6000 // (n + 1), share=share * n) for n in range(count)]


def test_every_system_is_drawn_and_the_highest_shares_are_named() -> None:
    systems = {"moe": _points(14, 0.02), "reference": _points(14, 0.005)}
    what = "translations in a wrong language"
    figure = plot_faults(FaultPoints(what=what, systems=systems, baseline=_points(14, 0.01), floors=_points(14, 0.0)))
    axes = figure.axes[0]
    labels = ["moe", "reference", "bilingual", "the test set’s own references"]
    assert [line.get_label() for line in axes.lines] == labels
    assert [list(line.get_ydata())[-1] for line in axes.lines] == [0.26, 0.065, 0.13, 0.0]
    assert {text.get_text() for text in axes.texts} == {f"l{n}" for n in range(4, 14)}
    assert axes.get_xscale() == "log"
    assert (axes.get_ylabel(), axes.get_title(loc="left")) == (
        "translations in a wrong language",
        "Translations in a wrong language by amount of training data",
    )
    assert axes.get_ylim()[0] == 0


def test_there_may_be_no_bilingual_models() -> None:
    systems = {"moe": _points(4, 0.02)}
    figure = plot_faults(FaultPoints(what="faulty translations", systems=systems, baseline=[], floors=_points(4, 0.0)))
    assert [line.get_label() for line in figure.axes[0].lines] == ["moe", "the test set’s own references"]
