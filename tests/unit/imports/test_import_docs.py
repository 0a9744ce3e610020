"""docs/import.md: its commands are those that there are."""

import json
import re
import shlex

from pipeline.commands.translate import load_translate
from pipeline.config import ROOT, load_config
from pipeline.export.config import load_export
from pipeline.imports.config import load_import
from pipeline.imports.settings import DENSE, SPARSE
from pipeline.vocab.imported_tags import tag_token
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "import.md").read_text(encoding="utf-8")
BLOCKS = [block.splitlines() for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)]


def test_the_commands_compose():
    imported, translate, _, export = BLOCKS[0]
    config = load_import(overrides_of("import", imported))
    assert (config.source, config.name, config.pairs) == ("path/to/nllb-200-distilled-600M", "nllb", ["de-en", "en-tr"])
    assert load_translate(overrides_of("translate", translate.partition(" <")[0])).run == config.name
    assert load_export(overrides_of("export", export)).run == config.name


def test_the_settings_of_a_fine_tuning_are_those_of_the_model(monkeypatch):
    words = overrides_of("train", BLOCKS[2][0])
    assert "vocab.from_run=nllb" in words
    settings = [word for word in words if "nllb" not in word]
    config = load_config(settings)
    assert (config.train.learning_rate, config.baselines.tiers) == (1e-4, [])
    model = config.model
    assert (model.dim, model.ffn_dim, model.encoder_layers, model.biases) == (1024, 4096, 12, True)
    assert model.moe.num_experts == 0


def test_the_model_types_are_named():
    assert shlex.split(BLOCKS[1][0])[:2] == ["hf", "download"]
    assert {DENSE, SPARSE} <= {*re.findall(r"`([\w-]+)`", TEXT)}


def test_a_language_is_added_by_the_settings_of_a_vocabulary(tmp_path):
    train, export = BLOCKS[3]
    vocab = {"shared": True, "source_size": 64, "target_size": 64}
    (tmp_path / "nllb").mkdir()
    (tmp_path / "nllb" / "run.json").write_text(json.dumps({"config": {"vocab": vocab}}))
    words = overrides_of("train", train.replace("path/to/dir", "data/sample"))
    config = load_config([*words, f"runtime.runs={tmp_path}"])
    assert (config.vocab.from_run, config.vocab.extend, config.train.initialize_from) == ("nllb", {"cv": "tt"}, "nllb")
    assert tag_token("cv", ["deu_Latn"]) == "chv_Cyrl"
    assert 'src_lang="chv_Cyrl"' in TEXT
    assert load_export(overrides_of("export", export)).run == config.name
