"""Launching kernels: structs by value, arrays on the device, modules compiled once."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from tcsim_gpu import device


class Arguments(ctypes.Structure):
    """A C struct of 8-byte fields and then 4-byte ones, set by name; an array gives its device pointer."""

    def set(self, **fields: Any) -> Any:
        for key, value in fields.items():
            pointer = getattr(getattr(value, "data", None), "ptr", value)
            setattr(self, key, 0 if pointer is None else pointer)
        return self

    def argument(self) -> Any:
        """The struct as a numpy scalar, which CuPy passes by value."""
        return np.frombuffer(bytes(self), dtype=np.dtype((np.void, ctypes.sizeof(self))))[0]


def struct(name: str, longs: str, ints: str = "") -> Any:
    """A subclass of Arguments with the named 64-bit fields, then the named 32-bit ones."""
    fields: list[tuple[str, Any]] = [(f, ctypes.c_uint64 if f == "seed" else ctypes.c_int64) for f in longs.split()]
    return type(name, (Arguments,), {"_fields_": [*fields, *((f, ctypes.c_uint32) for f in ints.split())]})


def on_device(x: Any) -> Any:
    """An array on the current GPU: numpy is copied there, a CuPy array is taken as it is, None stays None."""
    if x is None:
        return None
    cp = device.cupy()
    return x if isinstance(x, cp.ndarray) else cp.asarray(x)


def kernel(source: str, name: str, options: tuple[str, ...] = ()) -> Any:
    """The kernel `name` of `source`, compiled for the GPU present by NVRTC; CuPy keeps the machine code on disk."""
    return _kernel(source, name, options, int(device.cupy().cuda.Device().id))


@cache
def _kernel(source: str, name: str, options: tuple[str, ...], gpu: int) -> Any:
    module = device.cupy().RawModule(code=source, options=("-std=c++17", "--device-int128", *options))
    return module.get_function(name)
