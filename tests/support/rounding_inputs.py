"""What round_to is asked: formats, modes, every value of 16 bits, corners of float32 and float64, the stream of random words."""

import numpy as np

from tcsim.fp import philox
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format

DETERMINISTIC = ("rz", "rne", "rna", "rnz", "ru", "rd", "ro")
STOCHASTIC = ("sr", "sr-centred", "sr-nearest", "sr-nearest-odd", "sr-equal")
NARROW = [f for f in FORMATS.values() if f.width <= 16]
CUSTOM = [
    Format(1, 2), Format(2, 0, infinities=False, nan="none"), Format(3, 0, nan="none"), Format(4, 2, bias=3), Format(5, 13),
    Format(6, 9), Format(8, 1), Format(5, 1, infinities=False, nan="all-ones"), Format(4, 3, infinities=False, nan="none"),
    Format(3, 4, signed=False), Format(4, 1, infinities=False, nan="negative-zero", bias=9), Format(8, 3, bias=130),
]  # fmt: skip
WIDE = [FORMATS[n] for n in ("tfloat32", "float32", "int32")] + [Format(7, 20), Format(8, 15), Format(9, 30)]
SEED = 20260721


def ids(fmt):
    return fmt.name if isinstance(fmt, Format) else str(fmt)


def words(n, seed=SEED):
    """The stream of round_to from the definition of the generator."""
    return np.asarray(philox.philox((np.arange(n, dtype=np.uint64), 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[0])


ALL16 = {name: decode(np.arange(1 << 16, dtype=np.uint16), name) for name in ("float16", "bfloat16")}


def without_nan(x, fmt):
    return x[~np.isnan(x)] if fmt.nan == "none" or fmt.integer else x


def corners(source):
    """Patterns of all exponents of float32, or of those of float64 near something, times corner significands, both signs."""
    bits, width = (23, 32) if source == "float32" else (52, 64)
    significands = {0, 1, 2, 3, 2**bits - 1, 2**bits - 2, 2**bits // 3, 0x5DB3D7 if bits == 23 else 0x5DB3D742C2655}
    for place in (bits - 1, bits - 2, *(m for f in NARROW + WIDE if (m := bits - f.mantissa_bits) > 0)):
        for near in (2**place, 2 ** (place - 1), 3 * 2 ** (place - 1)):
            significands |= {(near + d) % 2**bits for d in (-1, 0, 1)}
    fields = np.arange(256) if source == "float32" else np.r_[0:3, 2044:2048, 860:1160]
    patterns = (fields[:, None].astype(np.uint64) << np.uint64(bits)) | np.array(sorted(significands), np.uint64)
    patterns = np.concatenate([patterns.ravel(), patterns.ravel() | np.uint64(1 << (width - 1))])
    return patterns.astype(f"uint{width}").view(source)
