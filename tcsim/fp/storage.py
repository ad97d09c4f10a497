"""Formats seen from the float32 or float64 array that carries their values: bit patterns, computed in integers.

A storage format can round to a format when it holds every value of the format and the format's normal numbers are normal
numbers of the storage format too, so that one binade of the storage format is one binade of the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim.fp.compiled.rounding import Fields
from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.modes import mode

OVERFLOWS = ("inf", "saturate", "saturate_finite")
SUBNORMALS = ("keep", "flush", "round")


@dataclass(frozen=True)
class StorageFormat:
    """float32 or float64 as patterns: an unsigned integer dtype and the places of the fields."""

    format: Format

    @property
    def width(self) -> int:
        return self.format.width

    @property
    def mantissa(self) -> int:
        return self.format.mantissa_bits

    @cached_property
    def float_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.format.name)

    @cached_property
    def uint_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.format.storage)

    @property
    def infinity(self) -> int:
        return self.format.inf_code or 0

    @property
    def quiet_nan(self) -> int:
        """The NaN of formats whose NaN has no payload: the highest significand bit set."""
        return self.infinity | 1 << (self.mantissa - 1)

    def scaled(self, significand: int, exponent: int) -> tuple[int, int]:
        """significand · 2^exponent > 0 as (floor of the pattern, 1 if the pattern is not an integer, else 0)."""
        place = max(significand.bit_length() - 1 + exponent, self.format.emin)
        drop = place - self.mantissa - exponent
        units, lost = (significand >> drop, significand & ((1 << drop) - 1)) if drop > 0 else (significand << -drop, 0)
        return ((place - self.format.emin) << self.mantissa) + units, int(lost != 0)

    def pattern(self, significand: int, exponent: int) -> int:
        """The pattern of significand · 2^exponent, which the storage format holds."""
        return self.scaled(significand, exponent)[0] if significand else 0

    def holds(self, fmt: Format) -> bool:
        """Whether every value of fmt is a value of the storage format."""
        mine = self.format
        if fmt.integer:
            return fmt.mantissa_bits <= mine.precision
        lowest = least_exponent(fmt) >= mine.emin - mine.mantissa_bits
        return fmt.mantissa_bits <= mine.mantissa_bits and lowest and fmt.emax <= mine.emax

    def rounds(self, fmt: Format) -> bool:
        """Whether the kernels can round in this storage format."""
        return self.holds(fmt) and (fmt.integer or fmt.emin >= self.format.emin)


FLOAT32 = StorageFormat(FORMATS["float32"])
FLOAT64 = StorageFormat(FORMATS["float64"])


def least_exponent(fmt: Format) -> int:
    """The exponent of a format's smallest positive value, a power of two."""
    if fmt.integer:
        return 0
    return fmt.emin - fmt.mantissa_bits if fmt.zero else fmt.emin


def storage_format_for(fmt: Format, dtype: np.dtype[Any]) -> StorageFormat:
    """The storage format in which values of `dtype` are rounded to fmt; ValueError if not even float64 can."""
    if dtype.itemsize <= 4 and FLOAT32.rounds(fmt):
        return FLOAT32
    if FLOAT64.rounds(fmt):
        return FLOAT64
    raise ValueError(
        f"format {fmt.name} has values from 2^{least_exponent(fmt)} to beyond 2^{fmt.emax} with {fmt.precision} significand "
        f"bits; float64, the widest storage format, cannot hold them all"
    )


def result_dtype(fmt: Format, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of rounded values: the input's own if it holds every value of fmt, else the narrowest that does."""
    own = StorageFormat(FORMATS[dtype.name])
    if own.holds(fmt):
        return dtype
    return FLOAT32.float_dtype if FLOAT32.holds(fmt) else FLOAT64.float_dtype


def nan_pattern(fmt: Format, storage: StorageFormat) -> int | None:
    """The storage format's pattern of the NaN that an overflow gives, None where the format has no NaN.

    The sign is set for "negative-zero" formats, whose one NaN is the code of -0.
    """
    if fmt.nan == "none" or fmt.integer:
        return None
    return storage.quiet_nan | (storage.format.sign_bit if fmt.nan == "negative-zero" else 0)


def _largest(fmt: Format, storage: StorageFormat) -> tuple[int, int]:
    """Patterns of the largest and of the (negated) smallest finite value."""
    if fmt.integer:
        return storage.pattern((1 << fmt.mantissa_bits) - 1, 0), storage.pattern(1 << fmt.mantissa_bits, 0)
    fraction = (fmt.max_code >> fmt.padding) & ((1 << fmt.mantissa_bits) - 1)
    subnormal = fmt.zero and fmt.max_code >> fmt.padding < 1 << fmt.mantissa_bits
    significand = fraction if subnormal else fraction | 1 << fmt.mantissa_bits
    largest = storage.pattern(significand, fmt.emax - fmt.mantissa_bits)
    return largest, largest if fmt.signed else 0


def _specials(fmt: Format, storage: StorageFormat, rounding: str, overflow: str) -> dict[str, int]:
    """What overflows, infinities, NaNs and zeros become."""
    largest, smallest = _largest(fmt, storage)
    least = storage.pattern(1, least_exponent(fmt))
    if not fmt.signed and not fmt.integer:
        smallest = 0 if fmt.zero else least
    nan = nan_pattern(fmt, storage)
    infinite = fmt.inf_code is not None
    no_finite_pos = storage.infinity if infinite else nan
    no_finite_neg = (storage.infinity if infinite else nan) if fmt.signed else nan
    toward = mode(rounding).toward
    finite_pos = toward in ("zero", "-infinity", "odd") or overflow != "inf"
    finite_neg = toward in ("zero", "+infinity", "odd") or overflow != "inf"
    if not fmt.signed and not fmt.integer:
        finite_neg = overflow != "inf"
    keep = ((1 << fmt.mantissa_bits) - 1) << (storage.mantissa - fmt.mantissa_bits) | storage.infinity
    everything = (1 << storage.width) - 1
    nans = {
        "ieee": (keep, 1 << (storage.mantissa - 1)),
        "all-ones": (0, nan or 0),
        "negative-zero": (0, nan or 0),
        "none": (everything, 0),
    }
    nan_keep, nan_set = nans["none" if fmt.integer else fmt.nan]
    saturates = overflow == "saturate_finite"
    zero = 0 if fmt.zero else (least if saturates or overflow == "saturate" or nan is None else nan)
    sign = storage.format.sign_bit
    return {
        "limit_pos": largest,
        "limit_neg": _largest(fmt, storage)[1],
        "over_pos": largest if finite_pos or no_finite_pos is None else no_finite_pos,
        "over_neg": smallest if finite_neg or no_finite_neg is None else no_finite_neg,
        "inf_pos": largest if saturates or no_finite_pos is None else no_finite_pos,
        "inf_neg": smallest if saturates or no_finite_neg is None else no_finite_neg,
        "nan_keep": nan_keep,
        "nan_set": nan_set,
        "zero": zero,
        "zero_sign": sign if fmt.signed and not fmt.integer and fmt.nan != "negative-zero" else 0,
        "value_sign": sign if fmt.signed or fmt.integer else 0,
    }


def _parity(fmt: Format, storage: StorageFormat, least: int) -> int:
    """What to add to a magnitude's pattern so that the lowest bit kept says whether the code is odd.

    It does by itself unless all significand bits are dropped, and it is the exponent's: in a format without significand
    bits, whose codes count binades from another bias, and in the binade of the smallest value, whose code is 1.
    """
    if fmt.mantissa_bits == 0:
        return ((storage.format.bias - fmt.bias) & 1) << storage.mantissa
    field = least >> storage.mantissa
    return (1 << storage.mantissa) if field and field % 2 == 0 else 0


def _plain(v: dict[str, int], rounding: str) -> bool:
    """Whether the kernels' shorter functions apply: see `finish_plain`, `plain_shift` and `_proportional_plain`."""
    alike = v["limit_pos"] == v["limit_neg"] and v["over_pos"] == v["over_neg"] and v["inf_pos"] == v["inf_neg"]
    signed_zero = v["zero"] == 0 and v["zero_sign"] == v["value_sign"] == v["sign"]
    linear = v["field"] == 0 and v["least"] == 0
    far = v["least"] >> v["mantissa"] > v["top"] + 2
    toward = mode(rounding).toward
    together = toward == "zero" or v["over_pos"] == v["inf_pos"]
    alike = alike and toward not in ("+infinity", "-infinity")
    return alike and signed_zero and v["normal"] == 0 and v["shift"] > 0 and (linear or far) and together


@lru_cache(maxsize=256)
def fields(fmt: Format, storage: StorageFormat, rounding: str, overflow: str, subnormals: str) -> Fields:
    """The kernels' description of a rounding to fmt in a storage format that `rounds` it. ValueError for unknown names."""
    if overflow not in OVERFLOWS:
        raise unknown("overflow rule", overflow, OVERFLOWS)
    if subnormals not in SUBNORMALS:
        raise unknown("treatment of subnormals", subnormals, SUBNORMALS)
    mine, ones = storage.format, (1 << storage.width) - 1
    if fmt.integer:  # one quantum, 1, for every magnitude: subnormals of a format whose normal numbers lie beyond
        emin, least_at, precision_bits = fmt.mantissa_bits, 0, fmt.mantissa_bits
    else:
        emin, least_at, precision_bits = fmt.emin, least_exponent(fmt), fmt.mantissa_bits
        if subnormals == "round" and fmt.zero:
            least_at = emin
    least, below = storage.pattern(1, least_at), not fmt.zero and not fmt.integer
    half, inexact = storage.scaled(1, least_at - 1)
    toward, rule = mode(rounding).toward, mode(rounding).rule
    nearest_from = half + inexact if rule == "away" else half + 1
    never = least  # no magnitude below `least` reaches it
    from_pos, from_neg = {
        "zero": (never, never),
        "+infinity": (1, never),
        "-infinity": (never, 1),
        "nearest": (nearest_from, nearest_from),
        "odd": (1, 1),
        "random": (never, never),  # its kernels ask the random bits
    }[toward]
    if not fmt.integer and fmt.zero and emin == mine.emin and subnormals != "round":
        least = 0  # the format's subnormals are the storage format's with fewer bits: nothing special lies below them
    normal_least = least >> storage.mantissa > 1
    values = {
        "mantissa": storage.mantissa,
        "sign": mine.sign_bit,
        "infinity": storage.infinity,
        "one": 1,
        "top": storage.width - 1,
        "shift": max(storage.mantissa - precision_bits, 0),
        "field": max(emin - mine.emin + 1, 0) if emin > mine.emin and least_at < emin else 0,
        "parity": _parity(fmt, storage, least),
        "least": least,
        "normal": storage.pattern(1, emin) if subnormals == "flush" and not fmt.integer else 0,
        **_specials(fmt, storage, rounding, overflow),
        "tie_always": int(rule == "away"),
        "tie_odd": int(rule in ("even", "away")),
        "away_pos": ones if toward == "+infinity" else 0,
        "away_neg": ones if toward == "-infinity" else 0,
        "least_from_pos": 1 if below else from_pos,
        "least_from_neg": 1 if below else from_neg,
        "least_always": 1 if below else never,
        "left": storage.width - 1 - storage.mantissa
        if normal_least
        else min(storage.width - least.bit_length() + 1, storage.width - 1),
        "left_field": (least >> storage.mantissa) - 1 if normal_least else 1,
    }
    values["deepest"] = values["shift"] + values["field"]
    values["plain"] = int(_plain(values, rounding))
    word = storage.uint_dtype.type
    return Fields(**{key: word(value) for key, value in values.items()})
