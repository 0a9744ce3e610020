"""The precision of matrix products on each type of device: the default, and a warning about fp32 on a GPU."""

from pipeline.jobs.visible_devices import device_type

TFLOPS = {"fp32": 67, "bf16": 989}  # dense matrix products of an H100 SXM, fp32 without TF32 (configs/device/h100.yaml)


def default_precision(device: str) -> str:
    """Return the precision of training and decoding where nobody chooses one. device: runtime.device."""
    return "bf16" if device_type(device) == "cuda" else "fp32"


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
