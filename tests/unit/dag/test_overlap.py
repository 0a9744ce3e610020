"""The training text with which a further test set of a run is compared: that of all its models, where it still is."""

import shutil

import pytest

from pipeline.corpus.languages import LangPair
from pipeline.dag.overlap import find_overlap, read_overlap
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.tasks import DataConfig
from tests.corpora import write_split

DE, FR = LangPair("de", "en"), LangPair("fr", "en")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "artifacts")


def made(store, name, config, inputs, *, split="", rows=()):
    """Make an artifact, with rows of a split if one is named."""

    def write(out):
        (out / "file").write_text(str(config))
        if split:
            write_split(out, split, rows)

    return store.get(Stage(name=name, version=1, config=config, inputs=inputs, run=write))


def trained(store, label, *bitexts):
    vocabulary = made(store, "vocab", label, {})
    encoded = {
        f"pair {number}": made(store, "encode", [label, number], {"vocabulary": vocabulary, "bitext": bitext})
        for number, bitext in enumerate(bitexts)
    }
    model = made(store, "train", label, {"vocabulary": vocabulary, **encoded})
    return {"artifacts": {"model": f"{model.stage}/{model.key}"}}


@pytest.fixture
def bitexts(store):
    """Training rows of two pairs."""
    texts = {"de": ("Guten Tag", "Good day"), "fr": ("Bonjour", "Hello")}
    return {code: made(store, "clean", code, {}, split="train", rows=[row]) for code, row in texts.items()}


@pytest.fixture
def rows(store):
    """A test set. German has a line of the French training text, and French one of the German."""
    german, french = [("Guten Abend", "Hello!"), ("Danke", "Thanks")], [("Salut", "Good day"), ("Merci", "Thanks")]
    return {
        pair: made(store, "test_set", pair.name, {}, split="test", rows=r) for pair, r in ((DE, german), (FR, french))
    }


def test_the_text_of_every_model_of_the_run_counts(store, bitexts, rows):
    multilingual = trained(store, "moe", bitexts["fr"])
    bilingual = [trained(store, "de", bitexts["de"]), trained(store, "fr", bitexts["fr"])]
    one = {"lines": 2, "source": 0, "reference": 1, "either": 1}
    for systems, expected in (
        ({"moe": [multilingual]}, {"de-en": one, "fr-en": {**one, "reference": 0, "either": 0}}),
        ({"moe": [multilingual], "bilingual": bilingual}, {"de-en": one, "fr-en": one}),
    ):
        artifact = find_overlap(store, "news", {"systems": systems}, rows, DataConfig())
        assert read_overlap(artifact) == expected
        again = find_overlap(store, "news", {"systems": systems}, rows, DataConfig())
        assert again == artifact
    member = store.find(*bilingual[0]["artifacts"]["model"].split("/"))
    together = find_overlap(store, "news", {"systems": {"moe": [multilingual]}}, rows, DataConfig(), [member])
    assert read_overlap(together) == {"de-en": one, "fr-en": one}
    assert len(list((store.root / "overlap").glob("*/manifest.json"))) == 2


def test_without_the_training_text_nothing_is_compared(store, bitexts, rows, caplog):
    record = {"systems": {"moe": [trained(store, "moe", bitexts["de"], bitexts["fr"])]}}
    shutil.rmtree(bitexts["fr"].path)
    assert find_overlap(store, "news", record, rows, DataConfig()) is None
    (message,) = caplog.messages
    assert message.startswith("warning: test set news is not compared with the training text: artifact clean/")
    assert "is not in" in message
    assert read_overlap(None) == {}


def test_an_import_has_no_training_text(store, rows, caplog):
    record = {"systems": {"moe": [trained(store, "imported")]}}
    caplog.set_level("INFO")
    assert find_overlap(store, "news", record, rows, DataConfig()) is None
    assert caplog.messages == ["test set news is not compared with training text, because the model was imported"]
