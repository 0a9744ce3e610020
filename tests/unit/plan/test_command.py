"""`make plan`: its words, its output, its figure and its errors."""

import json
import logging
import subprocess
import sys

import pytest
import yaml

from pipeline.config import ROOT, load_config
from pipeline.parallel.layout import layout_of
from pipeline.plan.command import answer, plan
from pipeline.plan.config import load_plan, published
from pipeline.plan.spread import PRESETS
from tests.make import overrides_of

DEEP, SMALL = "gshard/moe_2048e_36l", "gshard/moe_128e_12l"
DROPPING = ["train.initialize_from=general", "train.lora={dropout: 0.1, targets: [attention]}"]


def printed(*words):
    return answer(load_plan(words)).text


def objects(*words):
    return answer(load_plan(words)).values


def test_json_is_one_object_and_all_of_standard_output(tmp_path):
    command = f"make -s plan RECIPE={DEEP} DEVICES=256 DEVICE=h100 FORMAT=json"
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *overrides_of("plan", command)], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    values = json.loads(process.stdout)
    assert (values["recipe"], values["device"], values["devices"]) == (DEEP, "h100", 256)
    assert values["parameters"]["total"] == 619_366_506_496
    experts = 18 * 2048 // 256 * 2 * 1024 * 8192
    assert values["parameters"]["per_device"] == values["parameters"]["replicated"] + experts
    assert values["parameters"]["active"] < values["parameters"]["per_device"]
    assert {"fits", "activations", "optimizer", "total", "available"} <= set(values["memory"])
    assert sum(values["step"]["parts"].values()) == pytest.approx(values["step"]["seconds"])
    assert values["layout"]["sizes"] == {"data": 1, "expert": 256, "model": 1}
    assert "nearest" not in values


# Without torch and matplotlib, `make plan` starts in under a second.
WITHOUT_TORCH = """
import sys
from pipeline.__main__ import main
code = main(["plan", *sys.argv[1:]])
heavy = {"torch", "deepspeed", "matplotlib", "numpy"} & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else code)
"""


def test_the_figure_goes_where_it_is_asked_for(tmp_path, capsys):
    words = [f"recipes={SMALL}", "devices=8"]
    plan(load_plan([*words, f"out={tmp_path / 'of' / 'text.png'}"]))
    assert capsys.readouterr().out.endswith(f"\nfigure: {tmp_path / 'of' / 'text.png'}\n")
    assert (tmp_path / "of" / "text.png").read_bytes().startswith(b"\x89PNG")


def test_a_plan_that_does_not_fit_fails_after_it_is_printed(tmp_path, capsys):
    """The command's exit code is 1 for a ValueError."""
    words = [f"recipes={DEEP}", "devices=32", f"out={tmp_path / 'plan.png'}"]
    with pytest.raises(
        ValueError, match=rf"^{DEEP} on 32 x h100 does not fit; nearest that fits: make plan RECIPE={DEEP} "
    ):
        plan(load_plan(words))
    assert "does not fit: weights" in capsys.readouterr().out
    assert (tmp_path / "plan.png").is_file()
    with pytest.raises(ValueError, match="does not fit"):
        plan(load_plan([*words[:2], "format=json"]))
    assert "does_not_fit" in json.loads(capsys.readouterr().out)


def test_recipes_side_by_side_fail_where_no_layout_fits(tmp_path, capsys):
    words = [f"recipes={DEEP},{SMALL}", "devices=1", f"out={tmp_path / 'plan.png'}"]
    with pytest.raises(ValueError, match=rf"no layout of as many devices fits {DEEP}.*; give more DEVICES"):
        plan(load_plan(words))
    assert SMALL in capsys.readouterr().out


def test_a_misfit_comes_with_the_nearest_plan_that_fits(tmp_path):
    words = [f"recipes={DEEP}", "devices=32", "device.price=2.5"]
    values = objects(*words)
    assert not values["memory"]["fits"]
    assert values["does_not_fit"].startswith("weights: ")
    text = printed(*words)
    assert f"does not fit: {values['does_not_fit']}\nnearest that fits: {values['nearest']}" in text
    again = objects(*overrides_of("plan", values["nearest"]))
    assert again["memory"]["fits"]
    assert again["devices"] > 32
    assert again["budget"]["cost"] == pytest.approx(2.5 * again["budget"]["device_hours"])


def test_the_command_for_training_says_the_same(tmp_path):
    words = [f"recipes={SMALL}", "devices=64", "mp=2", "ep=16", "zero_stage=2", "recompute=layers", "train.seed=2"]
    text = printed(*words)
    (line,) = [line for line in text.splitlines() if line.startswith("to train so: ")]
    config = load_config(overrides_of("train", line.removeprefix("to train so: ")))
    layout = layout_of(config.layout, config.runtime)
    assert layout.sizes == {"data": 2, "expert": 16, "model": 2}
    assert layout.table == PRESETS["model"]
    assert (config.runtime.zero_stage, config.runtime.recompute, config.train.seed) == (2, "layers", 2)
    assert (config.runtime.launcher, config.runtime.device) == ("slurm", "cuda")


@pytest.mark.parametrize(
    ("words", "runtime"),
    [
        (["devices=1"], " RUNTIME=gpu "),
        (["devices=2"], " RUNTIME=node "),
        (["devices=2", "runtime=slurm"], "runtime=slurm"),
        (["devices=2", "device=cpu"], ""),
    ],
)
def test_the_command_for_training_starts_on_such_devices(words, runtime):
    line = printed("recipes=demo", *words).splitlines()[-1]
    assert line.startswith("to train so: make train RECIPE=demo")
    assert runtime in line
    assert (" RUNTIME=" in line) == runtime.startswith(" RUNTIME=")


def test_keys_of_train_are_taken_too():
    own = ["devices=64", "mp=2", "ep=16", "zero_stage=2", "recompute=all"]
    of_train = [
        "runtime.processes=64",
        "runtime.mp=2",
        "runtime.ep=16",
        "runtime.zero_stage=2",
        "runtime.recompute=all",
    ]
    values = [objects(f"recipes={SMALL}", *words) for words in (own, of_train)]
    assert values[0] == values[1]
    assert values[0]["layout"]["sizes"] == {"data": 2, "expert": 16, "model": 2}


def test_recipes_side_by_side_with_published_figures():
    """A plan that does not fit is replaced by the nearest that does. T(96L) has fewer groups than cores."""
    rematerialised = "gshard/moe_128e_36l"
    text = printed(f"recipes=[gshard/moe_512e_12l,{rematerialised},gshard/t_96l,mesh_tf/ff_2048]", "devices=paper")
    rows = [line.split() for line in text.splitlines()]
    names = ["gshard/moe_512e_12l", "published", rematerialised, "published", "gshard/t_96l", "published"]
    assert [row[0] for row in rows[1:7]] == names
    assert rows[2] == ["published", "512", "50.0G", "3.28", "4.9", "3.5"]
    assert rows[3][1:5] == ["128", "128", "1", "1"]
    assert rows[3][5] != "none"
    assert rows[5][1:4] == ["2048", "1", "4"]
    assert not any("!" in row for row in rows)
    assert f"\n{rematerialised}, gshard ep 128 ZeRO 1, none, does not fit: activations: " in text
    assert text.splitlines()[-1].startswith("mesh_tf/ff_2048: devices=paper: no number of devices is published of")


def test_plans_of_several_recipes_in_json():
    plans = objects(f"recipes=[{SMALL},{DEEP},mesh_tf/ff_2048]", "devices=128", "device=h200")["plans"]
    assert [values["recipe"] for values in plans] == [SMALL, DEEP, "mesh_tf/ff_2048"]
    assert plans[0]["published"]["cores"] == 128
    assert plans[1]["memory"]["fits"]
    assert "choose devices=16" in plans[2]["error"]
    (instead,) = objects("recipes=[gshard/moe_128e_36l,mesh_tf/ff_2048]", "devices=paper")["plans"][:1]
    assert instead["asked"] == "gshard ep 128 ZeRO 1, none"
    assert instead["does_not_fit"].startswith("activations: ")
    assert instead["recompute"] != "none"
    assert instead["memory"]["fits"]


def test_a_search_in_json_and_text(tmp_path):
    words = ["recipes=smoke", "devices=2", "device=cpu", "search=true", "top=3"]
    plans = objects(*words)["plans"]
    own = [values for values in plans if values["own_groups"]]
    assert len(own) == 3
    assert all(values["memory"]["fits"] for values in plans)
    text = printed(*words)
    assert ("*" in text) == (len(plans) > len(own))
    best = text.split("best of this recipe: ")[1].splitlines()[0]
    again = objects(*overrides_of("plan", best))
    assert again["step"] == own[0]["step"]


def test_a_device_of_ones_own(tmp_path):
    values = yaml.safe_load((ROOT / "configs" / "device" / "h100.yaml").read_text())
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({**values, "name": "mine", "price": 1.0}))
    words = [f"recipes={SMALL}", "devices=32"]
    own = objects(*words, f"device={file}", "device.flops.bf16=1.978e15", "device.node=4")
    plain = objects(*words, "device=h100")
    assert (own["device"], plain["device"]) == ("mine", "h100")
    assert own["budget"]["cost"] == pytest.approx(own["budget"]["device_hours"])
    assert plain["step"]["parts"]["experts"] > 1.5 * own["step"]["parts"]["experts"]
    assert own["collectives"][0]["bytes_inside"] < plain["collectives"][0]["bytes_inside"]


def test_a_layout_that_repeats_work_gives_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        objects(f"recipes={SMALL}", "devices=4", "mp=2", "layout=gshard")
    assert "is computed 2 times over" in caplog.text
    caplog.clear()
    objects(f"recipes={SMALL}", "devices=4", "mp=2")
    assert not caplog.text


def test_letters_of_a_layout_can_be_set():
    values = objects(f"recipes={SMALL}", "devices=4", "mp=2", "+layout.H=model")
    assert values["layout"]["table"] == {"G": ["data", "expert"], "E": ["expert"], "H": ["model"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["devices=100"], r"groups_per_step=128 is not divisible by devices=100; choose devices=64 or 128$"),
        (["devices=0"], r"devices=0 must be at least 1, or paper$"),
        (["devices=128", "mp=2", "ep=3"], r"ep=3 does not divide devices=128 / mp=2; choose ep=2 or 4$"),
        (["devices=32", "mp=32"], r"model.heads=16 \(N of wq_MND\) .* runtime.mp=32, .*; choose 32"),
        (["devices=8", "mp=2", "model.biases=true"], r"layout.H=model with model.biases=true: .*set runtime.mp=1"),
        (
            ["devices=8", "mp=2", *DROPPING],
            r"train.lora.dropout=0.1: the layout cuts H, .* or train without runtime.mp",
        ),
        (["devices=8", "device=h10"], r"device h10 does not exist; did you mean h100"),
        (["device=/nowhere/mine.yaml"], r"/nowhere/mine.yaml does not exist"),
        (["device.prize=2"], r"device.prize does not exist; did you mean device.price"),
        (["device.flops=2"], r"device.flops does not exist; did you mean device.flops.fp32"),
        (["device.price=cheap"], r"device.price=cheap must be a number$"),
        (["device.memory=0"], r"device h100: memory=0.0 must be positive"),
        (["device.network=inf"], r"device h100: network=inf must be positive"),
        (["device.price=nan"], r"device h100: price=nan must be finite"),
        (["devices=8", "search=true", "mp=2"], r"mp=2 is what search=true chooses; leave out one of them"),
        (["devices=8", "search=true", "zero_stage=2"], r"zero_stage=2 is what search=true chooses"),
        (["devices=8", "search=true", "recompute=all"], r"recompute=all is what search=true chooses"),
        (["devises=8"], r"devises does not exist; did you mean"),
        (["xyz=8"], r"xyz does not exist; there are baselines, batch, corpus, .*, device, devices, .*, recipes, "),
        (["zero_stage=3"], r"zero_stage=3 is not one of 1, 2"),
        (["layout=modle", "devices=2"], r"layout modle does not exist; did you mean model"),
        (["out=plan.pdf"], r"out=plan.pdf must end in .png or .svg"),
        (["ep=0"], r"ep=0 must be at least 1"),
        (["recipes=gshard/moe_128", "devices=2"], r"recipe gshard/moe_128 does not exist; did you mean"),
        (["recipes=gshar"], r"recipe gshar does not exist; did you mean gshard"),
        (["recipes=gshard", "search=true"], r"search=true is of one recipe, and recipes=gshard are 8"),
        (["recipes=demo", "device=h100", "devices=paper", "model.moe.num_experts=0"], r"devices is published of demo"),
        (["recipes=" + DEEP, "device=tpu_v3", "devices=1", "search=true"], r"devices=1: none of 2 layouts fits; near"),
    ],
)
def test_an_error_has_a_remedy(words, message):
    with pytest.raises(ValueError, match=message):
        answer(load_plan([f"recipes={SMALL}", *words]))


def test_layouts_that_are_chosen_are_those_of_the_configuration():
    assert {file.stem for file in (ROOT / "configs" / "layout").glob("*.yaml")} == set(PRESETS)
    for name, table in PRESETS.items():
        config = load_config([f"layout={name}"])
        assert layout_of(config.layout, config.runtime).table == table


def test_published_figures():
    assert published("gshard/t_96l") == {"parameters": 2.3e9, "core_years": 235.5, "days": 42.0, "cores": 2048.0}
    assert published("demo") == {}
