"""The published multiword schemes, each a `Recipe`: which words, which products, which order, added where."""

from __future__ import annotations

from collections.abc import Callable

from tcsim.errors import unknown
from tcsim.schedule import Blocked
from tcsim.schemes.multiplier import segments
from tcsim.schemes.multiword import Pairs, Recipe

TERMS: dict[str, Pairs] = {
    "1": ((1, 1),),
    "2": ((2, 1), (1, 1)),
    "2'": ((1, 2), (1, 1)),
    "3": ((2, 1), (1, 2), (1, 1)),
    "4": ((2, 2), (2, 1), (1, 2), (1, 1)),
    "9": tuple(sorted(((i, j) for i in range(1, 4) for j in range(1, 4)), key=lambda p: (-sum(p), -p[0]))),
    "16": tuple(sorted(((i, j) for i in range(1, 5) for j in range(1, 5)), key=lambda p: (-sum(p), -p[0]))),
}


def plain(*, fmt: str = "float16") -> Recipe:
    """fl(A)·fl(B): one product. |E| <= (2u + k·2^-24)|A||B|."""
    return Recipe("plain", fmt, 1, (((1, 1),),))


def fabsum(*, block: int = 128, sum: str = "float32", fmt: str = "float16") -> Recipe:
    """Fasi et al. 2022, Algorithm 4.2 (sum="float32", v1) or 4.3 (sum="float64", v2) on fl(A), fl(B)."""
    return Recipe("fabsum", fmt, 1, (((1, 1),),), first=Blocked(block, sum=sum))


def markidis(*, scale: float = 1.0, inside: bool = False, block: int = 0, fmt: str = "float16") -> Recipe:
    """Markidis et al. 2018: all four products of two words.

    Added small to large in float32, AB + (dAB/s + (AdB/s + dAdB/s²)), as Precision Boosting's program does; `inside` chains them
    through the unit's accumulator instead (scale 1 only), as the original and Ootomo and Yokota 2022 do. `block` > 0 accumulates AB
    outside the unit every `block` of k.
    """
    order = ((2, 2), (1, 2), (2, 1), (1, 1))
    first = segments(block) if block else None
    return Recipe(
        "markidis",
        fmt,
        2,
        tuple((p,) for p in order),
        scale=scale,
        merge="chain" if inside else "add",
        first=first,
        others=first,
    )


def ootomo(*, fmt: str = "float16", scale: float | None = None, block: int = 16, last: bool = False) -> Recipe:
    """Ootomo and Yokota 2022 (FP16TCEC, TF32TCEC): three products, A·B accumulated outside every `block` of k.

    The low word is scaled by 2^11 in fp16 and not in tf32, whose exponent range needs no help. dA·B and A·dB share one
    accumulator inside the unit, taking turns every `block` of k, and are divided by the scale once at the end. `last`
    keeps dA·dB too.
    """
    s = (2.0**11 if fmt in ("float16", "fp16") else 1.0) if scale is None else scale
    groups: tuple[Pairs, ...] = (((2, 1), (1, 2)), ((1, 1),))
    name = "ootomo" if fmt in ("float16", "fp16") else "ootomo-tf32"
    return Recipe(name, fmt, 2, ((((2, 2),),) if last else ()) + groups, scale=s, chunk=block, first=segments(block))


def ootomo_tf32(*, block: int = 8, last: bool = False) -> Recipe:
    """`ootomo` with tf32 words."""
    return ootomo(fmt="tfloat32", block=block, last=last)


def split_terms(*, terms: str | int = "3", scale: float = 2.0**11, block: int = 16, fmt: str = "float16") -> Recipe:
    """Precision Boosting's split-n with 1, 2, 2', 3, 4, 9 or 16 terms: products by descending i + j, divided by s^(i+j-2), summed
    small to large in float32. 2 is {AB, dAB}, 2' {AB, AdB}; 9 takes three words, 16 four. `block` = 0 accumulates inside."""
    if str(terms) not in TERMS:
        raise unknown("number of terms", terms, TERMS)
    order = TERMS[str(terms)]
    outside = segments(block) if block else None
    return Recipe(
        "split",
        fmt,
        max(i for pair in order for i in pair),
        tuple((p,) for p in order),
        scale=scale,
        first=outside,
        others=outside,
    )


def mmm(*, words: int = 2, fmt: str = "float16", products: str | Pairs = "triangle", scale: float = 1.0) -> Recipe:
    """Fasi et al. 2022, Algorithm 2.1: C <- C + A_iB_j for i, j = 1..p, added in float32.

    `products`: "triangle" for i + j <= p + 1, "all" for p², or the pairs themselves.
    """
    return Recipe("mmm", fmt, words, tuple((p,) for p in _products(words, products)), scale=scale)


def mmm_chained(*, words: int = 2, fmt: str = "float16", products: str | Pairs = "triangle", scale: float = 1.0) -> Recipe:
    """Fasi et al. 2022, Algorithm 4.1 for any p: C <- A_iB_j + C through the unit's accumulator, smallest products first.

    For p = 2 the order is A2B1, A1B2, A1B1.
    """
    groups = tuple((p,) for p in _ascending(_products(words, products)))
    return Recipe("mmm-chained", fmt, words, groups, scale=scale, merge="chain")


def mmm_fabsum(
    *, block: int = 128, sum: str = "float32", words: int = 2, fmt: str = "float16", products: str | Pairs = "triangle"
) -> Recipe:
    """Fasi et al. 2022, Algorithm 4.4: as 4.1, but A1B1 by FABsum with blocks of `block` (v1 for float32, v2 for float64)."""
    return mmm_chained(words=words, fmt=fmt, products=products).replace(name="mmm-fabsum", first=Blocked(block, sum=sum))


def bf16x(*, products: int = 9, stage: int = 0) -> Recipe:
    """BF16x9 of cuBLAS and its cheaper relatives: x = b0 + b1·2^-8 + b2·2^-16, bands of equal weight chained, smallest first.

    With `stage` > 0 the accumulator is moved to the CUDA cores and added there every `stage` of k, which CUTLASS calls
    promotion. 9: all products of three words, exact words for normal float32. 6: i + j <= 4. 3: two words, i + j <= 3.
    Henry, Tang and Heinecke 2019; NVIDIA CUTLASS example 78.
    """
    if products not in (3, 6, 9):
        raise unknown("number of bf16 products", products, ("3", "6", "9"))
    words, top = {3: (2, 3), 6: (3, 4), 9: (3, 6)}[products]
    bands = [tuple((i, t - i) for i in range(words, 0, -1) if 1 <= t - i <= words) for t in range(top, 1, -1)]
    return Recipe(f"bf16x{products}", "bfloat16", words, tuple(bands), scale=2.0**8, merge="chain", stage=stage)


def bf16x3(*, stage: int = 0) -> Recipe:
    """Three bf16 products of two words, i + j <= 3."""
    return bf16x(products=3, stage=stage)


def bf16x6(*, stage: int = 0) -> Recipe:
    """Six bf16 products of three words, i + j <= 4."""
    return bf16x(products=6, stage=stage)


def bf16x9(*, stage: int = 0) -> Recipe:
    """All nine bf16 products of three words."""
    return bf16x(products=9, stage=stage)


def tf32x3(*, chunk: int = 8, stage: int = 0, last: bool = False, rounding: str = "rne", rest: str = "rne") -> Recipe:
    """3xTF32 of CUTLASS example 27: small·big, big·small, big·big on one accumulator, taking turns every `chunk` of k.

    With `stage` > 0 the accumulator is cleared every `stage` of k and added outside in float32, which CUTLASS' multistage
    kernels do each main-loop iteration (their staged accumulation; 16 in example 27). `last` adds small·small (4xTF32),
    after the others as there.
    """
    order = ((2, 1), (1, 2), (1, 1)) + (((2, 2),) if last else ())
    others = segments(len(order) * stage) if stage else None
    name = "tf32x4" if last else "tf32x3"
    return Recipe(name, "tfloat32", 2, (order,), chunk=chunk, others=others, rounding=rounding, rest=rest)


def narrow_range(*, words: int = 2, fmt: str = "float16", products: str | Pairs = "triangle", block: int = 0) -> Recipe:
    """Mary and Mikaitis: rows and columns scaled to the top of the range, words scaled by 1/u, products weighted u^(i+j-2)."""
    from tcsim.fp.formats import format_named

    recipe = mmm_chained(words=words, fmt=fmt, products=products, scale=2.0 ** format_named(fmt).precision)
    return recipe.replace(name="narrow-range", merge="add", equilibrate=True, first=segments(block) if block else None)


RECIPES: dict[str, Callable[..., Recipe]] = {
    "plain": plain,
    "fabsum": fabsum,
    "markidis": markidis,
    "ootomo": ootomo,
    "ootomo-tf32": ootomo_tf32,
    "split": split_terms,
    "mmm": mmm,
    "mmm-chained": mmm_chained,
    "mmm-fabsum": mmm_fabsum,
    "bf16x3": bf16x3,
    "bf16x6": bf16x6,
    "bf16x9": bf16x9,
    "tf32x3": tf32x3,
    "narrow-range": narrow_range,
}


def _products(words: int, products: str | Pairs) -> Pairs:
    if not isinstance(products, str):
        return tuple((int(i), int(j)) for i, j in products)
    if products not in ("triangle", "all"):
        raise unknown("set of products", products, ("triangle", "all"))
    every = ((i, j) for i in range(1, words + 1) for j in range(1, words + 1))
    return tuple(p for p in every if products == "all" or sum(p) <= words + 1)


def _ascending(products: Pairs) -> Pairs:
    """Smallest products first, and A_iB_j with the larger i first among equals."""
    return tuple(sorted(products, key=lambda p: (-sum(p), -p[0])))
