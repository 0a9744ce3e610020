"""A mistyped command line is answered in the user's words: field, value and remedy, and nothing of Hydra."""

import re

import pytest

from pipeline.commands.table import find_command
from pipeline.config import load_config
from pipeline.verify.command import parse

HYDRA = re.compile(
    r"hydra\.cc|Hydra|OmegaConf|full_key|object_type|viable|extraneous|multirun|append to|Ambiguous value|"
    r"Interpolation|LexerNo|EOF|group override|<class|Traceback"
)


def refusal(command, *words):
    """The message with which a command refuses its words."""
    entry = find_command(command)
    module, _, name = entry.load.partition(":")
    load = getattr(__import__(module, fromlist=[name]), name)
    with pytest.raises(ValueError, match=r".") as error:
        load(entry.overrides(words))
    assert not HYDRA.search(str(error.value)), error.value
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        # The form of a word
        ("nonsense", "nonsense is no key=value, as in model.dim=256"),
        ("model.dim", "model.dim is no key=value"),
        ("--overwrite", "--overwrite is no key=value; `python -m pipeline help` lists what there is"),
        ("smoke", "smoke is no key=value; did you mean recipes=smoke?"),
        ("top1", "did you mean gate=top1?"),
        ("model.dim:3", "write model.dim=3"),
        ("pairs=de-en fr-en", 'fr-en is no key=value; write all pairs as one word, LANG_PAIRS="de-en fr-en"'),
        ("=3", "=3 has no key before the equals sign"),
        ("model.dim==3", "model.dim==3 is not of the form key=value; write model.dim=3"),
        (["model.dim = 3"], "model.dim = 3 is not of the form key=value; write model.dim=3"),
        ("model..dim=3", "model..dim is not the name of a key"),
        ("gate:foo=top1", "gate:foo is not the name of a key"),
        ("pairs=[de-en", "pairs=[de-en has a [ that is not closed; close it"),
        ("model={dim: 3}", "model={dim: has a { that is not closed; close it, and quote the whole word"),
        ("pairs=[de-en]]", "pairs=[de-en]] has a ] without its [; remove it"),
        ("score.metrics=[bleu,]", "score.metrics=[bleu,] has a comma without a value beside it"),
        ("model={dim=3}", "a mapping has colons, as 'model={name: value}'"),
        ("corpus.path=a(b)", "corpus.path=a(b) cannot be read; put the value in quotes, as 'corpus.path=\"a(b)\"'"),
        (["name=o'x"], "cannot be read; put the value in quotes, as 'name=\"o'\"'\"'x\"'"),
        (['name="[x"y'], "cannot be read; put the value in quotes, as"),
        ("LANG_PAIRS=de-en;fr-en", "write pairs as de-en, with spaces or commas between them"),
        # Several values
        ("model.dim=1,2", "model.dim=1,2 gives several values; for a list write 'model.dim=[1,2]'"),
        ("model.dim=choice(1,2)", "and to train a run for each value use `make sweep`"),
        ("recipes=demo,smoke", "recipes=demo,smoke names several options of recipes, of which a run has one"),
        ("gate=[top1,top2]", "names several options of gate, of which a run has one; write gate=top1, and to train"),
        ("gate=top1,top2", "write gate=top1, and to train a run for each of them use `make sweep`"),
        ("gate=choice(top1,top2)", "write gate=top1, and to train"),
        ("baselines=[tiered,none]", "baselines=[tiered,none] names several options of baselines"),
        ("regularizer=z_loss,eom", "for a list write 'regularizer=[z_loss,eom]'"),
        # Groups and their options
        ("gate=nope", "gate nope does not exist; did you mean topk or top2"),
        ("runtime=cuda", "runtime cuda does not exist; did you mean gpu?"),
        ("layout=null", "layout null does not exist; there are gshard, model"),
        ("train=3", "train 3 does not exist; there are"),
        ("baselines=false", "baselines false does not exist"),
        ("regularizer=[z_loss,nope]", "regularizer nope does not exist"),
        ("+gate=top1", "gate is chosen without +; write gate=top1"),
        ("++gate=top1", "gate is chosen without ++; write gate=top1"),
        ("gate@x=top1", "gate is chosen without a package; write gate=top1"),
        (["vocab={nope: 1}"], "configuration key vocab.nope does not exist; vocab has sample_lines"),
        ("recipes=gshard", "recipe gshard is a folder; name one recipe of it: gshard/moe_128e_12l, gshard/"),
        ("RECIPE=gshard/", "recipe gshard is a folder"),
        ("recipes=recipes/demo.yaml", "recipe recipes/demo does not exist; write demo"),
        ("recipes=gshard/moe_2048e_36", "did you mean gshard/moe_2048e_36l"),
        ("recipes=zzz", "recipe zzz does not exist; there are backtranslation"),
        ("recipes=", "recipe '' does not exist; there are"),
        ("recipe=smoke", "recipe=smoke only renames the settings; choose a recipe by RECIPE=smoke"),
        # Keys
        ("train.lr=1", "configuration key train.lr does not exist; did you mean train.learning_rate?"),
        ("epochs=3", "did you mean train.max_tokens or train.max_steps?"),
        ("translate.beam=3", "did you mean decode.beam?"),
        ("vocab.nope=3", "vocab.nope does not exist; vocab has sample_lines, sample_chars"),
        ("zzz=3", "zzz does not exist; `make config` prints those that there are"),
        ("+model.dim=3", "model.dim exists already; write it without the plus, model.dim=3"),
        (["+vocab={sample_lines: 3}", "zzz=3"], "zzz does not exist"),
        ("layout.Q=data", "layout.Q names something new; add it with a plus: +layout.Q=data"),
        ("model.dim.x=3", "model.dim has no parts here; write model.dim={x: 3}"),
        ("~foo", "configuration key foo does not exist"),
        ("~model.dim=3", "a key is removed by its name alone, ~model.dim"),
        ("~model.dim", "model.dim is not set"),
        ("~baselines", "baselines=None must be a mapping"),
        # Pairs, before any corpus is known
        ("LANG_PAIRS=de_en", "'de_en' is no pair, which has a hyphen between its codes; did you mean de-en?"),
        ("LANG_PAIRS=fr-en,DE2EN", "'DE2EN' is no pair, which has a hyphen between its codes; did you mean de-en?"),
        ("LANG_PAIRS=de.en", "did you mean de-en?"),
        ("LANG_PAIRS=deen", "did you mean de-en?"),
        ("LANG_PAIRS=de", "'de' is no pair, which has a hyphen between its codes; write it as de-en"),
        ("LANG_PAIRS=zh_Hans_en", "write it as de-en"),
        ("LANG_PAIRS=-en", "'-en' is no pair"),
        # Values
        ("model.dim=${nope.key}", "model.dim=${nope.key}: there is no key nope.key"),
        ("model.dim=${modl.heads}", "there is no key modl.heads; did you mean model.heads?"),
        ("model.dim=${nope:1}", "${nope:…} is no function of the configuration; use share or oc.env"),
        (["model.dim='${nope'"], "has a reference ${…} that cannot be read; close its brace"),
        ("model.dim=${model.dim}", "model.dim refers to itself"),
        ("name=${oc.env:NO_SUCH_VARIABLE}", "the environment has no variable NO_SUCH_VARIABLE"),
        ("corpus.path=???", "corpus.path is not set; give it a value, as corpus.path="),
        ("pairs=null", "pairs=None must be a list"),
        (['pairs="de-en fr-en"'], "pairs='de-en fr-en' must be a list, as [de-en,fr-en]"),
        ("train.schedule=linear", "train.schedule='linear' must be a mapping; write train.schedule.kind=linear"),
        ("train.learning_rate=inf", "train.learning_rate=inf must be positive and finite"),
        ("train.max_steps=-1", "train.max_steps=-1 must not be negative"),
        ("baselines.tiers=3", "baselines.tiers=3 must be a list"),
        ("baselines.tiers=[3]", "baselines.tiers[0]=3 must be a mapping, as {up_to: 0"),
    ],
)  # fmt: skip
def test_a_mistyped_word_is_named_with_its_remedy(words, message):
    text = refusal("train", *(words.split() if isinstance(words, str) else words))
    assert message in text
    assert not text.startswith("recipes/")  # the fault is in no file


def test_keys_of_hydra_have_no_effect():
    for word in ("hydra.run.dir=x", "hydra/launcher=joblib", "hydra.mode=MULTIRUN"):
        with pytest.raises(ValueError, match="have no effect on this command; leave it out"):
            load_config([word])


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("status", "nope", "nope is no key=value; name a run as NAME=nope"),
        ("status", "wach=true", "did you mean watch?"),
        ("translate", "zzz=3", "key zzz does not exist; there are decode, runtime, run, pair"),
        ("translate", "decode.nope=3", "decode.nope does not exist; decode has search, beam"),
        ("serve", "prot=3", "did you mean port?"),
        ("plan", "gshard/", "gshard/ is no key=value; did you mean RECIPE=gshard?"),
        ("plan", "nonsense", "nonsense is no key=value, as in devices=8"),
        ("verify", "steps", "steps is no key=value, as in steps=3"),
        ("verify", "steps=[1", "steps=[1 cannot be read; close its brackets"),
        ("verify", "zzz=1", "zzz does not exist; there are worlds"),
    ],
)
def test_every_command_names_what_it_does_not_know(command, words, message):
    assert message in refusal(command, *words.split())


def test_what_is_right_is_not_refused():
    """Words that look odd, and mean something."""
    config = load_config(
        ["+batch.mixture.groups.rare={pairs: [tr-en], share: 0.1}", "regularizer=[z_loss,eom]", "name=a%b"]
    )
    assert config.batch.mixture.groups["rare"].share == 0.1
    assert load_config(["model.dim=${model.ffn_dim}", "model.ffn_dim=96"]).model.dim == 96
    assert load_config(find_command("train").overrides(["LANG_PAIRS=[de-en, fr-en]"])).pairs == ["de-en", "fr-en"]
    for pairs in (["all"], ["zh-Hans-en"], ["de:en"]):
        assert load_config([f"pairs=[{','.join(pairs)}]"]).pairs == pairs
    assert load_config(["train={max_steps: 7, log_every: 3}"]).train.max_steps == 7
    assert load_config(["gate=[top1]"]).model.moe.gate.kind == "top1"
    assert parse(["steps=2"]).steps == 2
