"""The precision that nobody chose: fp32 on a CPU, bf16 on a GPU, and a warning where a GPU is to compute in fp32."""

import re
from dataclasses import asdict

import pytest

from pipeline.config import ROOT, load_config
from pipeline.finished_run import FinishedRun
from pipeline.jobs import visible_devices
from pipeline.jobs.default_precision import TFLOPS, check_int8, describe_precision, fp32_caution
from pipeline.plan.devices import load_device

SMALL = ["recipes=smoke", "batch.groups_per_step=16", "model.moe.num_experts=8"]


def precisions(*overrides):
    config = load_config([*SMALL, *overrides])
    return config.train.precision, config.decode.precision, *{tier.train.precision for tier in config.baselines.tiers}


@pytest.mark.parametrize("preset", ["gpu", "node", "slurm", "hostfile"])
def test_presets_of_gpus_train_and_translate_in_bf16(preset):
    assert precisions(f"runtime={preset}") == ("bf16", "bf16", "bf16")
    assert precisions(f"runtime={preset}", "runtime.device=cpu") == ("fp32", "fp32", "fp32")


def test_the_device_decides_unless_the_user_does(monkeypatch, tmp_path):
    assert precisions("runtime.device=auto") == ("fp32", "fp32", "fp32")
    assert precisions("runtime=gpu", "train.precision=fp16") == ("fp16", "bf16", "fp16")
    assert precisions("runtime=gpu", "decode.precision=fp32", "train=adafactor") == ("bf16", "fp32", "bf16")
    assert load_config(["recipes=sizes/small", "corpus=data/sample"]).train.precision == "bf16"
    monkeypatch.setattr(visible_devices, "DRIVERS", [tmp_path])
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert precisions("runtime.device=auto") == ("bf16", "bf16", "bf16")


def test_fp32_on_a_gpu_is_warned_of_once(caplog):
    load_config([*SMALL, "runtime=gpu"])
    load_config([*SMALL, "train.precision=fp32"])
    assert not caplog.messages
    load_config([*SMALL, "runtime=gpu", "train.precision=fp32", "decode.precision=fp32"])
    (message,) = caplog.messages
    assert "train.precision=fp32 and decode.precision=fp32 on a GPU" in message
    assert "at 67 TFLOP/s in place of 989 in bf16, 15 times as many" in message


def test_a_run_that_a_cpu_made_is_warned_of_when_a_gpu_translates(caplog):
    run = FinishedRun(
        **dict.fromkeys(("name", "commit"), "run"),
        pairs=(),
        model=None,
        vocabulary=None,
        decode=load_config(SMALL).decode,
        max_source_tokens=8,
    )
    unset = dict.fromkeys(asdict(run.decode))
    assert run.decode_with({**unset, "precision": "bf16"}, "cuda").precision == "bf16"
    assert run.decode_with(unset, "cpu").precision == "fp32"
    assert not caplog.messages
    assert run.decode_with(unset, "cuda").precision == "fp32"
    (message,) = caplog.messages
    assert "set decode.precision to bf16" in message


def test_the_factor_is_that_of_the_planner():
    assert {name: flops / 1e12 for name, flops in load_device("h100").flops.items()} == TFLOPS
    assert not fp32_caution("cuda", train="fp16")


@pytest.mark.parametrize("instructions", ["avx512_bf16", "amx_bf16"])
def test_the_faster_precision_of_a_processor_is_named(instructions):
    able, unable = f"flags : fpu avx512f {instructions}", "flags : fpu avx512f avx512_vnni"
    assert "faster in bf16" in describe_precision("cpu", "fp32", able)
    assert "no instructions" in describe_precision("cpu", "bf16", unable)
    quiet = [("cpu", "bf16", able), ("cpu", "fp32", unable), ("cuda", "fp32", able), ("cuda", "bf16", unable)]
    quiet += [("cpu", "bf16", ""), ("cpu", "fp32", ""), ("cpu", "fp16", unable)]  # no /proc/cpuinfo
    assert not any(describe_precision(*words) for words in quiet)


def test_the_page_has_the_measured_ratios():
    """The rates of docs/speed.md come from the benchmark's CSV by a test of its own."""
    speed = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    rates = {
        (size, precision): float(rate.replace(",", ""))
        for size, precision, rate in re.findall(r"^\| (d=\d+) E=8 .*, (\w+) \|[^|]*\| ([\d,]+) \[", speed, re.MULTILINE)
    }
    ratios = [rates[size, "bf16"] / rates[size, "fp32"] for size in ("d=512", "d=256")]
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert f"trained {ratios[0]:.2f} times as fast with d=512" in text
    assert f"{ratios[1]:.2f} times with d=256" in text


def test_8_bits_need_a_processor_that_sums_them_exactly():
    flags = "flags : fpu sse2 avx2 avx512f {} fma"
    check_int8("cpu", flags.format("avx512_vnni"))
    check_int8("cpu", flags.format("avx_vnni"))
    with pytest.raises(
        ValueError, match=r"decode\.precision=int8 needs Linux on a processor with VNNI .*decode\.precision=fp32"
    ):
        check_int8("cpu", flags.format("avx512_bf16"))
    with pytest.raises(ValueError, match=r"int8 is for CPUs; on a GPU set decode\.precision=bf16"):
        check_int8("cuda", flags.format("avx512_vnni"))


def test_8_bits_on_a_gpu_are_refused_before_any_work():
    with pytest.raises(ValueError, match="int8 is for CPUs"):
        load_config([*SMALL, "runtime=gpu", "decode.precision=int8"])
