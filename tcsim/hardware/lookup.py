"""Every known unit, one file a vendor generation, and the look-up over them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from tcsim.errors import unknown
from tcsim.fp.formats import FORMATS, family_of, format_named
from tcsim.hardware import ampere_ada, blackwell, cdna, hopper, rdna, volta_turing, x86
from tcsim.hardware.html import Units
from tcsim.hardware.names import gpu_named
from tcsim.hardware.unit import Unit

UNITS: tuple[Unit, ...] = (
    *volta_turing.UNITS, *ampere_ada.UNITS, *hopper.UNITS, *blackwell.UNITS, *cdna.UNITS, *rdna.UNITS, *x86.UNITS
)  # fmt: skip
GPUS: tuple[str, ...] = tuple(dict.fromkeys(u.gpu for u in UNITS))

# "a100:fp16", "h200:e4m3 x e5m2 -> fp16 @ mma, rounding=rne"; and a label, "a100 float16 -> float32 (mma)".
_SPELLED = re.compile(
    r"(?P<gpu>[^:,=]+):(?P<a>[^:>@,*]+?)(?:(?: +x +| *\* *)(?P<b>[^:>@,]+?))?(?: *(?:->|:) *(?P<out>[^:>@,]+?))?(?: *@ *(?P<instruction>[^,]+?))?"
    r" *(?P<changes>(?:,[^,=]+=[^,=]+)*)"
)
_LABEL = re.compile(r"(?P<gpu>\S+) (?P<a>\S+)(?: x (?P<b>\S+))? -> (?P<out>\S+) \((?P<instruction>\S+)\)(?P<changes>)")


def units(gpu: str | None = None, *, fmt: Any = None) -> list[Unit]:
    """Every known unit in the order of the table; of one GPU, or with inputs of a format, if these are named.

    `fmt` may be a family: "fp8" lists all units with an fp8 input, "fp8 x fp8" those of two. ValueError for a name that no unit has.
    """
    name = None if gpu is None else gpu_named(gpu).name
    found = [u for u in UNITS if name in (None, u.gpu)]
    return Units(found if fmt is None else _with_input(found, fmt))


def _with_input(found: Iterable[Unit], fmt: Any) -> list[Unit]:
    found, (a, b) = list(found), _pair(fmt)
    members = _members(a)
    if b is None:
        kept = [u for u in found if u.name in members or (not u.name and (u.a in members or u.b in members))]
    else:
        pairs = {(x, y) for x in members for y in _members(b)}
        kept = [u for u in found if _operands(u) in pairs]
    if not kept:
        raise _no_such_input(found, fmt, () if b else members)
    return kept


def _operands(unit: Unit) -> tuple[str, str]:
    """The names of what a and b hold, block-scaled ones too."""
    a, b = _pair(unit.name) if unit.name else (str(unit.a), str(unit.b))
    return a, b or a


def _members(fmt: Any) -> tuple[str, ...]:
    """The inputs that a name means: one, or those of a family."""
    key = str(fmt).lower().replace("-", "_")
    if any(u.name == key for u in UNITS):
        return (key,)
    return family_of(fmt) or (format_named(fmt).name,)


def _pair(fmt: Any) -> tuple[Any, Any]:
    """The formats of a and b that "e4m3 x e5m2" names; of anything else that one, and None."""
    a, found, b = str(fmt).partition(" x ")
    return (a.strip(), b.strip()) if found else (fmt, None)


def unit(gpu: str, fmt: Any = None, *, b: Any = None, out: Any = None, instruction: str | None = None) -> Unit:
    """The unit of a GPU for an input format, e.g. ``unit("a100", "float16")``, or that of its whole name, ``unit("a100:fp16")``.

    gpu
        A GPU of the table, a model ("RTX 4090", "GH200", "MI300A"), an architecture ("hopper", "sm_89"); or, without a
        format, ``"GPU:FORMAT"`` with as much as needed of ``"GPU:A x B -> OUT @ INSTRUCTION, field=value"`` (":" may stand
        for "->"; fields as `Unit.replace` takes them), or a unit's label.
    fmt
        The format of a (and of b, unless `b` or "e4m3 x e5m2" names another): a name, a scalar type or dtype, or a block-scaled
        name such as "mxfp8_e4m3", "mxfp4" or "nvfp4".
    out
        float32 (float64, int32) unless given.
    instruction
        What the vendor's GEMM runs on that GPU unless given: "wgmma" on Hopper, "tcgen05" on B200, "mma" elsewhere, "mfma"
        on AMD.

    ValueError names what exists and the nearest match for an unknown GPU, format, output or instruction, and the GPUs that
    have a format which this one lacks.
    """
    if fmt is None:
        if (b, out, instruction) != (None, None, None) or _parts(str(gpu)) is None:
            raise ValueError(_format_missing(gpu))
        return _spelled(str(gpu))
    record = gpu_named(gpu)
    if b is None:
        fmt, b = _pair(fmt)
    found = _of_input([u for u in UNITS if u.gpu == record.name], fmt, b)
    found = _narrow(found, "output", None if out is None else format_named(out).name, lambda u: str(u.out))
    found = _narrow(found, "instruction", instruction, lambda u: u.instruction)
    found.sort(key=lambda u: (u.instruction != record.instruction, u.out == "float16"))
    return found[0]


def as_unit(given: Unit | str | Any) -> Unit:
    """A Unit as it is, or the one that a string names. TypeError for anything else, a GPU's name alone included."""
    if isinstance(given, Unit):
        return given
    found = _named(given) if isinstance(given, str) else None
    if found is not None:
        return found
    raise TypeError(
        f"unit must be a Unit, as tcsim.unit('a100', 'float16') gives, or the name of one, 'a100:float16'; got {given!r}"
    )


@lru_cache(maxsize=256)
def _named(label: str) -> Unit | None:
    return None if _parts(label) is None else unit(label)  # takes as long as a small product


def _parts(text: str) -> dict[str, str | None] | None:
    match = _LABEL.fullmatch(text.strip()) or _SPELLED.fullmatch(text.strip())
    return match.groupdict() if match else None


def _spelled(text: str) -> Unit:
    parts = _parts(text) or {}
    name, changes = str(parts["gpu"]).strip(), str(parts["changes"] or "")
    found = unit(name, parts["a"], b=parts["b"], out=parts["out"], instruction=parts["instruction"])
    asked = dict(change.split("=") for change in changes.split(",")[1:])
    return found.replace(**{key.strip(): _value(value.strip()) for key, value in asked.items()}) if asked else found


def _value(text: str) -> int | str | bool | None:
    """A field's value as it is written in a name."""
    words: dict[str, bool | None] = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    return int(text, 0) if re.fullmatch(r"[-+]?(0x[0-9a-fA-F]+|\d+)", text) else text


def _format_missing(gpu: Any) -> str:
    name = gpu_named(str(gpu).split(":")[0]).name
    return f"{gpu!r} does not name a unit: give its input format too, as in '{name}:{_inputs(units(name))[0]}', or unit({name!r}, …)"


def _of_input(found: list[Unit], fmt: Any, b: Any) -> list[Unit]:
    gpu = found[0].gpu
    scaled = str(fmt).lower().replace("-", "_")
    pair = scaled if b is None or b == fmt else f"{scaled} x {str(b).lower().replace('-', '_')}"
    if pair in {u.name for u in found if u.name}:
        return [u for u in found if u.name == pair]
    known_scaled = any(u.name == scaled for u in UNITS)
    if b is None and (known_scaled or (scaled.startswith(("mx", "nv")) and not family_of(fmt))):
        raise _no_such_input(found, fmt, (scaled,) if known_scaled else ())
    for name in (fmt, b):
        if members := family_of(name):
            _which(found, name, members)
    a_name, b_name = (_format_of(gpu, name, found) for name in (fmt, fmt if b is None else b))
    matching = [u for u in found if (u.a, u.b, u.name) == (a_name, b_name, "")]
    if not matching:
        raise _no_such_input(
            found, a_name if a_name == b_name else f"{a_name} x {b_name}", (a_name,) if a_name == b_name else ()
        )
    return matching


def _which(found: list[Unit], fmt: Any, members: tuple[str, ...]) -> None:
    """ValueError that asks which of a family is meant, or says that the GPU has none."""
    here = [name for name in _inputs(found) if name in members]
    if not here:
        raise _no_such_input(found, fmt, members)
    raise ValueError(f"input format {fmt!r} of {found[0].gpu} may be {' or '.join(map(repr, here))}: say which")


def _no_such_input(found: list[Unit], fmt: Any, members: tuple[str, ...]) -> ValueError:
    """What a GPU has instead, and which GPUs have what was asked."""
    gpu = f" of {found[0].gpu}" if len({u.gpu for u in found}) == 1 else ""
    error = unknown(f"input format{gpu}", fmt, _inputs(found))
    others = dict.fromkeys(u.gpu for u in UNITS if u.name in members or (not u.name and u.a in members))
    return ValueError(f"{error}; GPUs that have {fmt}: {', '.join(others)}") if others else error


def _format_of(gpu: str, name: Any, found: list[Unit]) -> str:
    try:
        return format_named(name).name
    except ValueError:
        pairs = [x for x in _inputs(found) if " x " not in x]
        raise unknown(f"input format of {gpu}", name, [*pairs, *FORMATS], shown=pairs) from None


def _inputs(found: Iterable[Unit]) -> list[str]:
    return list(dict.fromkeys(u.name or (str(u.a) if u.a == u.b else f"{u.a} x {u.b}") for u in found))


def _narrow(found: list[Unit], what: str, asked: str | None, key: Callable[[Unit], str]) -> list[Unit]:
    if asked is None:
        return found
    kept = [u for u in found if key(u) == asked]
    if not kept:
        first = found[0]
        raise unknown(f"{what} of {first.gpu} {first.name or first.a}", asked, dict.fromkeys(key(u) for u in found))
    return kept
