"""What a run may be told besides sizes: roundings, ways to walk k, distributions; as they are typed, and as data are labelled.

roundings       hardware, final-rn, final-sr, terms-rn, rn, sr, exact-rn, or TERMS/RESULT in any mode: rz/ru, exact/sr
blockings       recursive, a number of blocks (16), or FABsum with its block: fabsum:128, fabsum:128:float64
distributions   LOW:HIGH, uniform on (LOW, HIGH], from -1 to 1, since entries are exact sums of two fp16 numbers in float32
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tcsim.errors import unknown
from tcsim.hardware import unit
from tcsim.schedule import SUM_FORMATS, Blocked, Schedule, Sequential, SplitK
from tcsim.studies.framework.base import Option

# What a unit becomes: as built; with some roundings changed; with exact alignment.
ROUNDINGS: dict[str, dict[str, str]] = {
    "hardware": {},
    "final RN": {"rounding": "rne"},
    "final SR": {"rounding": "sr"},
    "terms RN": {"align_rounding": "rne"},
    "RN throughout": {"align_rounding": "rne", "rounding": "rne"},
    "SR throughout": {"align_rounding": "sr", "rounding": "sr"},
    "exact alignment, RN": {"align_rounding": "exact", "rounding": "rne"},
}
POSITIVE, SYMMETRIC = "(0, 1]", "(-0.5, 0.5]"
BLOCKINGS = ("16 blocks", "recursive")  # the paper's own simulation splits each dot product in 16
_LABELS = {
    "hardware": "hardware",
    "final-rn": "final RN",
    "final-sr": "final SR",
    "terms-rn": "terms RN",
    "rn": "RN throughout",
    "sr": "SR throughout",
    "exact-rn": "exact alignment, RN",
}
NEAREST, STOCHASTIC, BUILT = _LABELS["rn"], _LABELS["sr"], "hardware"


def rounding_label(text: str) -> str:
    """The label of a rounding as it is typed; labels stand for themselves."""
    if text in _LABELS.values():
        return text
    key = re.sub(r"^terms (\w+), results (\w+)$", r"\1/\2", text.strip().lower()).replace(" ", "-").replace("_", "-")
    if key in _LABELS:
        return _LABELS[key]
    terms, slash, result = key.partition("/")
    if not slash:
        raise unknown("rounding of rounding-growth", text, [*_LABELS, "TERMS/RESULT"])
    changed = unit("v100", "float16").replace(align_rounding=terms, rounding=result)  # knows every mode, and the nearest name
    pair = {"align_rounding": changed.align_rounding, "rounding": changed.rounding}
    same = [label for label, changes in ROUNDINGS.items() if changes == pair]
    return same[0] if same else f"terms {changed.align_rounding}, results {changed.rounding}"


def changes(label: str) -> dict[str, str]:
    """What of a unit a rounding changes."""
    pair = re.fullmatch(r"terms (\w+), results (\w+)", label)
    return {"align_rounding": pair[1], "rounding": pair[2]} if pair else ROUNDINGS[label]


def fast_choice(label: str) -> bool:
    """Whether compiled for speed: terms truncated, or not cut; the rest take tens of times longer."""
    return changes(label).get("align_rounding", "rz") in ("rz", "exact")


def of_ones_own(label: str) -> bool:
    """Whether a rounding is none of the study's own."""
    return label not in ROUNDINGS


def blocking_label(text: str) -> str:
    """The label of a way to walk k as it is typed."""
    key = text.strip().lower().removesuffix(" blocks")
    if key == "recursive" or (key.isdigit() and int(key) >= 2):
        return key if key == "recursive" else f"{int(key)} blocks"
    name, *given = re.split(r"[:, ]+", key)
    if name != "fabsum" or not 1 <= len(given) <= 2 or not given[0].isdigit() or int(given[0]) < 1:
        raise ValueError(f"blocking {text!r} is none of recursive, a number of blocks from 2 on, fabsum:B[:SUM]")
    if given[1:] and given[1] not in SUM_FORMATS:
        raise unknown("sum of FABsum", given[1], SUM_FORMATS)
    return f"FABsum {int(given[0])}" + (f", {given[1]}" if given[1:] and given[1] != "float32" else "")


def schedule(k: int, label: str) -> Schedule:
    """One chain, the dot product split in blocks whose results are added in fp32, or FABsum."""
    if label == "recursive":
        return Sequential()
    name, number, *given = re.split(r"[, ]+", label) if label.startswith("FABsum") else ("", label.split()[0])
    blocks = int(number)
    return Blocked(blocks, *given) if name else SplitK(blocks, tile_k=-(-k // blocks))


def distribution_label(text: str) -> str:
    """The label of a distribution as it is typed: "(0, 1]" for 0:1."""
    found = re.fullmatch(r"\(?\s*([^:,\]]+)\s*[:,]\s*([^:,\]]+?)\s*\]?", text)
    try:
        low, high = (float(found[i]) for i in (1, 2)) if found else (0.0, 0.0)
    except ValueError:
        low = high = 0.0
    if not -1 <= low < high <= 1:
        raise ValueError(f"distribution {text!r} is no LOW:HIGH with -1 <= LOW < HIGH <= 1, such as 0:1 or -0.5:0.5")
    return f"({_number(low)}, {_number(high)}]"


def k_span(label: str) -> tuple[float, float]:
    """The ends of a distribution."""
    low, high = label.strip("(]").split(", ")
    return float(low), float(high)


def _number(x: float) -> str:
    return repr(x).removesuffix(".0")


def choice_labels(of: Callable[[str], str], typed: Iterable[str]) -> list[str]:
    """The labels of what was typed, each once."""
    return list(dict.fromkeys(of(text) for text in typed))


def _option(name: str, default: tuple[str, ...], text: str, of: Callable[[str], str]) -> Option:
    def check(given: Any) -> Any:
        typed = tuple([given] if isinstance(given, str) else given)
        if not typed or not all(isinstance(part, str) for part in typed):
            raise ValueError(f"{name} takes at least one of {', '.join(default)}, as text; got {given!r}")
        for part in typed:
            of(part)
        return typed

    return Option(name, default, default, text, check)


OPTIONS: Sequence[Option] = (
    _option("roundings", tuple(_LABELS), "what becomes of the units: these, or TERMS/RESULT, such as rz/ru", rounding_label),
    _option("blockings", ("16", "recursive"), "recursive, a number of blocks, or fabsum:B[:float64]", blocking_label),
    _option("distributions", ("0:1", "-0.5:0.5"), "LOW:HIGH within -1:1, uniform on (LOW, HIGH]", distribution_label),
)
