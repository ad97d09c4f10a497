"""Devices as CUDA names them, with their compute capability, and the GPU of the unit table that they are."""

import pytest
from tcsim_gpu import device
from tcsim_gpu.names import DEVICES, gpu_of_device, matches
from tcsim_gpu.table import CAPABILITY

from tcsim.hardware import GPUS

KNOWN = {
    ("Tesla V100-SXM2-16GB", 70): "v100",
    ("Tesla V100S-PCIE-32GB", 70): "v100",
    ("NVIDIA TITAN V", 70): "v100",
    ("Tesla T4", 75): "t4",
    ("NVIDIA T4G", 75): "t4",
    ("Quadro RTX 4000", 75): "t4",
    ("Quadro RTX 5000 with Max-Q Design", 75): "t4",
    ("Quadro RTX 8000", 75): "t4",
    ("NVIDIA GeForce RTX 2080 Ti", 75): "t4",
    ("GeForce RTX 2060 SUPER", 75): "t4",
    ("NVIDIA TITAN RTX", 75): "t4",
    ("NVIDIA A100-SXM4-80GB", 80): "a100",
    ("NVIDIA A100-PCIE-40GB", 80): "a100",
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 80): "a100",
    ("NVIDIA A30", 80): "a30",
    ("NVIDIA A2", 86): "a2",
    ("NVIDIA A10", 86): "a40",
    ("NVIDIA A10G", 86): "a40",
    ("NVIDIA A40", 86): "a40",
    ("NVIDIA GeForce RTX 3090 Ti", 86): "a40",
    ("NVIDIA GeForce RTX 3060 Laptop GPU", 86): "a40",
    ("NVIDIA RTX A6000", 86): "a40",
    ("NVIDIA RTX A2000 12GB", 86): "a40",
    ("NVIDIA RTX A4000", 86): "a40",
    ("NVIDIA L4", 89): "ada",
    ("NVIDIA L40", 89): "l40s",
    ("NVIDIA L40S", 89): "l40s",
    ("NVIDIA GeForce RTX 4090", 89): "ada",
    ("NVIDIA GeForce RTX 4080 SUPER", 89): "ada",
    ("NVIDIA RTX 6000 Ada Generation", 89): "ada",
    ("NVIDIA RTX 5000 Ada Generation", 89): "ada",
    ("NVIDIA RTX 5000 Ada Generation Laptop GPU", 89): "ada",
    ("NVIDIA RTX 4000 SFF Ada Generation", 89): "ada",
    ("NVIDIA H100 80GB HBM3", 90): "h100",
    ("NVIDIA H100 PCIe", 90): "h100",
    ("NVIDIA H20", 90): "h100",
    ("NVIDIA H200", 90): "h200",
    ("NVIDIA GH200 480GB", 90): "h200",
    ("NVIDIA B200", 100): "b200",
    ("NVIDIA GB200", 100): "b200",
    ("NVIDIA GeForce RTX 5090", 120): "rtx-blackwell",
    ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", 120): "rtx-blackwell",
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 120): "rtx-blackwell",
    ("NVIDIA RTX PRO 5000 Blackwell", 120): "rtx-blackwell",
}
UNKNOWN = [
    ("NVIDIA RTX 5000 Ada Generation", 120),  # the name of one generation with the capability of another
    ("Quadro RTX 4000", 89),
    ("NVIDIA H200", 80),
    ("NVIDIA A100-SXM4-80GB", 86),
    ("NVIDIA GeForce RTX 5090", 89),
    ("NVIDIA GeForce RTX 4090", 120),
    ("NVIDIA GeForce GTX 1660 Ti", 75),  # Turing without tensor cores
    ("NVIDIA T1000", 75),
    ("NVIDIA T400 4GB", 75),
    ("Tesla P100-PCIE-16GB", 60),
    ("Xavier", 72),
    ("Orin", 87),
    ("NVIDIA Thor", 110),
    ("NVIDIA B300 SXM6 AC", 103),
    ("NVIDIA GB10", 121),
    ("NVIDIA H200X", 90),
    ("A1000", 80),
    ("", 90),
]


@pytest.mark.parametrize(("name", "capability"), KNOWN, ids=lambda x: str(x).replace(" ", "_"))
def test_known_devices(name: str, capability: int) -> None:
    assert gpu_of_device(name, capability) == KNOWN[name, capability]
    for other in {row.capability for row in DEVICES} - {capability}:
        assert gpu_of_device(name, other) is None, other


@pytest.mark.parametrize(("name", "capability"), UNKNOWN, ids=lambda x: str(x).replace(" ", "_"))
def test_unknown_stays_unknown(name: str, capability: int) -> None:
    assert gpu_of_device(name, capability) is None


def test_rows_agree_with_the_unit_table() -> None:
    for row in DEVICES:
        assert row.name in GPUS
        assert CAPABILITY[row.name] == row.capability
    assert {row.name for row in DEVICES} == set(CAPABILITY)


def test_no_device_matches_two_rows() -> None:
    for name, capability in KNOWN:
        rows = [r for r in DEVICES if r.capability == capability and gpu_of_device(name, capability) == r.name]
        others = [r for r in DEVICES if r.capability == capability and r not in rows and matches(name, r)]
        assert (len(rows), others) == (1, []), name


@pytest.mark.parametrize(
    ("name", "capability", "says"),
    [("NVIDIA RTX 5000 Ada Generation", 120, "ada, which the name suggests, has another"), ("NVIDIA GB10", 121, "12.1")],
)
def test_an_unknown_device_is_named(monkeypatch: pytest.MonkeyPatch, name: str, capability: int, says: str) -> None:
    monkeypatch.setattr(device, "name", lambda: name)
    monkeypatch.setattr(device, "capability", lambda: capability)
    assert device.table_gpu() is None
    with pytest.raises(ValueError, match=says) as error:
        device.present()
    assert name in str(error.value)
    assert "rtx-blackwell" in str(error.value)
