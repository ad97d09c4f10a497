"""Which GPU of the unit table a device is: its name and its compute capability must both say so.

Names alone mislead ("Quadro RTX 4000" is Turing, "RTX 4000 Ada" Ada, "RTX A4000" Ampere, "RTX PRO 4000 Blackwell" Blackwell), and
so does capability alone (GTX 16 has Turing's and no tensor cores). What no record matches is unknown, never a neighbour.
"""

from __future__ import annotations

import re

from tcsim.errors import unknown
from tcsim.hardware.gpus import GPUS, Gpu

DEVICES = tuple(gpu for gpu in GPUS if gpu.devices and gpu.capability is not None)


def gpu_of_device(name: str, capability: int) -> str | None:
    """The GPU of the unit table that a device is, from the name and the capability CUDA reports; None where none is."""
    for row in DEVICES:
        if row.capability == capability and matches(name, row):
            return row.name
    return None


def matches(name: str, row: Gpu) -> bool:
    """Whether a name is one of a record's."""
    return any(_has(name, words) for words in row.devices)


def _has(name: str, words: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){words}(?![A-Za-z0-9])", name, re.IGNORECASE) is not None


def unknown_device(name: str, capability: int) -> ValueError:
    """What to say of a device that no record matches."""
    by_name = {row.name for row in DEVICES if matches(name, row)}
    why = f"compute capability {capability // 10}.{capability % 10}"
    if by_name:
        why += f", and {', '.join(sorted(by_name))}, which the name suggests, has another"
    error = unknown("GPU of the unit table", f"{name} ({why})", [gpu.name for gpu in GPUS])
    return ValueError(f"{error}; the GPU here is none of them")
