"""Results of another configuration are replaced only by REPLACE=1, and a mistyped command leaves a run as it was."""

import json
import shutil

import pytest

from eval.report.page_record import record_page
from pipeline.commands.baselines import train_baselines
from pipeline.commands.data import show_data
from pipeline.commands.train import train
from pipeline.config import ROOT, load_config
from pipeline.corpus.languages import LangPair
from pipeline.dag.replacement import check_replacement, differences
from pipeline.dag.status import read_status
from pipeline.sweep.command import is_done, run_sweep
from pipeline.sweep.command import plan as plan_sweep
from pipeline.sweep.config import load_sweep

OLD_RUN = ROOT / "tests" / "fixtures" / "run-0.2.0" / "run.json"
SMALL = ["recipes=smoke", "name=mine", "baselines=none"]


def load(tmp_path, *overrides):
    places = [f"runtime.runs={tmp_path}/runs", f"runtime.artifacts={tmp_path}/artifacts"]
    return load_config([*SMALL, *overrides, *places])


def finish(directory, config):
    """Write what marks a finished run of this configuration."""
    directory.mkdir(parents=True)
    record = {"pairs": ["de-en", "tr-en"], "config": config.to_json()}
    (directory / "run.json").write_text(json.dumps(record))
    (directory / "status.json").write_text(json.dumps({"state": "done"}))


@pytest.mark.parametrize(("old", "new"), [("swiglu", "relu"), ("relu", "swiglu")])
def test_an_option_that_a_record_leaves_out_is_compared(tmp_path, old, new):
    finish(tmp_path / "runs" / "mine", load(tmp_path, f"model.activation={old}"))
    assert differences(tmp_path / "runs" / "mine", load(tmp_path, f"model.activation={new}")) == (
        [("model.activation", "swiglu", "relu")] if old == "swiglu" else [("model.activation", None, "swiglu")]
    )


def contents(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def run(tmp_path):
    """The directory of a finished run of SMALL."""
    finish(tmp_path / "runs" / "mine", load(tmp_path))
    return tmp_path / "runs" / "mine"


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        [
            "runtime=gpu",
            "runtime.device=cpu",
            "layout=model",
            "runtime.wandb=disabled",
            "runtime.ep=1",
            "layout.E=null",
        ],
        ["train.log_every=3", "train.checkpoints.last_n=2", "decode.batch_tokens=100", "corpus.keep_removed=true"],
        ["pairs=[de:en,tr-en]", f"corpus.path={ROOT}/data/../data/sample"],
    ],
    ids=["same", "place", "no_effect", "spelling"],
)
def test_the_same_configuration_needs_nothing(run, tmp_path, overrides):
    check_replacement(run, load(tmp_path, *overrides))


def test_the_pairs_that_a_run_writes_into_its_gates_make_no_difference(tmp_path):
    config = load(tmp_path, "gate=task", "+model.moe.encoder_gate={kind: task}")
    pairs = [LangPair("de", "en"), LangPair("tr", "en")]
    finish(tmp_path / "runs" / "mine", config.with_tasks(pairs))
    check_replacement(tmp_path / "runs" / "mine", config)
    (difference,) = differences(tmp_path / "runs" / "mine", load(tmp_path, "gate=task"))
    assert difference[0].startswith("model.moe.encoder_gate")


def test_an_import_is_no_result_of_a_training(tmp_path):
    directory = tmp_path / "runs" / "mine"
    directory.mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps({"recipe": "import", "imported_from": "x", "config": {}}))
    assert differences(directory, load(tmp_path)) == [("recipe", "import", "smoke")]
    for parts in ((), ("pairs",)):
        with pytest.raises(ValueError, match=r"NAME=mine: .*/mine holds an imported model; choose another name, as NA"):
            check_replacement(directory, load(tmp_path), parts)
    check_replacement(directory, load(tmp_path, "runtime.replace=true"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["pairs=[de-en]"], r'pairs=\["de-en", "tr-en"\] there and \["de-en"\] here'),
        (["train.max_tokens=9", "train.seed=2"], r"train.max_tokens=450000 there and 9 here, train.seed=1 there and 2"),
        (["runtime=gpu"], r'train.precision="fp32" there and "bf16" here'),
        (["gate=top1"], r'model.moe.gate.kind="top2" there and "top1" here'),
        (["train.max_tokens=9", "train.seed=2", "decode.beam=7", "model.dim=64"], r"model.dim=.*, and 1 more; choose"),
        (["corpus.path=other"], r"corpus.path=.*data/sample.* there and .*other"),
        (["corpus.rules.max_chars=9"], r"corpus.rules.max_chars="),
        (["baselines=tiered"], r"baselines.tiers="),
        (["+batch.mixture.groups.rare={pairs: [tr-en], share: 0.5}"], r"batch.mixture.groups.rare="),
        (["decode.beam=7"], r"as NAME=mine-2, or replace those results by REPLACE=1"),
    ],
)
def test_results_of_another_configuration_are_replaced_only_on_request(run, tmp_path, overrides, message):
    with pytest.raises(ValueError, match=f"runs/mine has results of another configuration: .*{message}"):
        check_replacement(run, load(tmp_path, *overrides))
    check_replacement(run, load(tmp_path, *overrides, "runtime.replace=true"))


def test_all_results_of_another_version_are_of_the_same_configuration(tmp_path):
    """A setting that the earlier version did not have counts as switched off there."""
    recorded = json.loads(OLD_RUN.read_text(encoding="utf-8"))
    del recorded["config"]["corpus"]["add"], recorded["config"]["train"]["ema"]
    shutil.copytree(OLD_RUN.parent / "corpus", tmp_path / "corpus")
    from tests.system.test_old_runs import SETTINGS

    config = load_config([*SETTINGS, f"corpus={tmp_path}/corpus", "recipes=smoke"])
    recorded["config"]["baselines"] = []  # as that version wrote none
    recorded["config"]["corpus"]["path"] = str(tmp_path / "corpus")
    (tmp_path / "run.json").write_text(json.dumps(recorded))
    assert differences(tmp_path, config) == []
    different = load_config([*SETTINGS, f"corpus={tmp_path}/corpus", "recipes=smoke", "train.ema=0.9"])
    assert differences(tmp_path, different) == [("train.ema", None, 0.9)]


@pytest.mark.parametrize("command", [train, show_data, train_baselines])
def test_a_refused_command_changes_nothing(run, tmp_path, command):
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="another configuration"):
        command(load(tmp_path, "pairs=[de-en]"))
    assert contents(tmp_path) == before


def test_the_page_on_the_data_does_not_ask_for_the_model(run, tmp_path):
    check_replacement(run, load(tmp_path, "model.dropout=0.5"), ("pairs", "corpus", "vocab"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["pairs=[de-xx]"], "xx"),
        (["corpus.path=nowhere"], "nowhere"),
        (["runtime.launcher=hostfile", "runtime.device=cpu", "runtime.hostfile=nowhere"], "nowhere"),
    ],
)
def test_a_wrong_setting_that_shows_later_leaves_the_run_as_it_was(run, tmp_path, overrides, message):
    before = contents(run)
    with pytest.raises(ValueError, match=message):
        train(load(tmp_path, *overrides, "runtime.replace=true"))
    assert contents(run) == before
    with pytest.raises(ValueError, match=message):
        train(load(tmp_path, *overrides, "name=new"))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


def test_a_failure_of_a_stage_is_in_the_status(tmp_path):
    (tmp_path / "corpus").mkdir()
    for name in ("train.de-en.de", "train.de-en.en"):
        (tmp_path / "corpus" / name).write_text("\n")
    with pytest.raises(ValueError, match="empty"):
        train(load(tmp_path, f"corpus.path={tmp_path}/corpus", "pairs=[de-en]"))
    status = read_status(tmp_path / "runs" / "mine")
    assert status.state == "failed"
    assert "empty" in status.error


def test_a_run_replaces_a_page_of_other_runs_only_on_request(tmp_path):
    """`make report` drew it. A page that was drawn into a run's directory does not affect the run."""
    record_page(tmp_path, [tmp_path / "first", tmp_path / "second"])
    check_replacement(tmp_path, load(tmp_path))  # the page is gone
    (tmp_path / "report.html").touch()
    with pytest.raises(ValueError, match=r"has a page of other runs, .*NAME=mine-2, or replace that page by REPLACE=1"):
        check_replacement(tmp_path, load(tmp_path))
    check_replacement(tmp_path, load(tmp_path, "runtime.replace=true"))
    finish(tmp_path / "runs" / "mine", load(tmp_path))
    record_page(tmp_path / "runs" / "mine", [tmp_path / "first"])
    check_replacement(tmp_path / "runs" / "mine", load(tmp_path))


def test_a_sweep_is_no_run(tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(ValueError, match=r"is a sweep, no run; give the run another name, as NAME=other"):
        check_replacement(tmp_path, load(tmp_path, "runtime.replace=true"))


def test_a_sweep_replaces_points_of_another_configuration_only_on_request(tmp_path):
    def sweep(*overrides):
        words = [*SMALL[::2], "name=grid", "compare=[]", "train.seed=1,2", f"runtime.runs={tmp_path}", *overrides]
        return load_sweep(words)

    point, other = plan_sweep(sweep()).points
    finish(tmp_path / "grid" / point.id, point.config)
    assert (is_done(point, tmp_path / "grid"), is_done(other, tmp_path / "grid")) == (True, False)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"train.max_tokens=450000 there and 400 here"):
        run_sweep(sweep("train.max_tokens=400"))
    assert contents(tmp_path) == before
    replaced = plan_sweep(sweep("train.max_tokens=400", "runtime.replace=true")).points[0]
    assert "runtime.replace=true" in replaced.overrides
    check_replacement(tmp_path / "grid" / point.id, replaced.config)
