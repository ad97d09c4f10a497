"""The products whose errors rounding-growth measures: multiword products on units, and block FMAs of software.

Every method's result is reduced to two numbers, the componentwise error (3.1) of Fasi et al. 2022 and the normwise one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from tcsim.hardware import unit
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.studies.rounding_growth.choices import changes, k_span

# The rows of Table 2.1: input format and number of words.
SCHEMES = {
    "fp16": ("float16", 1),
    "double-fp16": ("float16", 2),
    "bf16": ("bfloat16", 1),
    "double-bf16": ("bfloat16", 2),
    "triple-bf16": ("bfloat16", 3),
}
BF16 = tuple(s for s, (fmt, _) in SCHEMES.items() if fmt == "bfloat16")
FP32, FOUR = "fp32", "double-fp16, 4 products"
OPERATIONS = {f"every operation {name}": mode for name, mode in (("RZ", "rz"), ("RN", "rne"), ("SR", "sr"))}
SIMULATED = (FP32, *SCHEMES, FOUR, *OPERATIONS)
ROWS = 16
KEPT_K = 2**13  # up to here a process keeps the matrices that it drew

# A block FMA of dimension 1: every product and every addition rounded to fp32, to nearest.
DIMENSION_1 = Unit("simulated", "fma1", "float32", "float32", "float32", block_size=1, arithmetic="rounded",
                   align_rounding="exact", rounding="rne", source="Fasi et al. 2022, section 3")  # fmt: skip
# V100's blocks of four without a common alignment: products, a tree of three additions, c, each rounded to fp32.
DIMENSION_4 = DIMENSION_1.replace(instruction="fma4", a="float16", b="float16", block_size=4)

Words = tuple[Any, ...]
Errors = dict[str, tuple[float, float]]


class Measured:
    """One pair of matrices, its exact product, and the errors of computed ones by key."""

    def __init__(self, distribution: str, k: int, seed: int) -> None:
        draw = _kept_drawn if k <= KEPT_K else _drawn
        self.a, self.b, self.reference, self.magnitude, self.scale = draw(distribution, k, seed)
        self.errors: Errors = {}
        self._words: dict[str, tuple[Words, Words]] = {}

    def words(self, fmt: str) -> tuple[Words, Words]:
        """A and B as sums of words of a format, exactly: two of fp16, three of bf16."""
        if fmt not in self._words:
            count = max(words for f, words in SCHEMES.values() if f == fmt)
            self._words[fmt] = split_words(self.a, fmt, count), split_words(self.b, fmt, count)
        return self._words[fmt]

    def add(self, key: str, c: Any) -> None:
        """Keep (max |C - C^| / (|A||B|), ||C - C^||_F / (||A||_F ||B||_F)) of a result under `key`."""
        from tcsim.analysis import metrics

        gap = metrics.difference(c, self.reference)
        self.errors[key] = (float(np.max(np.abs(gap) / self.magnitude)), float(np.linalg.norm(gap)) / self.scale)


def _drawn(distribution: str, k: int, seed: int) -> tuple[Any, Any, Any, Any, float]:
    """A and B, their exact product, |A||B| and the product of their Frobenius norms."""
    from tcsim.analysis import exact, inputs

    low, high = k_span(distribution)
    a, b = inputs.uniform(ROWS, k, ROWS, low=low, high=high, seed=seed)
    scale = float(np.linalg.norm(a.astype(np.float64)) * np.linalg.norm(b.astype(np.float64)))
    return a, b, exact.product(a, b), exact.magnitude(a, b), scale


_kept_drawn = lru_cache(maxsize=64)(_drawn)  # several cells measure the same matrices: a megabyte each at most


def split_words(x: Any, fmt: str, count: int) -> Words:
    """x_1 = fl(x), x_2 = fl(x - x_1), …: Algorithm 2.1, lines 1 to 3. Subtractions are exact in float64."""
    from tcsim.fp.round_to import round_to

    words, rest = [], np.asarray(x, dtype=np.float64)
    for _ in range(count):
        words.append(round_to(rest.astype(np.float32), fmt).astype(np.float16 if fmt == "float16" else np.float32))
        rest = rest - words[-1].astype(np.float64)
    return tuple(words)


def word_pairs(words: int) -> list[tuple[int, int]]:
    """The products A_i·B_j with i + j <= p + 1 (from zero here: i + j < p), smallest first as in Algorithm 4.1."""
    return sorted(((i, j) for i in range(words) for j in range(words - i)), key=lambda ij: (-sum(ij), -ij[0]))


def chained(a: Words, b: Words, words: int, made: Unit, options: Mapping[str, Any]) -> Any:
    """Algorithm 4.1 for any number of words: C <- C + A_i·B_j, each product accumulating onto C inside the unit."""
    c = None
    for i, j in word_pairs(words):
        c = matmul(a[i], b[j], c, unit=made, **options)
    return c


def on_units(measured: Measured, names: Sequence[str], rounding: str, options: Mapping[str, Any], blocking: str) -> None:
    """double-fp16 on units with their roundings changed, fp16 on those as built and, in 16 blocks, to nearest throughout."""
    both = rounding == "hardware" or (rounding, blocking) == ("RN throughout", "16 blocks")
    for name, scheme in product(names, ("fp16", "double-fp16") if both else ("double-fp16",)):
        made = unit(name, "float16").replace(**changes(rounding))
        measured.add(
            f"{name}|{rounding}|{blocking}|{scheme}", chained(*measured.words("float16"), SCHEMES[scheme][1], made, options)
        )


def bf16_on_units(measured: Measured, names: Sequence[str], options: Mapping[str, Any], blocking: str) -> None:
    """bf16 with one to three words on the units that have it, as built."""
    for name, scheme in product(names, BF16):
        if has(name, "bfloat16"):
            c = chained(*measured.words("bfloat16"), SCHEMES[scheme][1], unit(name, "bfloat16"), options)
            measured.add(f"{name}|hardware|{blocking}|{scheme}", c)


def has(gpu: str, fmt: str) -> bool:
    """Whether a GPU multiplies a format."""
    from tcsim.hardware import units

    return any((u.gpu, u.a, u.b, u.out) == (gpu, fmt, fmt, "float32") for u in units())


def fp32(measured: Measured, options: Mapping[str, Any], blocking: str) -> None:
    """fp32 with a block FMA of dimension 1."""
    measured.add(f"simulated||{blocking}|{FP32}", matmul(measured.a, measured.b, unit=DIMENSION_1, **options))


def scalar_fma_errors(measured: Measured, fmt: str, options: Mapping[str, Any]) -> None:
    """Algorithm 2.1 with a block FMA of dimension 1: products A_i·B_j of their own, added in fp32.

    bf16 words are given to it as the fp32 numbers that they are: their products are exact in fp32, so only sums are rounded.
    """
    a, b = measured.words(fmt)
    made = DIMENSION_1.replace(a="float16", b="float16") if fmt == "float16" else DIMENSION_1
    products = {(i, j): matmul(a[i], b[j], unit=made, **options) for i, j in sorted(word_pairs(len(a)))}
    for scheme, words in ((s, w) for s, (f, w) in SCHEMES.items() if f == fmt):
        c = _added(products[ij] for ij in sorted(word_pairs(words)))
        measured.add(f"simulated||recursive|{scheme}", c)
        if scheme == "double-fp16":
            fourth = matmul(a[1], b[1], unit=made, **options)
            measured.add(f"simulated||recursive|{FOUR}", c + fourth)


def _added(products: Any) -> Any:
    total = None
    for p in products:
        total = p if total is None else total + p  # float32 + float32, to nearest
    return total


def operations(measured: Measured, options: Mapping[str, Any]) -> None:
    """double-fp16 in one chain on blocks of four that round every operation, in three roundings."""
    for name, mode in OPERATIONS.items():
        made = DIMENSION_4.replace(rounding=mode, product_rounding=mode)
        measured.add(f"simulated||recursive|{name}", chained(*measured.words("float16"), 2, made, options))
