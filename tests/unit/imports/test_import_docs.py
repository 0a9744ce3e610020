"""docs/import.md: its commands are those that there are."""

import json
import re
import shlex

import pytest
import torch

from pipeline.commands.translate import load_translate
from pipeline.config import ROOT, load_config
from pipeline.export.config import load_export
from pipeline.imports.config import load_import
from pipeline.imports.settings import DENSE, SPARSE
from pipeline.model.adapters import add_adapters
from pipeline.model.components import is_adapter
from pipeline.model.transformer import Transformer
from pipeline.plan.command import answer
from pipeline.plan.config import load_plan
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


@pytest.fixture
def with_nllb(tmp_path):
    """The setting of a directory with the record of an import named nllb, of nllb-200-distilled-600M's sizes."""
    vocab = {"shared": True, "source_size": 256206, "target_size": 256206}
    (tmp_path / "nllb").mkdir()
    (tmp_path / "nllb" / "run.json").write_text(json.dumps({"config": {"vocab": vocab}}))
    return f"runtime.runs={tmp_path}"


def load_train(command, *words):
    return load_config([*overrides_of("train", command.replace("path/to/dir", "data/sample")), *words])


def test_an_import_is_fine_tuned_whole_or_by_adapters(with_nllb):
    configs = [load_train(command, with_nllb) for command in BLOCKS[2][:2]]
    assert {(config.vocab.from_run, config.train.initialize_from) for config in configs} == {("nllb", "nllb")}
    assert [config.runtime.device for config in configs] == ["cuda", "cuda"]
    assert [config.train.lora is None for config in configs] == [True, False]
    assert configs[1].train.learning_rate > configs[0].train.learning_rate == 5e-5


def test_the_recipe_has_the_sizes_of_the_checkpoint():
    """The sizes are those of the checkpoint that tests/golden/test_import_size.py makes."""
    worker = (ROOT / "tests" / "checkpoint_worker.py").read_text(encoding="utf-8")
    sizes = {name: int(value) for name, value in re.findall(r"^        (\w+)=(\d+),$", worker, re.MULTILINE)}
    config = load_config(["recipes=finetune/nllb_600m"])
    model = config.model
    assert (model.dim, model.ffn_dim) == (sizes["d_model"], sizes["encoder_ffn_dim"])
    assert (model.heads, model.heads) == (sizes["encoder_attention_heads"], sizes["decoder_attention_heads"])
    assert (model.encoder_layers, model.decoder_layers) == (sizes["encoder_layers"], sizes["decoder_layers"])
    assert (config.vocab.source_size, config.vocab.shared, model.biases) == (sizes["vocab_size"], True, True)
    assert (model.moe.num_experts, config.decode.length_norm) == (0, "power")


def test_the_memory_and_the_adapters_are_as_the_page_says(with_nllb):
    whole = answer(load_plan(overrides_of("plan", BLOCKS[2][2]))).values
    assert f"{whole['memory']['total'] / 2**30:.0f} GiB of memory" in TEXT
    tokens = load_config(["recipes=finetune/nllb_600m"]).train.max_tokens
    assert f"at most {tokens / 1e6:.0f} million target tokens" in TEXT
    adapted = load_train(BLOCKS[2][1], with_nllb)
    with torch.device("meta"):
        model = Transformer(adapted.model, source_vocabulary=64, target_vocabulary=64, shared=True, max_positions=24)
        add_adapters(model, adapted.train.lora)
    adapters = sum(weight.numel() for name, weight in model.named_parameters() if is_adapter(name))
    assert f"of {adapters / 1e6:.0f} million parameters" in TEXT


def test_the_model_types_are_named():
    assert shlex.split(BLOCKS[1][0])[:2] == ["hf", "download"]
    assert {DENSE, SPARSE} <= {*re.findall(r"`([\w-]+)`", TEXT)}


def test_a_language_is_added_by_the_settings_of_a_vocabulary(with_nllb):
    train, export = BLOCKS[3]
    config = load_train(train, with_nllb)
    assert (config.vocab.from_run, config.vocab.extend, config.train.initialize_from) == ("nllb", {"cv": "tt"}, "nllb")
    assert tag_token("cv", ["deu_Latn"]) == "chv_Cyrl"
    assert 'src_lang="chv_Cyrl"' in TEXT
    assert load_export(overrides_of("export", export)).run == config.name
