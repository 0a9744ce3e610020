"""The precision of matrix products on each type of device: the default, and which ones do not suit it."""

from pathlib import Path

from pipeline.jobs.visible_devices import device_type

CPUINFO = Path("/proc/cpuinfo")
VNNI = {"avx512_vnni", "avx_vnni"}  # as /proc/cpuinfo names the instructions
BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # the last one as ARM has it
TFLOPS = {"fp32": 67, "bf16": 989}  # dense matrix products of an H100 SXM, fp32 without TF32 (configs/device/h100.yaml)


def default_precision(device: str) -> str:
    """Return the precision of training and decoding where nobody chooses one. device: runtime.device."""
    return "bf16" if device_type(device) == "cuda" else "fp32"


def check_int8(device: str, cpuinfo: str | None = None) -> None:
    """Raise ValueError unless products of 8 bits are fast and exact on a device.

    Processors without VNNI add pairs of products in 16 bits, which may overflow.
    device: runtime.device.
    cpuinfo: text of /proc/cpuinfo.
    """
    if device_type(device) == "cuda":
        raise ValueError("decode.precision=int8 is for CPUs; on a GPU set decode.precision=bf16")
    if VNNI.isdisjoint((_cpuinfo() if cpuinfo is None else cpuinfo).split()):
        raise ValueError(
            "decode.precision=int8 needs Linux on a processor with VNNI (Intel since Cascade Lake, AMD since Zen 4); "
            "set decode.precision=fp32"
        )


def describe_precision(device: str, precision: str, cpuinfo: str | None = None) -> str:
    """Return a line on training in bf16 on a CPU where it is faster than the precision chosen, or slower; else nothing.

    device: runtime.device.
    precision: train.precision.
    cpuinfo: text of /proc/cpuinfo.
    """
    if imitates_bf16(device, precision, cpuinfo):
        return (
            "precision: bf16, for which this processor has no instructions: it takes many times as long as "
            "train.precision=fp32 (docs/training.md)"
        )
    cpuinfo = _cpuinfo() if cpuinfo is None else cpuinfo
    if device_type(device) == "cpu" and precision == "fp32" and not BF16.isdisjoint(cpuinfo.split()):
        return "precision: fp32; this processor is faster in bf16, by train.precision=bf16 (docs/training.md)"
    return ""


def imitates_bf16(device: str, precision: str, cpuinfo: str | None = None) -> bool:
    """Return whether the processor has to imitate bf16, as far as Linux names its instructions.

    device, precision, cpuinfo: as in `describe_precision`.
    """
    if device_type(device) == "cuda" or precision != "bf16":
        return False
    words = (_cpuinfo() if cpuinfo is None else cpuinfo).split()
    return bool(words) and BF16.isdisjoint(words)


def _cpuinfo() -> str:
    return CPUINFO.read_text(encoding="utf-8") if CPUINFO.exists() else ""


def fp32_caution(device: str, **precisions: str) -> str:
    """Return a warning if a setting asks a GPU for fp32, else an empty text.

    device: runtime.device.
    precisions: values of the key `precision` by their section, such as `train`.
    """
    keys = [f"{section}.precision" for section, precision in precisions.items() if precision == "fp32"]
    if not keys or device_type(device) != "cuda":
        return ""
    slow, fast = TFLOPS["fp32"], TFLOPS["bf16"]
    return (
        f"{' and '.join(f'{key}=fp32' for key in keys)} on a GPU: matrix products run without TF32, on an H100 at "
        f"{slow} TFLOP/s in place of {fast} in bf16, {fast / slow:.0f} times as many; set {' and '.join(keys)} to bf16"
    )
