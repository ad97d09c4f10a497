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

// counts[exponent] of floats whose ex2 is not this: |x| cut to 23 fraction bits; below zero the fraction's complement unless it is
// zero; the fraction's entry of the table, scaled
extern "C" __global__ void check_ex2(const unsigned* table, unsigned long long* counts, unsigned first, unsigned n) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned bits = first + i, e = (bits >> 23) & 255, got = do_ex2(bits);
    if (e == 255) continue;
    double size = fmin((double)fabsf(__uint_as_float(bits)), 1000.0);
    long long m = e == 0 ? 0 : (long long)(size * 8388608.0);
    int part = (int)(m & 0x7fffff), whole = (int)(m >> 23);
    if (bits >> 31) { whole = part ? -whole - 1 : -whole; part = part ? 0x7fffff - part : 0; }
    unsigned t = table[2 * part];
    int exponent = (int)(t >> 23) + whole;
    unsigned want = exponent <= 0 ? 0u : exponent >= 255 ? 0x7f800000u : (t & 0x7fffffu) | ((unsigned)exponent << 23);
    if (want != got) atomicAdd(&counts[e], 1ULL);
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

TABLES = ("rcp", "ex2", "ex2 binade -1", "rsqrt", "ex2 binade -3", "ex2 binade -7")
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
    if " binade " in name:
        sign = -1 if name.startswith("ex2") else 1
        return sign * _binade(int(name.rsplit(" ", 1)[1]))
    return _binade(0)


def nearest_codes(name: str) -> np.ndarray[Any, Any]:
    """The correctly rounded values (by way of float64) of a table's inputs, as codes."""
    with np.errstate(all="ignore"):
        made = REFERENCES[name.split(" ")[0]](table_inputs(name).astype(np.float64)).astype(np.float32)
    return np.asarray(made.view(np.uint32))


def codes_of_table(packed: Any, name: str) -> np.ndarray[Any, Any]:
    """Codes of a table from its packed differences (bytes, or words where some are large)."""
    off = np.frombuffer(lzma.decompress(packed.tobytes()), np.uint8)
    off = off.view(np.int8 if off.size == table_inputs(name).size else np.int32)
    return np.asarray((nearest_codes(name).astype(np.int64) + off).astype(np.uint32))


def packed(codes: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Differences from the correctly rounded values, compressed."""
    off = codes.astype(np.int64) - nearest_codes(name)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1}]
    return np.frombuffer(
        lzma.compress(off.astype(np.int8 if np.abs(off).max() < 128 else np.int32).tobytes(), filters=filters), np.uint8
    )


def main(argv: list[str] | None = None) -> None:
    """Capture on the GPU present."""
    from tcsim_gpu import device

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("."))
    options.add_argument("--tables", nargs="*", default=TABLES)
    arguments = options.parse_args(argv)
    out = arguments.out
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
    for name, first in (("ex2", 0), ("ex2", 0x80000000), ("rcp", 0), ("rsqrt", 0)):
        counts = cp.zeros(256, cp.uint64)
        many = np.uint32(0x7F800000)
        module.get_function(f"check_{name}")((2048,), (256,), (on_device[name], counts, np.uint32(first), many))
        found = cp.asnumpy(counts)
        about[f"{name} from {first:#x}, {int(many)} values: exceptions by exponent"] = {
            int(e): int(found[e]) for e in np.flatnonzero(found)
        }
    print("checked", flush=True)
    for name in arguments.tables:
        codes = cp.asnumpy(run(name.split(" ")[0], table_inputs(name)))
        off = codes.astype(np.int64) - nearest_codes(name)
        values, times = np.unique(np.clip(off, -200, 200), return_counts=True)
        about[name] = {"sha256": hashlib.sha256(codes.tobytes()).hexdigest(), "differences": dict(zip(values.tolist(), times.tolist(), strict=True))}  # fmt: skip
        arrays[name] = packed(codes, name)
        np.savez(out / "special_functions.npz", **arrays)
        (out / "special_functions.json").write_text(json.dumps(about, indent=1))
        print(name, arrays[name].size, str(about[name])[:300], flush=True)


if __name__ == "__main__":
    main()
