"""Commands with processes that share experts refuse an ensemble before they read its runs."""

import pytest

from pipeline.commands.translate import load_translate, translate
from pipeline.serve.config import load_serve
from pipeline.serve.server import serve


@pytest.mark.parametrize(
    ("load", "command", "words"),
    [(load_translate, translate, ["pair=tr-en"]), (load_serve, serve, [])],
    ids=["translate", "serve"],
)
def test_the_models_of_an_ensemble_are_not_cut(place, load, command, words):
    words = [*words, f"runtime.artifacts={place}/artifacts", f"runtime.runs={place}/runs"]
    config = load(["run=old", "decode.ensemble=[other]", "runtime.ep=2", *words])
    with pytest.raises(ValueError, match=r"^runtime.ep=2: the models of decode.ensemble are whole in every process"):
        command(config)
