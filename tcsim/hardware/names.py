"""A GPU by any of its names: the table's, the shop's ("RTX 4090", "NVIDIA H100 80GB HBM3"), or its architecture's ("sm_89", "hopper").

The records of `gpus` hold every name; here they are read. A name that is two GPUs' is an error that asks which, and one of a
GPU without tensor cores says so.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tcsim.errors import unknown
from tcsim.hardware.gpus import GPUS, Gpu

# Whole names of NVIDIA's that have no tensor cores, and those that have some which the table does not know.
_WITHOUT = (r"GTX \d+", r"T(?:4|5|6|10|12)00", r"T550", r"MX\d+", r"P100", r"P40?", r"P6", r"K\d0", r"M\d0", r"Quadro [PMK]\d+")
_ABSENT = (r"B300", r"GB300", r"GB10", r"DGX Spark", r"Thor", r"(?:Orin|Xavier).*", r"MI350X?", r"MI355X?", r"gfx950",
           r"(?:Radeon )?(?:RX|PRO W) ?\d+(?: XTX?| GRE)?", r"Arc")  # fmt: skip
_CAPABILITY = re.compile(r"(?:sm|compute|cc)? ?(\d\d?)[ .]?(\d)a?")
# What stands around a model in a shop's or a driver's name and does not change its arithmetic.
_AROUND = re.compile(
    r"\b(nvidia|amd|geforce|radeon|tesla|instinct|generation|laptop|gpu|max q|design|ti|super|founders edition|with|server|edition|workstation|"
    r"pcie?|pcle|nvl|hbm\w+|sxm\d?|oam|mig|ac|mba|vf|d|v2|3e|\d+ ?gb|\dg)\b|\(mcm\)"
)


def plain_name(name: str) -> str:
    """A name in words: lower case, one space for each run of spaces, hyphens and underscores."""
    return _in_words(str(name))


@lru_cache(4096)
def _in_words(name: str) -> str:
    words = re.sub(r"[\s_-]+", " ", name.lower()).strip()
    return re.sub(r"\b(rtx|gtx)(?=\d)", r"\1 ", words)


def gpu_named(name: str) -> Gpu:
    """The record of a GPU by any name. ValueError asks which where several have it, and names the nearest where none has."""
    words = plain_name(name)
    found = _exact(words) or _sold_as(words) or _of_capability(words)
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{name!r} is the name of several GPUs: say which, {', '.join(gpu.name for gpu in found)}")
    bare = _bare(words)
    if _is(bare, _WITHOUT):
        raise ValueError(f"unknown unit {name!r}: it has no tensor cores; known: {_known()}")
    if _is(bare, _ABSENT):
        raise ValueError(f"unknown unit {name!r}: no source tells what its tensor cores compute; known: {_known()}")
    names = [*(gpu.name for gpu in GPUS), *(alias for gpu in GPUS for alias in gpu.aliases)]
    raise unknown("unit", name, names, shown=[gpu.name for gpu in GPUS])


def _known() -> str:
    return ", ".join(gpu.name for gpu in GPUS)


def _exact(words: str) -> list[Gpu]:
    return [gpu for gpu in GPUS if words in (plain_name(n) for n in (gpu.name, *gpu.aliases))]


def _bare(words: str) -> str:
    """What is left of a name without `_AROUND`; of "Arcturus GL-XL [Instinct MI100]", what stands in the brackets."""
    inside = re.search(r"\[([^\]]+)\]", words)
    words = inside[1] if inside else words
    return re.sub(r"\s+", " ", _AROUND.sub(" ", words)).strip()


def _sold_as(words: str) -> list[Gpu]:
    """The GPUs whose names in the shop these are, whole but for what `_AROUND` lists; "RTX 5000" is short for three."""
    bare = _bare(words)
    found = _exact(bare) or [gpu for gpu in GPUS if any(_is(one, gpu.devices) or gpu in _exact(one) for one in bare.split("/"))]
    if found or not re.fullmatch(r"rtx \d000", bare):
        return found
    longer = (f"quadro {bare}", f"{bare} ada", bare.replace("rtx", "rtx pro"))
    return [gpu for gpu in GPUS if any(_is(name, gpu.devices) for name in longer)]


def _of_capability(words: str) -> list[Gpu]:
    """The first GPU of a compute capability: the others of it compute alike."""
    match = _CAPABILITY.fullmatch(words)
    number = int("".join(match.groups())) if match else None
    return [gpu for gpu in GPUS if number is not None and gpu.capability == number][:1]


def _is(words: str, patterns: tuple[str, ...]) -> bool:
    # "rtx pro 6000 blackwell" is "RTX PRO \d+" with the architecture said as well
    return any(re.fullmatch(rf"{pattern}(?: blackwell)?", words, re.IGNORECASE) for pattern in patterns)
