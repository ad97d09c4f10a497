"""Every known unit, one file a vendor generation, and the look-up over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tcsim.errors import unknown
from tcsim.fp.formats import FORMATS, format_named
from tcsim.hardware import ampere_ada, blackwell, cdna, hopper, volta_turing, x86
from tcsim.hardware.gpus import gpu_named
from tcsim.hardware.unit import Unit

UNITS: tuple[Unit, ...] = (*volta_turing.UNITS, *ampere_ada.UNITS, *hopper.UNITS, *blackwell.UNITS, *cdna.UNITS, *x86.UNITS)
GPUS: tuple[str, ...] = tuple(dict.fromkeys(u.gpu for u in UNITS))


def units(gpu: str | None = None) -> list[Unit]:
    """Every known unit in the order of the table; of one GPU if it is named."""
    return list(UNITS) if gpu is None else [u for u in UNITS if u.gpu == gpu_named(gpu).name]


def unit(gpu: str, fmt: str, *, b: str | None = None, out: str | None = None, instruction: str | None = None) -> Unit:
    """The unit of a GPU for an input format, e.g. ``unit("a100", "float16")``.

    `fmt` is the format of a (and of b, unless `b` names another), or a block-scaled name such as "mxfp8_e4m3",
    "mxfp4" or "nvfp4". `out` is float32 (float64, int32) unless given. `instruction` is what the vendor's GEMM runs on
    that GPU unless given: "wgmma" on Hopper, "tcgen05" on B200, "mma" elsewhere, "mfma" on AMD.

    ValueError names what exists and the nearest match for an unknown GPU, format, output or instruction.
    """
    found = [u for u in UNITS if u.gpu == gpu_named(gpu).name]
    found = _of_input(found, fmt, b)
    found = _narrow(found, "output", None if out is None else format_named(out).name, lambda u: str(u.out))
    found = _narrow(found, "instruction", instruction, lambda u: u.instruction)
    preferred = gpu_named(gpu).instruction
    found.sort(key=lambda u: (u.instruction != preferred, u.out == "float16"))
    return found[0]


def _of_input(found: list[Unit], fmt: str, b: str | None) -> list[Unit]:
    gpu = found[0].gpu
    scaled = str(fmt).lower().replace("-", "_")
    names = {u.name for u in found if u.name}
    if b is None and any(u.name == scaled for u in UNITS):
        if scaled not in names:
            raise unknown(f"input format of {gpu}", fmt, _inputs(found))
        return [u for u in found if u.name == scaled]
    if b is None and scaled.startswith(("mx", "nv")):
        raise unknown(f"input format of {gpu}", fmt, _inputs(found))
    a_name, b_name = (_format_of(gpu, name, found) for name in (fmt, fmt if b is None else b))
    matching = [u for u in found if (u.a, u.b, u.name) == (a_name, b_name, "")]
    if not matching:
        raise unknown(f"input format of {gpu}", a_name if a_name == b_name else f"{a_name} x {b_name}", _inputs(found))
    return matching


def _format_of(gpu: str, name: str, found: list[Unit]) -> str:
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
