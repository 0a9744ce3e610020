"""The device table, and the errors in a file of the user."""

from pathlib import Path

import pytest
import yaml

from pipeline.plan.devices import DEVICES, device_names, load_device
from tests.plans import device_of


def test_every_device_of_the_table_loads_under_its_own_name_and_says_where_it_is_from() -> None:
    assert device_names() == ["a100", "b200", "cpu", "h100", "h200", "tpu_v3"]
    for name in device_names():
        device = load_device(name)
        assert device.name == name
        assert device.source
        assert device.resident < device.memory
        assert device.flops["fp32"] <= device.flops["bf16"]


def test_a_core_of_a_tpu_is_half_a_chip() -> None:
    """Cloud TPU documentation of v3: 123 TFLOP/s, 32 GiB, 900 GB/s a chip of two cores; 340 TB/s for 1024 chips."""
    core = load_device("tpu_v3")
    assert core.flops["bf16"] == 123e12 / 2
    assert core.memory == pytest.approx(32 * 2**30 / 2, rel=1e-3)
    assert core.bandwidth == 900e9 / 2
    assert core.network == pytest.approx(340e12 / 1024 / 2, rel=1e-3)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    values = yaml.safe_load((DEVICES / "h100.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**values, "price": 1.25}), encoding="utf-8")
    assert load_device(str(path)).price == 1.25


def test_errors_name_the_field_and_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device h10 does not exist; did you mean h100"):
        load_device("h10")
    values = yaml.safe_load((DEVICES / "h100.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "mine.yaml"
    for wrong, message in (
        ({**values, "memery": 1.0}, "mine.memery does not exist; did you mean memory"),
        ({**values, "flops": {"fp32": "67e12", "bf16": 1.0}}, "mine.flops.fp32='67e12' must be of type float"),
        ([], "is no mapping"),
    ):
        path.write_text(yaml.safe_dump(wrong), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            load_device(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flops": {"fp32": 1e12}}, "flops has fp32; give fp32 and bf16"),
        ({"memory": 0.0}, "memory=0.0 must be positive"),
        ({"efficiency": {"dense": 0.0}}, r"efficiency.dense=0.0 must be positive"),
        ({"efficiency": {"denes": 0.5}}, "efficiency.denes does not exist"),
        ({"efficiency": {"allreduce": 1.0}}, "efficiency.allreduce does not exist; there are .*, all_reduce"),
        ({"price": -1.0}, "price=-1.0 must be finite and not negative"),
    ],
)
def test_a_device_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"device round: {message}"):
        device_of(**changes)
