"""Number formats as literal data: every field says what it means, nothing is computed from a name.

A float code is ``sign | exponent field | fraction field``. With exponent field E > 0 its value is
``(-1)^sign * 2^(E - bias) * (1 + fraction / 2^mantissa_bits)``; with E = 0 it is the subnormal
``(-1)^sign * 2^(1 - bias) * fraction / 2^mantissa_bits``. `nan` and `infinities` say which codes are special.

Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0; PTX ISA 8.8
(tf32, ue4m3, ue8m0); the FNUZ formats as AMD's CDNA3 ISA gives them. Names are those of ml_dtypes where it has the
format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from tcsim.arguments import is_integer
from tcsim.errors import unknown

NAN_STYLES = ("ieee", "all-ones", "negative-zero", "none")


@dataclass(frozen=True)
class Format:
    """A binary number format.

    `exponent_bits`, `mantissa_bits`: widths of the two fields (mantissa_bits excludes the implicit bit).
    `bias`: exponent bias, any integer; None for 2^(exponent_bits-1) - 1.
    `signed`: has a sign bit. `infinities`: has infinities (the top exponent with fraction 0).
    `nan`: "ieee" (top exponent, fraction not 0), "all-ones" (only the code with all exponent and fraction bits set),
    "negative-zero" (the code of -0, so there is no -0), "none".
    `zero`: whether exponent field 0 holds zero and subnormals; without it (e8m0) field 0 is an ordinary exponent.
    `padding`: low bits of a code that are always zero (tf32 travels as a float32 pattern).
    `integer`: a two's complement integer of `mantissa_bits + 1` bits, 8, 16 or 32; the fields above keep their defaults.

    A custom format needs only the two widths: ``Format(exponent_bits=4, mantissa_bits=2)``. ValueError for fields that
    do not go together.
    """

    exponent_bits: int
    mantissa_bits: int
    name: str = ""
    bias: int = None  # type: ignore[assignment]  # an int once made
    signed: bool = True
    infinities: bool = True
    nan: str = "ieee"
    zero: bool = True
    padding: int = 0
    integer: bool = False
    aliases: tuple[str, ...] = field(default=(), repr=False, compare=False)
    source: str = field(default="user", repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_types(self)
        _check_integer(self) if self.integer else _check_float(self)
        if not self.name:
            default = f"int{self.width}" if self.integer else f"e{self.exponent_bits}m{self.mantissa_bits}"
            object.__setattr__(self, "name", default if _may_be_named(self, default) else f"{default}_custom")
        elif not _may_be_named(self, self.name):
            raise ValueError(f"name={self.name!r} is that of a format of the table with other fields; choose another name")

    @cached_property
    def width(self) -> int:
        """Bits of a code, padding included."""
        return int(self.signed or self.integer) + self.exponent_bits + self.mantissa_bits + self.padding

    @cached_property
    def storage(self) -> str:
        """The numpy unsigned integer that carries a code."""
        return next(f"uint{w}" for w in (8, 16, 32, 64) if w >= self.width)

    @property
    def precision(self) -> int:
        """Significand bits, the implicit one included."""
        return self.mantissa_bits + 1

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number; subnormals share it."""
        return 1 - self.bias if self.zero else -self.bias

    @cached_property
    def emax(self) -> int:
        """Exponent of the largest finite number."""
        return max(self._top_field - self.bias, self.emin)

    @cached_property
    def _top_field(self) -> int:
        return self.max_code >> (self.mantissa_bits + self.padding)

    @cached_property
    def max_code(self) -> int:
        """Code of the largest finite number."""
        top = (1 << (self.exponent_bits + self.mantissa_bits)) - 1
        if self.infinities or self.nan == "ieee":
            top -= 1 << self.mantissa_bits
        elif self.nan == "all-ones":
            top -= 1
        return top << self.padding

    @cached_property
    def max_finite(self) -> float:
        """The largest finite value."""
        fraction = (self.max_code >> self.padding) & ((1 << self.mantissa_bits) - 1)
        implicit = 1 << self.mantissa_bits if self._top_field or not self.zero else 0
        return float(implicit + fraction) * 2.0 ** (self.emax - self.mantissa_bits)

    @property
    def negative_zero(self) -> bool:
        """Whether it has a -0: its values become +0 in a format without."""
        return self.signed and self.zero and not self.integer and self.nan != "negative-zero"

    @cached_property
    def sign_bit(self) -> int:
        """The sign's place in a code, 0 for an unsigned format."""
        return 1 << (self.width - 1) if self.signed else 0

    @cached_property
    def nan_code(self) -> int | None:
        """The NaN that results carry: all exponent and fraction bits set, sign clear; None where the format has none.

        NVIDIA's units return this pattern for every NaN (0x7FFFFFFF in float32, 0x7FFF in float16).
        """
        if self.nan == "none" or self.integer:
            return None
        if self.nan == "negative-zero":
            return self.sign_bit
        return ((1 << (self.exponent_bits + self.mantissa_bits)) - 1) << self.padding

    @cached_property
    def inf_code(self) -> int | None:
        """Code of +infinity, None where the format has none."""
        if not self.infinities or self.integer:
            return None
        return ((1 << self.exponent_bits) - 1) << (self.mantissa_bits + self.padding)

    @cached_property
    def array_dtype(self) -> str:
        """The numpy dtype that `decode` returns: the narrowest of float32 and float64 that holds every value."""
        if self.integer:
            return f"int{self.width}"
        fits = self.mantissa_bits <= 23 and self.emin - self.mantissa_bits >= -149 and self.emax <= 127
        return "float32" if fits else "float64"


def _check_types(fmt: Format) -> None:
    for key in ("exponent_bits", "mantissa_bits", "padding", "bias"):
        value = getattr(fmt, key)
        if not is_integer(value) and not (key == "bias" and value is None):
            raise ValueError(f"{key} must be an integer; got {value!r}")
        if value is None:
            value = max(2 ** (fmt.exponent_bits - 1) - 1, 0) if fmt.exponent_bits > 0 else 0
        object.__setattr__(fmt, key, int(value))
    for key in ("signed", "infinities", "zero", "integer"):
        if not isinstance(getattr(fmt, key), bool):
            raise ValueError(f"{key} must be True or False; got {getattr(fmt, key)!r}")
    if not isinstance(fmt.name, str):
        raise ValueError(f"name must be a string; got {fmt.name!r}")
    if fmt.nan not in NAN_STYLES:
        raise unknown("NaN style", fmt.nan, NAN_STYLES)


def _check_integer(fmt: Format) -> None:
    if fmt.exponent_bits or fmt.mantissa_bits + 1 not in (8, 16, 32):
        raise ValueError(
            f"an integer format has exponent_bits=0 and mantissa_bits 7, 15 or 31; got exponent_bits={fmt.exponent_bits}, "
            f"mantissa_bits={fmt.mantissa_bits}"
        )
    moot = {"bias": 0, "signed": True, "infinities": True, "nan": "ieee", "zero": True, "padding": 0}
    for key, value in moot.items():
        if getattr(fmt, key) != value:
            raise ValueError(f"{key}={getattr(fmt, key)!r}: an integer format leaves it at its default")


def _check_float(fmt: Format) -> None:
    """ValueError where fields contradict each other: a code without a meaning, or with two."""
    e, m = fmt.exponent_bits, fmt.mantissa_bits
    if not 0 <= e <= 11 or not 0 <= m <= 52:
        raise ValueError(
            f"a format has 0 to 11 exponent bits and 0 to 52 mantissa bits; got exponent_bits={e}, mantissa_bits={m}"
        )
    if e == 0:
        raise ValueError("a floating-point format needs at least 1 exponent bit; got exponent_bits=0")
    if fmt.nan == "ieee" and m == 0:
        raise ValueError(
            "without mantissa bits NaN and infinity need the same code; pass nan='none', or 'all-ones' without infinities"
        )
    if fmt.nan == "ieee" and not fmt.infinities:
        raise ValueError("nan='ieee' without infinities leaves the code of infinity no meaning; pass nan='all-ones' or 'none'")
    if fmt.nan == "none" and fmt.infinities and m:
        raise ValueError(
            "infinities=True and nan='none' leave the other codes of the top exponent no meaning; pass nan='ieee', or infinities=False"
        )
    if fmt.infinities and fmt.nan in ("all-ones", "negative-zero"):
        raise ValueError(f"nan={fmt.nan!r} gives the top exponent to numbers; pass infinities=False with it")
    if fmt.nan == "negative-zero" and not (fmt.signed and fmt.zero):
        raise ValueError("nan='negative-zero' needs a signed format with a zero")
    if fmt.padding < 0 or fmt.width > 64:
        raise ValueError(f"padding={fmt.padding}: it is at least 0, and a code has at most 64 bits")
    if fmt.max_code == 0 and fmt.zero:
        raise ValueError(f"exponent_bits={e}, mantissa_bits={m}: the format would have no finite number but zero")


def _may_be_named(fmt: Format, name: str) -> bool:
    """Whether no format of the table with other fields has this name; while the table is made, none has."""
    known = globals().get("FORMATS", {}).get(globals().get("_ALIASES", {}).get(name.lower().replace("-", "_")))
    return known is None or all(
        getattr(known, f.name) == getattr(fmt, f.name) for f in fields(fmt) if f.compare and f.name != "name"
    )


_IEEE = "IEEE 754-2019"
_OFP8 = "OCP 8-bit Floating Point Specification 1.0"
_MX = "OCP Microscaling Formats 1.0"
_FNUZ = "AMD Instinct MI300 CDNA3 ISA"

# fmt: off
_TABLE = (
    Format(5, 10, "float16", aliases=("fp16", "f16", "half", "binary16", "e5m10"), source=_IEEE),
    Format(8, 7, "bfloat16", aliases=("bf16", "e8m7"), source="Intel BFLOAT16 definition, 2018"),
    Format(8, 10, "tfloat32", padding=13, aliases=("tf32", "e8m10", "xf32"), source="PTX ISA 8.8"),
    Format(8, 23, "float32", aliases=("fp32", "f32", "single", "binary32", "e8m23"), source=_IEEE),
    Format(11, 52, "float64", aliases=("fp64", "f64", "double", "binary64", "e11m52"), source=_IEEE),
    Format(4, 3, "float8_e4m3fn", infinities=False, nan="all-ones", aliases=("e4m3", "e4m3fn", "fp8_e4m3"), source=_OFP8),
    Format(5, 2, "float8_e5m2", aliases=("e5m2", "fp8_e5m2", "bf8"), source=_OFP8),
    Format(4, 3, "float8_e4m3fnuz", bias=8, infinities=False, nan="negative-zero", aliases=("e4m3fnuz",), source=_FNUZ),
    Format(5, 2, "float8_e5m2fnuz", bias=16, infinities=False, nan="negative-zero", aliases=("e5m2fnuz",), source=_FNUZ),
    Format(2, 3, "float6_e2m3fn", infinities=False, nan="none", aliases=("e2m3", "e2m3fn", "fp6_e2m3"), source=_MX),
    Format(3, 2, "float6_e3m2fn", infinities=False, nan="none", aliases=("e3m2", "e3m2fn", "fp6_e3m2"), source=_MX),
    Format(2, 1, "float4_e2m1fn", infinities=False, nan="none", aliases=("e2m1", "e2m1fn", "fp4", "fp4_e2m1"), source=_MX),
    Format(8, 0, "float8_e8m0fnu", signed=False, infinities=False, nan="all-ones", zero=False, bias=127,
           aliases=("e8m0", "e8m0fnu", "ue8m0"), source=_MX),
    Format(4, 3, "float8_ue4m3fn", signed=False, infinities=False, nan="all-ones",
           aliases=("ue4m3", "ue4m3fn"), source="PTX ISA 8.8"),
    Format(0, 7, "int8", integer=True, aliases=("i8", "s8"), source="PTX ISA 8.8"),
    Format(0, 31, "int32", integer=True, aliases=("i32", "s32"), source="PTX ISA 8.8"),
)
# fmt: on

FORMATS: dict[str, Format] = {f.name: f for f in _TABLE}
_ALIASES = {alias: f.name for f in _TABLE for alias in (f.name, *f.aliases)}


# Families of which a name must say the member.
_FAMILIES = {
    "fp8": ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    "fp6": ("float6_e3m2fn", "float6_e2m3fn"),
    "mxfp8": ("mxfp8_e4m3", "mxfp8_e5m2"),
    "mxfp6": ("mxfp6_e3m2", "mxfp6_e2m3"),
}


def family_of(name: object) -> tuple[str, ...]:
    """The formats that a name as loose as "fp8" may mean; none for a name that means one, or nothing."""
    key = str(name).lower().replace("-", "_").replace("float", "fp")
    return _FAMILIES.get(key if len(key) > 2 else f"fp{key[1:]}", ()) if key else ()


def format_named(fmt: Any) -> Format:
    """The Format of a name or alias (case and ``-`` for ``_`` do not matter); a Format is returned as it is.

    Also that of a scalar type or dtype of numpy, ml_dtypes, PyTorch or JAX (``np.float16``, ``torch.bfloat16``), and of
    "e5m7", which is ``Format(5, 7)`` where no format of the table has these widths. ValueError asks which where "fp8" may be
    several, and names the nearest known format.
    """
    if isinstance(fmt, Format):
        return fmt
    if type(fmt) is str and fmt in FORMATS:
        return FORMATS[fmt]
    name = _type_name(fmt)
    key = name.lower().replace("-", "_")
    if key in _ALIASES:
        return FORMATS[_ALIASES[key]]
    if widths := re.fullmatch(r"e(\d\d?)m(\d\d?)", key):
        return Format(int(widths[1]), int(widths[2]))
    if members := family_of(name):
        raise ValueError(f"format {name!r} may be {' or '.join(map(repr, members))}: say which")
    raise unknown("format", name, _ALIASES, shown=FORMATS)


def _type_name(fmt: Any) -> str:
    """The name that a string, a scalar type or a dtype bears: "float16" of `numpy.float16` and of `torch.float16`."""
    if isinstance(fmt, str):
        return fmt.removeprefix("torch.").removeprefix("jnp.").removeprefix("np.")
    name = fmt.__name__ if isinstance(fmt, type) else getattr(fmt, "name", None) or str(fmt)
    return {"float": "float64"}.get(name, name).removeprefix("torch.")


def formats() -> dict[str, Format]:
    """Every format of the table by name, in the order of the table."""
    return FormatTable(FORMATS)


class FormatTable(dict[str, Format]):
    """Formats by name, shown a line each."""

    def __repr__(self) -> str:
        lines = (
            f"  {name:16}{f'{fmt.width} bits' if fmt.integer else f'{fmt.exponent_bits:2} exponent bits, {fmt.mantissa_bits:2} of the fraction'}"
            for name, fmt in self.items()
        )
        return "\n".join([f"{len(self)} formats", *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{fmt.width}</td>"
            + (
                "<td></td>" * 3
                if fmt.integer
                else f"<td>{fmt.exponent_bits}</td><td>{fmt.mantissa_bits}</td><td>{fmt.bias}</td>"
            )
            + "</tr>"
            for name, fmt in self.items()
        )
        return f"<table><tr><th>format</th><th>bits</th><th>exponent bits</th><th>fraction bits</th><th>bias</th></tr>{rows}</table>"
