"""Peak rates of GPUs, for the cost of a scheme relative to a native product."""

from __future__ import annotations

from tcsim.errors import unknown
from tcsim.fp.formats import format_named

# TFLOP/s (TOP/s for int8), dense, at boost clock, with float32 (int32) accumulation, from the vendors' data sheets; the
# faster of CUDA and tensor cores for float64 and float32. V100 and A100 are Fasi et al. 2022's Table 4.1; the last two rows
# are the GPUs of Precision Boosting and of Mukunoki et al. 2020.
COLUMNS = ("float64", "float32", "tfloat32", "bfloat16", "float16", "float8", "int8")
# fmt: off
_TABLE: dict[str, tuple[float | None, ...]] = {
    "v100": (7.8, 15.7, None, None, 125.0, None, None),
    "t4": (0.25, 8.1, None, None, 65.0, None, 130.0),
    "a100": (19.5, 19.5, 156.0, 312.0, 312.0, None, 624.0),
    "a2": (0.07, 4.5, 9.0, 18.0, 18.0, None, 36.0),
    "a30": (10.3, 10.3, 82.0, 165.0, 165.0, None, 330.0),
    "a40": (0.58, 37.4, 74.8, 149.7, 149.7, None, 299.3),
    "l40s": (1.4, 91.6, 183.0, 362.0, 362.0, 733.0, 733.0),
    "ada": (1.4, 91.1, 182.1, 364.2, 364.2, 728.5, 728.5),
    "h100": (67.0, 67.0, 494.7, 989.4, 989.4, 1978.9, 1978.9),
    "h200": (67.0, 67.0, 494.7, 989.4, 989.4, 1978.9, 1978.9),
    "b200": (37.0, 75.0, 1125.0, 2250.0, 2250.0, 4500.0, 4500.0),
    "rtx-blackwell": (1.6, 104.8, 104.8, 209.5, 209.5, 419.0, 838.0),
    "mi100": (11.5, 46.1, None, 92.3, 184.6, None, 184.6),
    "mi210": (45.3, 45.3, None, 181.0, 181.0, None, 181.0),
    "mi250": (90.5, 90.5, None, 362.1, 362.1, None, 362.1),
    "mi300x": (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9),
    "rtx-4080-super": (0.8, 52.2, None, None, 208.9, None, None),
    "titan-rtx": (0.51, 16.3, None, None, 130.5, None, None),
}
# fmt: on
PEAKS = {
    gpu: {fmt: rate for fmt, rate in zip(COLUMNS, rates, strict=True) if rate is not None} for gpu, rates in _TABLE.items()
}


def peak(gpu: str, fmt: str) -> float | None:
    """TFLOP/s of a GPU for products of a format; None where it has no unit for it. All fp8 formats run at one rate.

    ValueError names the nearest GPU for an unknown one.
    """
    if gpu not in PEAKS:
        raise unknown("GPU with a known peak rate", gpu, PEAKS)
    name = "float8" if fmt == "float8" else format_named(fmt).name
    return PEAKS[gpu].get("float8" if name.startswith("float8") else name)
