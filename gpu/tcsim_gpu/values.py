"""Rounding, encoding and decoding where the values lie: on the GPU, by the arithmetic of `tcsim.fp.compiled`."""

from __future__ import annotations

import ctypes
from functools import cache
from math import ceil
from typing import Any, NamedTuple

from tcsim.fp.compiled.codes import CodeRules
from tcsim.fp.compiled.rounding import Fields
from tcsim.fp.formats import Format
from tcsim.fp.modes import mode
from tcsim.fp.storage import StorageFormat
from tcsim_gpu.launch import GPU, Arguments, PresentGpu
from tcsim_gpu.source import format_struct, kernel_text

_WORDS = {"rounded": Fields._fields, "packed": Fields._fields, "rules": CodeRules._fields}
_NUMBERS = ("how", "centred", "bits", "look", "infinite", "nan", "zero", "packs", "bytes")
_LOOKS = {"nothing": 0, "nan": 1, "values": 2}
_HOW = {"zero": 2, "+infinity": 2, "-infinity": 2, "nearest": 1, "odd": 3}
_CHANCES = {"floor": 4, "centred": 4, "equal": 5, "nearest even": 6, "nearest odd": 7}
THREADS, MOST_BLOCKS = 256, 1 << 16


class ValuesJob(Arguments):
    """The argument of kernels/values.cuh."""

    _fields_ = [  # noqa: RUF012
        *((f, ctypes.c_int64) for f in ("source", "to", "random", "lost", "count")),
        ("seed", ctypes.c_uint64),
        *((f, ctypes.c_uint64 * len(names)) for f, names in _WORDS.items()),
        *((f, ctypes.c_uint32) for f in _NUMBERS),
    ]


class RoundedTo(NamedTuple):
    """A rounding to the values of a format: its description, the mode, and what keys a stochastic one."""

    fields: Fields
    mode: str
    seed: int = 0
    bits: int = 32
    random: Any = None  # a uint64 of `bits` bits for every element, in place of words of the seed


class Packing(NamedTuple):
    """A format to whose codes patterns are put together."""

    fmt: Format
    fields: Fields
    rules: CodeRules


def worked_values(
    codes: Any,
    stored: Format,
    storage: StorageFormat,
    *,
    rounding: RoundedTo | None = None,
    packing: Packing | None = None,
    refused: str = "nothing",
    machine: PresentGpu = GPU,
) -> Any:
    """Codes of `stored`, of any shape, as patterns of `storage`; rounded, and as codes of another format, where that is asked.

    None where an element is `refused`: "nan", "values" (those that the format packed to has not), and always a code that
    `stored` does not have.
    """
    xp = machine.xp
    codes = xp.ascontiguousarray(codes)
    to = xp.empty(codes.shape, storage.uint_dtype if packing is None else packing.fmt.storage)
    if not to.size:
        return to
    lost = xp.zeros(1, "uint32")
    job = ValuesJob().set(source=codes, to=to, lost=lost, count=to.size, look=_LOOKS[refused], bytes=to.itemsize)
    if rounding is not None:
        found = mode(rounding.mode)
        how = _CHANCES[found.rule] if found.toward == "random" else _HOW[found.toward]
        job.set(how=how, centred=int(found.rule == "centred"), bits=rounding.bits, seed=rounding.seed, random=rounding.random)
        _put(job.rounded, rounding.fields)
        _put(job.packed, rounding.fields)
    if packing is not None:
        fmt = packing.fmt
        job.set(packs=1, infinite=int(fmt.inf_code is not None), nan=int(fmt.nan != "none"), zero=int(fmt.zero))
        _put(job.packed, packing.fields)
        _put(job.rules, packing.rules)
    machine.launch(values_source(stored, storage), "values", (min(ceil(to.size / THREADS), MOST_BLOCKS),), THREADS, job)
    return None if int(lost[0]) else to


def _put(words: Any, given: Fields | CodeRules) -> None:
    for i, word in enumerate(given):
        words[i] = int(word)


@cache
def values_source(stored: Format, storage: StorageFormat) -> str:
    """The kernel `values` of codes of a format in patterns of another."""
    names = ", ".join(Fields._fields), ", ".join("is_signed" if f == "signed" else f for f in CodeRules._fields)
    head = (
        f"#define WORD {'u32' if storage.width == 32 else 'u64'}\n#define AS_STORED {int(stored == storage.format)}\n"
        f"#define FIELDS {names[0]}\n#define RULES {names[1]}\n"
        f"#define FIELD_COUNT {len(Fields._fields)}\n#define RULE_COUNT {len(CodeRules._fields)}\n"
    )
    formats = format_struct("FROM", stored) + format_struct("STORAGE", storage.format)
    return kernel_text("numbers.cuh") + head + formats + kernel_text("values.cuh")
