"""Devices that a plan may be made for: configs/device/<name>.yaml, or a file of one's own."""

from pathlib import Path

from pipeline.config import ROOT
from pipeline.plan.workload import Device
from pipeline.schema import build, suggestion

DEVICES = ROOT / "configs" / "device"


def load_device(name_or_path: str) -> Device:
    """Raises ValueError where there is none of that name, or the file says something that a device has not."""
    import yaml

    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = DEVICES / f"{name_or_path}.yaml"
    if not path.is_file():
        raise ValueError(f"device {name_or_path} does not exist{suggestion(name_or_path, device_names())}")
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError(f"{path} is no mapping from fields of a device to values")
    return build(Device, values, path.stem)


def device_names() -> list[str]:
    return sorted(file.stem for file in DEVICES.glob("*.yaml"))
