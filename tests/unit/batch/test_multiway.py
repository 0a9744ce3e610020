"""English-centric and other pairs at once, from the embedded multi-way sample with a real vocabulary."""

from collections import Counter
from dataclasses import replace

import pytest

from bench.data.fill import measure, read_corpus, within
from pipeline.batch.mixture import Mixture
from pipeline.batch.mixture_config import MixtureConfig
from pipeline.batch.shapes import fit_targets
from pipeline.config import ROOT, load_config
from pipeline.schema import build
from tests.unit.batch.streams import sentences_of, take

PAIRS = ["de-en", "ja-en", "tr-en", "en-de", "en-ru", "de-fr", "ru-tr"]


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    """Rows that have both languages of a pair."""
    directory = tmp_path_factory.mktemp("pairs")
    table = (ROOT / "data" / "sample" / "train.tsv").read_text(encoding="utf-8").splitlines()
    head, rows = table[0].split("\t"), [line.split("\t") for line in table[1:]]
    files = []
    for pair in PAIRS:
        sides = [head.index(code) for code in pair.split("-")]
        lines = ["\t".join(row[side] for side in sides) for row in rows if all(row[side] for side in sides)]
        files.append(directory / f"{pair}.tsv")
        files[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_corpus(files, 3000, sample=2000)


MIXTURE = {
    "temperature": 2.0,
    "groups": {
        "into": {"pairs": ["*-en"], "share": 0.5, "temperature": 5.0},
        "from": {"pairs": ["en-*"], "share": 0.3},
        "between": {"pairs": ["*"], "temperature": 1.0},
    },
}


def test_groups_of_directions_have_their_shares(lengths):
    assert [pair.name for pair in lengths] == PAIRS
    batch = replace(load_config(["batch=packed"]).batch, mixture=build(MixtureConfig, MIXTURE))
    kept, _ = within(batch, lengths)
    steps = take(Mixture(fit_targets(batch, kept), kept, seed=1), 64)
    drawn = Counter(PAIRS[pair] for pair in sentences_of(steps)[:, 0].tolist())
    total = drawn.total()
    assert total > 6000  # of which three standard deviations are 0.02
    shares = {pair: drawn[pair] / total for pair in PAIRS}
    assert shares["de-en"] + shares["ja-en"] + shares["tr-en"] == pytest.approx(0.5, abs=0.02)
    assert shares["en-de"] + shares["en-ru"] == pytest.approx(0.3, abs=0.02)
    rows = {pair.name: len(pair.source) for pair in kept}
    assert drawn["de-fr"] / drawn["ru-tr"] == pytest.approx(rows["de-fr"] / rows["ru-tr"], rel=0.25)
    assert drawn["de-en"] / drawn["tr-en"] == pytest.approx((rows["de-en"] / rows["tr-en"]) ** 0.2, rel=0.1)


@pytest.mark.parametrize("batch", ["packed", "freesoft38"])
def test_nine_tenths_of_the_work_are_useful(lengths, batch):
    config = load_config([f"batch={batch}"])
    assert len(config.batch.shapes) <= 6
    fill = measure(config.batch, lengths, config.model, 3000, steps=100)
    assert fill.useful > 0.9
    assert fill.dropped < 0.01
    assert fill.padding < 0.06
