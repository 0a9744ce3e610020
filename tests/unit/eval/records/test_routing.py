"""Numbers of routing against hand computations, and the section of the report that shows them."""

import csv
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval.records.results import RunResults
from eval.records.routing import LayerUse, distances, load_routing
from eval.records.run_record import load_run
from eval.records.specialisation import QUOTES, QUOTES_OF_A_PIECE, choose_quotes
from eval.report.plots.routing import plot_experts
from eval.report.sections.routing import routing_section
from eval.report.templating import environment
from tests.unit.eval.conftest import MakeRun, write_jsonl

# Expert 2 gets 1 and 2 of the 200 choices of a pair, which is 0.02 and 0.04 of a uniform share. Expert 3 gets none.
CHOSEN = {"de-en": [100, 99, 1, 0], "tr-en": [50, 148, 2, 0]}
EVEN = {"de-en": [50, 50, 50, 50], "tr-en": [50, 50, 50, 50]}


def layer(chosen: Mapping[str, list[int]], name: str = "encoder.2") -> LayerUse:
    chosen_PE = np.array(list(chosen.values()), dtype=np.float64)
    return LayerUse(name=name, tokens_P=np.full(len(chosen), 100.0), chosen_PE=chosen_PE, weight_PE=chosen_PE / 2)


def test_use_load_and_dead_experts_by_hand() -> None:
    use = layer(CHOSEN)
    np.testing.assert_allclose(use.relative_PE, [[2, 1.98, 0.02, 0], [1, 2.96, 0.04, 0]])
    np.testing.assert_allclose(use.load_E, [1.5, 2.47, 0.03, 0])
    shares = [0.375, 0.6175, 0.0075]
    assert use.load_entropy == pytest.approx(-sum(share * math.log(share) for share in shares))
    assert (use.dead, use.unused) == ([2], [3])
    variance = sum((load - 1) ** 2 for load in (1.5, 2.47, 0.03, 0)) / 4
    assert use.load_cv == pytest.approx(math.sqrt(variance))
    assert use.importance_cv == pytest.approx(use.load_cv)  # the weights are half of the choices


@pytest.mark.parametrize(("choices", "dead"), [(4, [2]), (5, [])])
def test_an_expert_that_one_pair_uses_is_not_dead(choices: int, dead: list[int]) -> None:
    """A tenth of a uniform share is 5 of 200 choices among 4 experts."""
    assert layer({"de-en": [100, 99, 1, 0], "tr-en": [50, 150 - choices, choices, 0]}).dead == dead


def test_an_even_load_has_the_entropy_of_its_experts() -> None:
    use = layer(EVEN)
    assert use.load_entropy == pytest.approx(math.log(4))
    assert (use.dead, use.unused) == ([], [])


def test_distances_by_hand() -> None:
    """Halves (1/2, 1/2, 0) and (1/2, 0, 1/2): entropy of the mixture 1.5 bits, of each 1, so a divergence of 1/2."""
    first = layer({"a-en": [4, 4, 0], "b-en": [4, 0, 4], "c-en": [80, 80, 0]})
    expected = [[0, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0]]
    np.testing.assert_allclose(distances([first]) ** 2, expected, atol=1e-12)
    apart = layer({"a-en": [1, 0, 0], "b-en": [0, 0, 1], "c-en": [1, 0, 0]})  # divergence 1: nothing in common
    np.testing.assert_allclose(distances([first, apart]) ** 2, 1.5 * np.array(expected), atol=1e-12)


@pytest.fixture
def make_routed(make_run: MakeRun, tmp_path: Path) -> Callable[..., RunResults]:
    """Return a function that makes a run with experts. layers: its recorded routing, None for none."""

    def make(
        label: str,
        layers: Mapping[str, Mapping[str, list[int]]] | None,
        num_experts: int = 4,
        specialisation: Mapping[str, Any] | None = None,
    ) -> RunResults:
        config = {"model": {"moe": {"num_experts": num_experts}}}
        directory = make_run(["de-en", "tr-en"], config=config).rename(tmp_path / label)
        if layers is not None:
            recorded = {
                name: {
                    pair: {"tokens": 100, "chosen": counts, "weight": [count / 2 for count in counts]}
                    for pair, counts in chosen.items()
                }
                for name, chosen in layers.items()
            }
            (directory / "routing.json").write_text(json.dumps({"split": "dev", "layers": recorded}), encoding="utf-8")
            write_jsonl(directory / "metrics.jsonl", [_train_record(step, layers) for step in range(10, 201, 10)])
        if specialisation is not None:
            text = json.dumps({"layers": specialisation})
            (directory / "specialisation.json").write_text(text, encoding="utf-8")
        return RunResults(label=label, directory=directory, record=load_run(directory), scores=(), gains=())

    return make


def _train_record(step: int, layers: Mapping[str, Any]) -> dict[str, Any]:
    layer_record = {"entropy": 1 / step, "drop_rate": step / 1000, "unserved": 0.0}
    record: dict[str, Any] = {"event": "train", "step": step, "target_tokens": 100 * step, "cross_entropy": 3.0}
    return record | {"experts_per_token": 1.5, "layers": dict.fromkeys(layers, layer_record)}


def test_a_dead_expert_is_flagged_and_each_run_has_its_part(
    make_routed: Callable[..., RunResults], tmp_path: Path
) -> None:
    runs = [
        make_routed("a b", {"encoder.2": CHOSEN}),
        make_routed("a-b", {"decoder.2": EVEN}),
        make_routed("old", None),
    ]
    section = routing_section(tmp_path, runs)
    assert section is not None
    cells = dict(zip(section["layer_heads"], section["runs"][0]["rows"][0], strict=True))
    assert (cells["Dead experts"], cells["Never chosen"], cells["Busiest expert"]) == ("1: 2", "1: 3", "2.47× (1)")
    assert cells["Choices lost"] == "19.5 %"  # the mean of steps 190 and 200
    assert [(row[0], *row[-2:]) for row in section["overview"]] == [("a b", "1", "1"), ("a-b", "0", "0")]
    text = environment().get_template("routing_section.html.j2").render(routing=section)
    assert "<td>1: 2</td><td>1: 3</td>" in text
    assert (text.count("<details"), text.count("<details open>")) == (2, 1)
    assert "Not recorded, or not all of it, for a b, a-b, old, which" in text
    for name in ("routing_a-b_experts", "routing_a-b__similarity", "routing_a-b_training"):
        assert (tmp_path / f"{name}.png").stat().st_size > 0
    with (tmp_path / "routing_layers.csv").open(encoding="utf-8") as file:
        rows = [(row["run"], row["layer"], row["dead"], row["unused"]) for row in csv.DictReader(file)]
    assert rows == [("a b", "encoder.2", "2", "3"), ("a-b", "decoder.2", "", "")]
    with (tmp_path / "routing.csv").open(encoding="utf-8") as file:
        (row,) = [r for r in csv.DictReader(file) if (r["run"], r["pair"], r["expert"]) == ("a b", "tr-en", "1")]
    assert (row["layer"], float(row["share"]), float(row["weight"])) == ("encoder.2", 1.48, 0.74)


def test_what_experts_specialise_in_is_shown(make_routed: Callable[..., RunResults], tmp_path: Path) -> None:
    quote = {"weight": 0.9, "pair": "de-en", "before": " click <OK> in", "piece": " Insert", "after": "ion"}
    pieces = [{"text": "▁File", "share": 0.875}, {"text": "s", "share": 0.5}, {"text": "▁", "share": 0.5}]
    experts = [{"pieces": pieces, "quotes": [quote]}, {"pieces": [], "quotes": []}]
    information = {"language": 0.25, "piece": 0.5, "class": 0.125}
    layers = {"encoder.2": {"information": information, "experts": experts}}
    run = make_routed("mine", {"encoder.2": CHOSEN, "decoder.2": EVEN}, specialisation=layers)
    section = routing_section(tmp_path, [run, make_routed("old", {"encoder.2": CHOSEN})])
    assert section is not None
    first, old = section["runs"]
    assert first["explained"] == [["encoder.2", "25.0 %", "50.0 %", "12.5 %"]]
    assert (old["explained"], old["experts"], section["missing"]) == ([], {}, ["old"])
    text = environment().get_template("routing_section.html.j2").render(routing=section)
    assert '<bdi lang="de" dir="ltr"> click &lt;OK&gt; in <mark>Insert</mark>ion</bdi>' in text
    assert re.findall(r"<b>(.*?)</b></bdi> ([\d.]+ %)", text) == [("File", "88 %"), ("-s", "50 %"), ("▁", "50 %")]
    with (tmp_path / "routing_pieces.csv").open(encoding="utf-8") as file:
        assert [*csv.reader(file)][1] == ["mine", "encoder.2", "0", "1", "▁File", "0.8750"]
    with (tmp_path / "routing_layers.csv").open(encoding="utf-8") as file:
        explained = [row["explained_by_piece"] for row in csv.DictReader(file)]
    assert explained == ["0.5000", "", ""]


def test_quotes_of_a_run_are_of_several_pieces_and_differ() -> None:
    repeated = [{"before": "a", "piece": "the", "after": "b", "pair": pair} for pair in ("de-en", "fr-en")]
    of_one_piece = [{"before": str(n), "piece": "the", "after": "", "pair": "de-en"} for n in range(5)]
    of_others = [{"before": "", "piece": str(n), "after": "", "pair": "de-en"} for n in range(9)]
    chosen = choose_quotes([*repeated, *of_one_piece, *of_others])
    assert chosen[:3] == [repeated[0], of_one_piece[0], of_others[0]]
    assert (len(chosen), QUOTES_OF_A_PIECE) == (QUOTES, 2)


def test_triangles_mark_dead_experts() -> None:
    (figure,) = plot_experts([layer(CHOSEN), layer(EVEN, "decoder.2")], ["de", "tr"], [1, 0])
    encoder, decoder, _ = figure.axes
    assert [line.get_marker() for line in encoder.lines] == ["<", "<"]
    assert not decoder.lines
    rows = [text.get_text() for text in encoder.get_yticklabels()]
    assert {rows[int(line.get_ydata()[0])] for line in encoder.lines} == {"2", "3"}  # type: ignore[index]
    assert [text.get_text() for text in encoder.get_xticklabels()] == ["tr", "de", "all"]


@pytest.mark.parametrize(("experts", "layers", "figures"), [(8, 4, 1), (32, 3, 2), (128, 1, 1)])
def test_figures_are_no_longer_than_a_page(experts: int, layers: int, figures: int) -> None:
    pairs = {f"{place}-en": list(range(experts)) for place in range(38)}
    use = [layer(pairs, f"{side}.{2 * n}") for side in ("encoder", "decoder") for n in range(1, layers + 1)]
    drawn = plot_experts(use, list(pairs), range(38))
    assert len(drawn) == figures
    assert all(figure.get_size_inches()[1] <= 11 for figure in drawn)


def test_a_dense_run_has_no_section(make_routed: Callable[..., RunResults], tmp_path: Path) -> None:
    assert routing_section(tmp_path, [make_routed("dense", None, num_experts=0)]) is None


def test_a_file_that_is_not_routing_is_named(make_routed: Callable[..., RunResults]) -> None:
    run = make_routed("one", {"encoder.2": {"de-en": CHOSEN["de-en"]}})
    with pytest.raises(ValueError, match=r"routing\.json cannot be read \(KeyError\('tr-en'\)\)"):
        load_routing(run.directory, run.record.pairs)
