from pathlib import Path
from typing import Any

import pytest

from eval.records.results import find_run, group_seeds, load_results
from eval.report.comparison import differences
from pipeline.config import load_config
from tests.unit.eval.finished import finished


def test_runs_that_differ_in_their_seed_alone_are_one_system() -> None:
    runs = [
        finished("dense_s1", seed=1),
        finished("moe_8e_seed1", experts=8, seed=1),
        finished("dense_s2", seed=2, runtime={"device": "cuda"}, recipe="dense_s2"),
        finished("moe_8e_seed2", experts=8, seed=2),
        finished("moe_32e", experts=32),
    ]
    assert [(system.label, [run.label for run in system.runs]) for system in group_seeds(runs)] == [
        ("dense", ["dense_s1", "dense_s2"]),
        ("moe_8e", ["moe_8e_seed1", "moe_8e_seed2"]),
        ("moe_32e", ["moe_32e"]),
    ]


def test_further_test_sets_of_one_seed_keep_seeds_together() -> None:
    runs = [finished("a_s1", seed=1, score={"test_sets": ["own", "ntrex"]}), finished("a_s2", seed=2, score={})]
    assert [system.label for system in group_seeds(runs)] == ["a"]
    runs = [finished("a_s1", seed=1, score={"resamples": 10}), finished("a_s2", seed=2, score={})]
    assert len(group_seeds(runs)) == 2


def test_a_seed_that_bilingual_models_share_keeps_seeds_together() -> None:
    configs = [load_config([f"train.seed={seed}", f"train.log_every={seed}"]).to_json() for seed in (1, 2)]
    assert [tier["train"]["seed"] for config in configs for tier in config["baselines"]["tiers"][:1]] == [1, 2]
    runs = [finished(f"demo_s{config['train']['seed']}", **without_model(config)) for config in configs]
    assert [system.label for system in group_seeds(runs)] == ["demo"]
    assert differences(runs) == []
    configs[1]["baselines"]["tiers"][0]["train"]["patience"] = 100
    runs = [finished(f"demo_s{config['train']['seed']}", **without_model(config)) for config in configs]
    assert [system.label for system in group_seeds(runs)] == ["demo_s1", "demo_s2"]
    assert [difference.aspect for difference in differences(runs)] == ["bilingual baselines"]


def test_settings_of_speed_keep_seeds_together_unless_they_round() -> None:
    def labels(**decode: object) -> list[str]:
        runs = [finished(f"a_s{n}", seed=n, decode={"batch_tokens": n, "beam": 4, **decode}) for n in (1, 2)]
        return [system.label for system in group_seeds(runs)]

    assert labels(precision="fp32") == ["a"]
    assert labels(precision="bf16") == labels(precision="fp32", capacity_factor=1.0) == ["a_s1", "a_s2"]


def test_runs_of_one_seed_are_compared_and_labels_stay_apart() -> None:
    same = [finished("before"), finished("after")]
    assert [system.label for system in group_seeds(same)] == ["before", "after"]
    similar = [finished("bias1", seed=1), finished("bias2", seed=2), finished("bias", experts=4)]
    assert [system.label for system in group_seeds(similar)] == ["bias1", "bias"]


def test_a_run_is_found_by_name_path_and_label(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "sweep" / "a"
    run_dir.mkdir(parents=True)
    (run_dir / "run.json").touch()
    assert find_run("sweep/a", tmp_path / "runs") == ("", run_dir)
    assert find_run(f"first={run_dir}", tmp_path) == ("first", run_dir)
    with pytest.raises(ValueError, match="sweep/b is no finished run: neither"):
        find_run("sweep/b", tmp_path / "runs")


def without_model(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in ("name", "model")}


def test_two_runs_of_one_label_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        directory = tmp_path / name / "run"
        directory.mkdir(parents=True)
        (directory / "run.json").write_text('{"name": "x", "pairs": ["de-en"], "train_pairs": {"de-en": 1}}')
        (directory / "scores.csv").write_text("pair,system,train_pairs,metric,score,ci_low,ci_high,n_test,signature\n")
        (directory / "significance.csv").write_text("pair,metric,delta,ci_low,ci_high,p_value,n_resamples,seed\n")
    runs = [("", tmp_path / "a" / "run"), ("", tmp_path / "b" / "run")]
    with pytest.raises(ValueError, match="two runs are called 'run'; name one of them otherwise"):
        load_results(runs)
    assert [run.label for run in load_results([runs[0], ("other", runs[1][1])])] == ["run", "other"]
    for label in ("bilingual", "reference"):
        with pytest.raises(ValueError, match=f"'{label}' is what a report calls the .*; name the run otherwise"):
            load_results([(label, tmp_path / "a" / "run")])


def test_what_seeds_have_in_common_is_no_label_of_the_report() -> None:
    runs = [finished("bilingual_s1", seed=1), finished("bilingual_s2", seed=2)]
    assert [system.label for system in group_seeds(runs)] == ["bilingual_s1"]
