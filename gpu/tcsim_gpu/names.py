"""Which GPU of the unit table a device is: its name and its compute capability must both say so.

Names alone mislead ("Quadro RTX 4000" is Turing, "RTX 4000 Ada" Ada, "RTX A4000" Ampere, "RTX PRO 4000 Blackwell" Blackwell), and
so does capability alone (GTX 16 has Turing's and no tensor cores). What no row matches is unknown, never a neighbour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tcsim.errors import unknown
from tcsim.hardware import GPUS


@dataclass(frozen=True)
class Devices:
    """Devices of one chip family: the GPU of the unit table, compute capability (90 for 9.0), and how CUDA names them."""

    gpu: str
    capability: int
    names: tuple[str, ...]  # regular expressions for whole words of the name


# fmt: off
DEVICES = (
    Devices("v100", 70, (r"V100[A-Z]*", r"Quadro GV100", r"TITAN V")),
    Devices("t4", 75, (r"T4G?", r"Quadro RTX [34568]000", r"RTX 20[678]0", r"TITAN RTX")),
    Devices("a100", 80, (r"A100X?", r"A800")),
    Devices("a30", 80, (r"A30X?",)),
    Devices("a2", 86, (r"A2", r"A16")),
    Devices("a40", 86, (r"A40", r"A10[GM]?", r"RTX 30[5-9]0", r"RTX A\d{3,4}")),
    Devices("l40s", 89, (r"L40S", r"L40")),
    Devices("ada", 89, (r"L4", r"L20", r"RTX 40[5-9]0", r"RTX [2-6]\d00 (?:SFF )?Ada", r"RTX 500 Ada", r"RTX 1000 Ada")),
    Devices("h100", 90, (r"H100", r"H800", r"H20")),
    Devices("h200", 90, (r"H200", r"GH200")),
    Devices("b200", 100, (r"B200", r"GB200")),
    Devices("rtx-blackwell", 120, (r"RTX 50[5-9]0", r"RTX PRO \d+")),
)
# fmt: on


def gpu_named(name: str, capability: int) -> str | None:
    """The GPU of the unit table that a device is, from the name and the capability CUDA reports; None where none is."""
    for row in DEVICES:
        if row.capability == capability and matches(name, row):
            return row.gpu
    return None


def matches(name: str, row: Devices) -> bool:
    """Whether a name is one of a row's."""
    return any(_has(name, words) for words in row.names)


def _has(name: str, words: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){words}(?![A-Za-z0-9])", name, re.IGNORECASE) is not None


def unknown_device(name: str, capability: int) -> ValueError:
    """What to say of a device that no row matches."""
    by_name = {row.gpu for row in DEVICES if matches(name, row)}
    why = f"compute capability {capability // 10}.{capability % 10}"
    if by_name:
        why += f", and {', '.join(sorted(by_name))}, which the name suggests, has another"
    error = unknown("GPU of the unit table", f"{name} ({why})", GPUS)
    return ValueError(f"{error}; the GPU here is none of them")
