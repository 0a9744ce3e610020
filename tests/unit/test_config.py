"""Configuration: every recipe loads, every mistake is named with its remedy."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import ROOT, load_config
from tests.gates import GATES

RECIPES = sorted(str(f.relative_to(ROOT / "recipes").with_suffix("")) for f in (ROOT / "recipes").rglob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_loads(recipe):
    config = load_config([f"recipes={recipe}"])
    assert config.recipe == recipe.replace("/", "_") == config.name


def test_overrides_and_pairs():
    config = load_config(["recipes=smoke", "pairs=[zh-Hans:en,de-en]", "name=mine", "model.moe.num_experts=16"])
    assert config.pairs == ["zh-Hans:en", "de-en"]
    assert (config.name, config.model.moe.num_experts) == ("mine", 16)


@pytest.mark.parametrize("place", ["with space", "jürgen", "copy (2)", "a=b", "a,b", "o'clock"])
def test_any_directory_name_will_do(tmp_path, place):
    root = tmp_path / place
    for part in ("configs", "recipes"):
        shutil.copytree(ROOT / part, root / part)
    assert load_config(["recipes=smoke"], root).recipe == "smoke"
    with pytest.raises(ValueError, match=r"did you mean train.learning_rate"):
        load_config(["train.learning_ratee=1"], root)


@pytest.mark.parametrize("place", ["with space", "o'clock", "a=${b}"])
def test_a_directory_is_a_corpus(tmp_path, monkeypatch, place):
    (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path)
    config = load_config(["recipes=smoke", f"corpus={place}"])
    assert config.corpus.path == str(tmp_path / place)
    assert (config.pairs, config.recipe) == (["all"], "smoke")
    assert re.fullmatch(r"smoke-[\w.-]+", config.name)


def test_what_is_said_of_a_corpus_directory_wins(tmp_path, monkeypatch):
    (tmp_path / "sample").mkdir()
    monkeypatch.chdir(tmp_path)
    config = load_config(["recipes=smoke", "corpus=./sample", "pairs=[a-b]", "name=mine", "corpus.rules.max_chars=9"])
    assert (config.pairs, config.name, config.corpus.rules.max_chars) == (["a-b"], "mine", 9)
    assert load_config(["recipes=smoke", "corpus=sample"]).corpus.path == "data/sample"
    with pytest.raises(ValueError, match=r"corpus=\./sample is a directory, and corpus.path= names another"):
        load_config(["corpus=./sample", "corpus.path=other"])
    with pytest.raises(ValueError, match=r"corpus=samplle is neither a directory nor .*; did you mean sample\?"):
        load_config(["corpus=samplle"])


def test_a_shared_vocabulary_has_one_size_in_every_baseline_too():
    config = load_config(["vocab=shared", "vocab.source_size=5000", "vocab.target_size=5000"])
    assert all(
        tier.vocab.shared and tier.vocab.source_size == tier.vocab.target_size for tier in config.baselines.tiers
    )


def test_null_and_false_switch_a_rule_off():
    off = [f"corpus.rules.{name}=null" for name in ("language", "identical", "max_chars")]
    for overrides in (off, [override.replace("null", "false") for override in off]):
        rules = load_config(overrides).corpus.rules
        assert (rules.language, bool(rules.identical), rules.max_chars) == (None, False, None)


def test_baselines_are_chosen_by_resource():
    config = load_config(["recipes=demo"])
    poor, rich = config.baselines.tier(750), config.baselines.tier(6000)
    assert poor.model.dropout > rich.model.dropout
    assert poor.train.learning_rate > rich.train.learning_rate
    assert poor.train.max_tokens == rich.train.max_tokens  # patience ends a training


def test_a_baseline_is_the_recipe_without_experts_and_with_its_tiers_changes():
    config = load_config(["recipes=demo"])
    for tier in config.baselines.tiers:
        assert tier.model.moe.num_experts == 0
    assert config.baselines.tier(10**9) == config.baselines.tiers[-1]
    assert config.baselines.tier(1) == config.baselines.tiers[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.learning_ratee=1"], r"train.learning_ratee does not exist; did you mean train.learning_rate"),
        (["recipes=demoo"], r"recipe demoo does not exist; did you mean demo\?"),
        (["model.dim=abc"], r"model.dim='abc' must be of type int"),
        (["train.max_tokens=true"], r"train.max_tokens=True must be of type int"),
        (["nonsense"], "nonsense"),
        (
            ["batch.mixture.groups.rare.share=0.1"],
            r"names something new; add it with a plus: \+batch.mixture.groups.rare",
        ),
        (["batch.mixture.groups={rare: {share: 0.1}}"], r"add it with a plus: \+batch.mixture.groups="),
        (
            ["+batch.mixture.groups.rare.pears=[a]"],
            r"batch.mixture.groups.rare.pears does not exist; did you mean pairs",
        ),
        (["+batch.mixture.groups.rare.share=0.1"], r"batch.mixture.groups.rare.pairs is not set"),
        (
            ["corpus.rules.language={min_leters: 9}"],
            r"corpus.rules.language.min_leters does not exist; did you mean .*ers",
        ),
        (
            ["corpus.rules.near_duplicates.threshold=0.9"],
            r"near_duplicates has no parts here; write corpus.rules.near_duplicates=\{threshold: 0.9\}",
        ),
        (
            ["corpus.rules.near_duplicates=true"],
            r"=True must be a mapping, as \{threshold: .*, num_hashes: .*\}, or null",
        ),
        (["corpus.rules.max_chars=true"], r"corpus.rules.max_chars=True must be of type int"),
        (["corpus.path=~/x"], r"corpus.path=~/x cannot be read; put the value in quotes, as 'corpus.path=\"~/x\"'"),
        (["HF_HUB_OFFLINE=1"], r"HF_HUB_OFFLINE does not exist; `make config` prints those that there are"),
        (["--help"], r"--help is no key=value; `python -m pipeline help` lists what there is"),
        (["batch.mixture.temperature=0.5"], r"batch.mixture.temperature=0.5 must be at least 1"),
        (
            ["runtime.processes=4", "runtime.ep=3"],
            r"runtime.ep=3 does not divide runtime.processes=4; choose one of \[1, 2, 4\]",
        ),
        (
            ["model.moe.num_experts=7"],
            r"num_experts=7 \(E of wi_EMH\) is not divisible by runtime.ep=2, the axis expert; choose 6 or 8",
        ),
        (
            ["batch.groups_per_step=3"],
            r"groups_per_step=3 \(G of x_GSM\) is not divisible by runtime.processes=2; choose 2 or 4, or a number",
        ),
        (["gate=top3"], r"gate top3 does not exist; did you mean topk or top2"),
        (["regularizer=[eon]"], r"regularizer eon does not exist; did you mean eom"),
        (["gate=top1", "model.moe.gate.second=all"], r"second does not exist; model.moe.gate has kind, .*jitter"),
        (["model.moe.gate={kind: topp}"], r"kind='topp' does not exist; did you mean topk or top2"),
        (["model.moe.gate=3"], r"must be a mapping with kind"),
        (["model.moe.dispatch=einsumm"], r"dispatch='einsumm' is not one of gather, einsum"),
        (["model.moe.num_experts=1"], r"num_experts=1: a gate needs 2 or more"),
        (["gate=noisy_topk", "model.moe.gate.k=9"], r"at least 9 experts, there are 8"),
        (["model.moe.gate.capacity_factor=0"], r"would drop every token"),
        (["gate=hierarchical", "model.moe.gate.groups=3"], r"groups=3 does not divide .*choose one of 2, 4"),
        (["gate=hierarchical", "model.moe.gate.groups=8"], r"at least 2 experts of a group, there are 1"),
        (["gate=hierarchical", "model.moe.gate.k=3"], r"at least 3 groups, there are 2"),
        (["model.moe.gate.prioritized=true"], r"prioritized decides .* looking at later ones.*encoder_gate"),
        (["gate=balanced", "model.moe.gate.threshold_weight=0"], r"thresholds learn by it"),
        (["gate=topk", "model.moe.gate.k=8"], r"gate.k=8: every token has all 8 experts, .* choose a smaller k"),
        (["gate=topk", "model.moe.gate.score=tanh"], r"gate.score='tanh' is not one of softmax, sigmoid"),
        (["gate=sigmoid", "model.moe.gate.k=8"], r"gate.k=8: every token has all 8 experts, .*gate.bias_rate=0"),
        (["gate=sigmoid", "model.moe.gate.bias_rate=-1"], r"gate.bias_rate=-1.0 must not be negative"),
        (["model.moe.shared_experts=-1"], r"shared_experts=-1 must not be negative; 0 is none"),
        (["gate=top1", "model.moe.gate.jitter=1"], r"jitter=1.0 must lie in \[0, 1\)"),
        (["model.moe.output_masking=1"], r"output_masking=1.0 must lie in"),
        (["regularizer=[cmr]", "model.moe.conditional.budget=2"], r"budget=2.0 must lie in"),
        (["runtime.launcher=ssh"], r"launcher='ssh' is not one of local, hostfile, slurm"),
        (["runtime.launcher=hostfile"], r"launcher=hostfile needs runtime.hostfile"),
        (["runtime.master_port=0"], r"master_port=0 must lie in"),
        (["runtime=nodes"], r"nodes does not exist; did you mean node\?"),
        (["runtime.zero_stage=3"], r"runtime.zero_stage=3: choose 1 or 2"),
        (["runtime.decode_experts=cut"], r"decode_experts='cut' is not one of auto, replicated, sharded"),
        (["runtime=gpu", "runtime.decode_experts=sharded"], r"runtime.ep processes, of which there is 1; set"),
        (["train.max_tokens=0"], r"both 0; give a budget"),
        (["train=adamm"], r"train adamm does not exist; did you mean adamw"),
        (["train.optimizer=sgd"], r"train.optimizer='sgd' is not one of adamw, adafactor"),
        (
            ["train.optimizer=adafactor", "train.beta2=0.9"],
            r"train.beta2=0.9 has no effect with adafactor; leave it out",
        ),
        (["train.expert_learning_rate=0"], r"train.expert_learning_rate=0.0 must be positive"),
        (["train.schedule.kind=linear"], r"train.max_steps=0: linear needs it"),
        (["train.schedule.hold=5"], r"train.schedule.hold does not exist; did you mean train.schedule.hold_steps"),
        (["train.precision=fp8"], r"train.precision='fp8' is not one of fp32, bf16, fp16"),
        (["train.spikes.threshold=0.5"], r"train.spikes.threshold=0.5 must be above 1 .*or 0 for off"),
        (["train.spikes.window=0"], r"train.spikes.window=0 must be at least 1"),
        (["pairs=[]"], r"pairs is empty"),
        (["name=a/b"], r"NAME='a/b' must be a plain directory name"),
        (["name=bilingual"], "NAME=bilingual is what a report calls the bilingual models; choose another name"),
        (["decode.beam=0"], r"decode.beam=0 must be at least 1"),
        (["score.resamples=10"], r"score.resamples=10"),
        (["score.metrics=[bleu,chrff]"], r"score.metrics: 'chrff' does not exist; did you mean chrf"),
        (["score.metrics=[chrf]"], r"must name bleu, which the report shows"),
        (["score.metrics=[bleu,ter,bleu]"], r"nothing twice"),
        (["score.metrics=[bleu,spbleu]"], r"metric='spbleu' needs the SentencePiece model"),
        (["baselines.tiers=[{up_to: 0, model: {dimm: 3}}]"], r"dimm does not exist; did you mean dim"),
        (["baselines.tiers=[{upto: 0}]"], r"baselines.tiers\[0\].upto does not exist; did you mean up_to\?"),
        (["baselines.interpolate=false", "baselines.tiers=[{up_to: 100}]"], r"the last tier must have up_to: 0"),
    ],
)
def test_mistakes_are_named_with_their_remedy(overrides, message):
    with pytest.raises(ValueError, match=message):
        load_config(overrides)


@pytest.mark.parametrize(
    ("preset", "launcher", "processes", "device"),
    [
        ("cpu", "local", 2, "cpu"),
        ("gpu", "local", 1, "cuda"),
        ("node", "local", 8, "cuda"),
        ("hostfile", "hostfile", 16, "cuda"),
        ("slurm", "slurm", 16, "cuda"),
    ],
)
def test_every_place_has_a_preset_that_changes_only_the_precision_of_a_result(preset, launcher, processes, device):
    overrides = ["batch.groups_per_step=16", *(["train.precision=bf16", "decode.precision=bf16"] * (device == "cuda"))]
    config = load_config([overrides[0], f"runtime={preset}"])
    launch = (config.runtime.launcher, config.runtime.processes, config.runtime.device)
    assert launch == (launcher, processes, device)
    assert replace(config, runtime=load_config(overrides).runtime) == load_config(overrides)


def test_the_commands_of_the_clusters_page_compose():
    """Those of make, and that of the batch script."""
    text = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    commands = re.findall(r"make (?:train|config)[^`\n]*", text)
    assert len(commands) >= 3
    for command in commands:
        words = dict(re.findall(r'(\w+)=("[^"]*"|\S+)', re.sub(r'ARGS="[^"]*"', "", command)))
        arguments = "".join(re.findall(r'ARGS="([^"]*)"', command)).split()
        if "RUNTIME" in words and "batch.groups_per_step" not in command:
            arguments.append("batch.groups_per_step=16")
        assert load_config([f"runtime={words.get('RUNTIME', 'cpu')}", *arguments]), command
    script = next(block for block in text.split("```") if "#SBATCH" in block).removeprefix("bash\n")
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).stderr == ""
    overrides = re.search(r"python -m pipeline train ([^&]*)&", script)[1].split()
    assert load_config(overrides).runtime.launcher == "slurm"
    (one_node,) = re.findall(r"the settings\s`(runtime=node [^`]+)`", text)
    assert load_config(one_node.split()).runtime.processes == 8


@pytest.mark.parametrize("gate", GATES)
def test_every_gate_is_chosen_by_one_word(gate):
    config = load_config([f"gate={gate}"])
    kinds = (config.model.moe.gate.kind, config.model.moe.gate_of(decoder=False).kind)
    assert gate in (*kinds, "prioritized", "sigmoid", "node_limited")


def test_regularizers_add_up():
    moe = load_config(["regularizer=[z_loss,eom,cmr]"]).model.moe
    assert (moe.z_weight, moe.output_masking) == (0.001, 0.2)
    assert moe.conditional is not None
    plain = load_config([]).model.moe
    assert (plain.z_weight, plain.output_masking, plain.conditional) == (0.0, 0.0, None)


def test_balanced_in_the_decoder_is_warned_about(caplog):
    load_config(["gate=balanced"])
    assert "training mask looks at later tokens" in caplog.text
    caplog.clear()
    load_config(["gate=top2", "model.moe.encoder_gate={kind: balanced, k: 2, threshold_weight: 0.01}"])
    assert not caplog.text


def test_help_is_fast_and_imports_nothing_heavy():
    """73 modules of the standard library and of ours in CPython 3.11; numpy brings 140, torch 1,000."""
    code = "import sys, pipeline.__main__ as m; m.main(['--help']); print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    modules = set(output.splitlines()[-1].split())
    assert not modules & {"torch", "numpy", "hydra"}
    assert len(modules) < 120
    assert "usage: python -m pipeline" in output


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), ([], 2), (["trian"], 2)])
def test_exit_codes_of_the_command_line(arguments, code):
    process = subprocess.run([sys.executable, "-m", "pipeline", *arguments], capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == code
    if arguments == ["trian"]:
        assert "did you mean train" in process.stderr


def test_configs_hold_no_machine_path():
    for file in [*(ROOT / "configs").rglob("*.yaml"), *(ROOT / "recipes").rglob("*.yaml")]:
        text = file.read_text(encoding="utf-8")
        text = re.sub(r"(- |\{)override /[\w@.]+:", "", text)  # a group of configs, to Hydra
        assert not any(Path(word).is_absolute() for word in text.split()), file


@pytest.mark.parametrize(("kind", "rule"), [("last", "last_n"), ("best", "best_k")])
def test_what_decoding_averages_must_be_kept(kind, rule):
    overrides = ["recipes=smoke", "decode.average=3", f"decode.average_of={kind}"]
    with pytest.raises(
        ValueError, match=rf"decode.average=3 of the {kind} .* set train.checkpoints.{rule}=3 \(it is 1\)"
    ):
        load_config(overrides)
    config = load_config([*overrides, f"train.checkpoints.{rule}=3"])
    assert all(getattr(tier.train.checkpoints, rule) == 3 for tier in config.baselines.tiers)


def test_baselines_do_not_start_from_what_the_main_model_starts_from():
    config = load_config(["recipes=smoke", "train.initialize_from=somewhere"])
    assert config.train.initialize_from == "somewhere"
    assert {tier.train.initialize_from for tier in config.baselines.tiers} == {""}
