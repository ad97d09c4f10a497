"""What the GPU's special-function unit gives: ex2, rcp and rsqrt of every float32, as tables, and checks of what makes tables enough.

``python -m tcsim_gpu.special_functions --out FOLDER``: tables to special_functions.npz (differences in units of the last place from
the correctly rounded value), counts to special_functions.json. Operations are PTX's `.approx.ftz.f32`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_SOURCE = r"""
#define OP(NAME) __device__ unsigned do_##NAME(unsigned x) { \
  float y; asm volatile(#NAME ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__uint_as_float(x))); return __float_as_uint(y); }
OP(ex2) OP(rcp) OP(rsqrt) OP(lg2)
#define TABLE(NAME) extern "C" __global__ void table_##NAME(const unsigned* x, unsigned* y, unsigned n) { \
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = do_##NAME(x[i]); }
TABLE(ex2) TABLE(rcp) TABLE(rsqrt) TABLE(lg2)

// counts[hypothesis * 256 + exponent] of floats below zero (and above, sign = 0) whose ex2 is not table[fraction] scaled;
// hypotheses: bits kept of the fraction 24, 23, 22, 21, each cut toward minus infinity, toward zero, to nearest
extern "C" __global__ void check_ex2(const unsigned* table, unsigned long long* counts, unsigned first, unsigned n) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned bits = first + i, got = do_ex2(bits);
    double v = (double)__uint_as_float(bits);
    for (int h = 0; h < 12; h++) {
      int keep = 24 - h / 3;
      double s = v * (double)(1 << keep);
      double f = h % 3 == 0 ? floor(s) : h % 3 == 1 ? trunc(s) : rint(s);
      long long whole = (long long)f;
      long long part = whole & ((1LL << keep) - 1);
      int e = (int)((whole - part) >> keep);
      unsigned t = table[part << (24 - keep)];
      int exponent = (int)(t >> 23) + e;
      unsigned want = exponent <= 0 ? 0u : exponent >= 255 ? 0x7f800000u : (t & 0x7fffffu) | ((unsigned)exponent << 23);
      if (want != got) atomicAdd(&counts[h * 256 + ((bits >> 23) & 255)], 1ULL);
    }
  }
}

// mantissas of x are enough: counts[exponent] of floats whose rcp (rsqrt) is not that of [1, 2) ([1, 4)) scaled
extern "C" __global__ void check_rcp(const unsigned* table, unsigned long long* counts, unsigned first, unsigned n) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned bits = first + i, e = (bits >> 23) & 255, got = do_rcp(bits);
    unsigned t = table[bits & 0x7fffffu];
    int exponent = (int)(t >> 23) - ((int)e - 127);
    unsigned want = exponent <= 0 ? 0u : (t & 0x7fffffu) | ((unsigned)exponent << 23);
    if (e != 0 && e != 255 && want != got) atomicAdd(&counts[e], 1ULL);
  }
}
extern "C" __global__ void check_rsqrt(const unsigned* table, unsigned long long* counts, unsigned first, unsigned n) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned bits = first + i, e = (bits >> 23) & 255, got = do_rsqrt(bits);
    int odd = ((int)e - 127) & 1, half = ((int)e - 127 - odd) / 2;
    unsigned t = table[(bits & 0x7fffffu) | (odd << 23)];
    unsigned want = (t & 0x7fffffu) | ((unsigned)((int)(t >> 23) - half) << 23);
    if (e != 0 && e != 255 && want != got) atomicAdd(&counts[e], 1ULL);
  }
}
"""

REFERENCES: dict[str, Callable[[Any], Any]] = {
    "ex2": np.exp2, "rcp": lambda x: 1.0 / x, "rsqrt": lambda x: 1.0 / np.sqrt(x), "lg2": np.log2,
}  # fmt: skip


def _binade(e: int) -> np.ndarray[Any, Any]:
    return (np.arange(1 << 23, dtype=np.uint32) | np.uint32((127 + e) << 23)).view(np.float32)


def table_inputs(name: str) -> np.ndarray[Any, Any]:
    """The float32 values of a table: "ex2" i/2^24 below 1, "rcp" [1, 2), "rsqrt" [1, 4), "ex2 binade -1" (-1, -1/2]."""
    if name == "ex2":
        return (np.arange(1 << 24) / 2.0**24).astype(np.float32)
    if name == "rsqrt":
        return np.concatenate([_binade(0), _binade(1)])
    if name.startswith("ex2 binade"):
        return -_binade(int(name.rsplit(" ", 1)[1]))
    return _binade(0)


def expected(name: str) -> np.ndarray[Any, Any]:
    """The correctly rounded values (by way of float64) of a table's inputs, as codes."""
    with np.errstate(all="ignore"):
        made = REFERENCES[name.split(" ")[0]](table_inputs(name).astype(np.float64)).astype(np.float32)
    return np.asarray(made.view(np.uint32))


def table(packed: Any, name: str) -> np.ndarray[Any, Any]:
    """Codes of a table from its packed differences."""
    off = np.frombuffer(lzma.decompress(packed.tobytes()), np.int8)
    return np.asarray((expected(name).astype(np.int64) + off).astype(np.uint32))


def packed(codes: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any] | None:
    """Differences from the correctly rounded values, small and compressed; None where they are not small."""
    off = codes.astype(np.int64) - expected(name)
    if np.abs(off).max() > 127:
        return None
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1}]
    return np.frombuffer(lzma.compress(off.astype(np.int8).tobytes(), filters=filters), np.uint8)


def main(argv: list[str] | None = None) -> None:
    """Capture on the GPU present."""
    from tcsim_gpu import device

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("."))
    out = options.parse_args(argv).out
    cp = device.cupy()
    module = cp.RawModule(code=_SOURCE)
    arrays: dict[str, Any] = {}
    about: dict[str, Any] = {"about": device.describe()}

    def run(op: str, x: Any) -> Any:
        given = cp.asarray(x.view(np.uint32))
        made = cp.empty_like(given)
        module.get_function(f"table_{op}")((2048,), (256,), (given, made, np.uint32(given.size)))
        return made

    on_device = {name: run(name, table_inputs(name)) for name in ("ex2", "rcp", "rsqrt")}
    for name, first, many in (
        ("ex2", 0x80000000 + (97 << 23), 0x43180000 - (97 << 23)),
        ("rcp", 0, 0x7F800000),
        ("rsqrt", 0, 0x7F800000),
    ):
        counts = cp.zeros(12 * 256, cp.uint64)
        arguments = (on_device[name], counts, np.uint32(first), np.uint32(many))
        module.get_function(f"check_{name}")((2048,), (256,), arguments)
        found = cp.asnumpy(counts).reshape(12, 256)
        about[f"{name}: exceptions"] = [[int(h), int(e), int(found[h, e])] for h, e in zip(*np.nonzero(found), strict=True)]
    print("checked", flush=True)
    for name in ("rcp", "ex2", "ex2 binade -1", "rsqrt", "ex2 binade -3", "ex2 binade -7"):
        codes = cp.asnumpy(run(name.split(" ")[0], table_inputs(name)))
        off = codes.astype(np.int64) - expected(name)
        values, times = np.unique(np.clip(off, -200, 200), return_counts=True)
        about[name] = {"sha256": hashlib.sha256(codes.tobytes()).hexdigest(), "differences": dict(zip(values.tolist(), times.tolist(), strict=True))}  # fmt: skip
        kept = packed(codes, name)
        if kept is not None:
            arrays[name] = kept
        np.savez(out / "special_functions.npz", **arrays)
        (out / "special_functions.json").write_text(json.dumps(about, indent=1))
        print(name, about[name], 0 if kept is None else kept.size, flush=True)


if __name__ == "__main__":
    main()
