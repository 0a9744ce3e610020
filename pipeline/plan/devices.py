"""The devices that a plan can be made for: configs/device/<name>.yaml, or a file of the user."""

from pathlib import Path

from pipeline.config import ROOT
from pipeline.plan.workload import Device
from pipeline.schema import build
from pipeline.spelling import suggestion

DEVICES = ROOT / "configs" / "device"


def load_device(name_or_path: str) -> Device:
    """Load a device by its name or file. Raises ValueError if it does not exist or has an unknown field."""
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
    """Return the names of the devices in configs/device."""
    return sorted(file.stem for file in DEVICES.glob("*.yaml"))
