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
            pointer = (
                value.ctypes.data if isinstance(value, np.ndarray) else getattr(getattr(value, "data", None), "ptr", value)
            )
            setattr(self, key, 0 if pointer is None else pointer)
        return self

    def argument(self) -> Any:
        """The struct as a numpy scalar, which CuPy passes by value."""
        return np.frombuffer(bytes(self), dtype=np.dtype((np.void, ctypes.sizeof(self))))[0]


def argument_struct(name: str, longs: str, ints: str = "") -> Any:
    """A subclass of Arguments with the named 64-bit fields, then the named 32-bit ones."""
    fields: list[tuple[str, Any]] = [(f, ctypes.c_uint64 if f == "seed" else ctypes.c_int64) for f in longs.split()]
    return type(name, (Arguments,), {"_fields_": [*fields, *((f, ctypes.c_uint32) for f in ints.split())]})


def on_device(x: Any) -> Any:
    """An array on the current GPU: numpy is copied there, a CuPy array is taken as it is, None stays None."""
    if x is None:
        return None
    cp = device.cupy()
    return x if isinstance(x, cp.ndarray) else cp.asarray(x)


def numbers_after(event: Any, array: Any) -> Any:
    """The numbers of an array on the device as they are once an event has passed; what was queued after it is not waited for."""
    beside = _stream_beside(int(device.cupy().cuda.Device().id))
    beside.wait_event(event)
    found = array.get(stream=beside)
    beside.synchronize()
    return found


@cache
def _stream_beside(gpu: int) -> Any:
    """A stream of GPU number `gpu`, the present one, for copies beside what is computed."""
    return device.cupy().cuda.Stream(non_blocking=True)


def compiled_kernel(source: str, name: str, options: tuple[str, ...] = ()) -> Any:
    """The kernel `name` of `source`, compiled for the GPU present by NVRTC; CuPy keeps the machine code on disk."""
    return _kernel(source, name, options, int(device.cupy().cuda.Device().id))


@cache
def _kernel(source: str, name: str, options: tuple[str, ...], gpu: int) -> Any:
    module = device.cupy().RawModule(code=source, options=("-std=c++17", "--device-int128", *options))
    return module.get_function(name)


@cache
def module(source: str, gpu: int) -> Any:
    """`source` compiled for the GPU present, with its kernels and its record."""
    return device.cupy().RawModule(code=source, options=("-std=c++17", "--device-int128"))


@cache
def _shared_bytes(gpu: int) -> int:
    return int(device.cupy().cuda.runtime.getDeviceProperties(gpu)["sharedMemPerBlockOptin"])


class PresentGpu:
    """The GPU present, as the emulator uses it.

    `for_any`: run the kernels that read a unit's numbers from a record, which are compiled once for all units and slower.
    """

    chains = True
    tile: Any = None  # of the double-precision kernel; chosen for the problem unless set
    group_tile: Any = None  # and of the one of exact groups

    def __init__(self, for_any: bool = False) -> None:
        self.for_any = for_any

    @property
    def xp(self) -> Any:
        return device.cupy()

    def shared_bytes(self) -> int:
        """Shared memory that a thread block may have."""
        return _shared_bytes(self.here())

    def here(self) -> int:
        """The current device's number."""
        return int(self.xp.cuda.Device().id)

    def settle(self) -> None:
        """Wait for what is queued."""
        self.xp.cuda.get_current_stream().synchronize()

    def mark(self) -> Any:
        """What passes once all that is queued so far is done."""
        event = self.xp.cuda.Event(disable_timing=True)
        event.record()
        return event

    def numbers_after(self, mark: Any, array: Any) -> Any:
        """`numbers_after`."""
        return numbers_after(mark, array)

    def launch(
        self,
        source: str,
        name: str,
        grid: tuple[int, ...],
        threads: int,
        argument: Arguments,
        record: Any = None,
        shared: int = 0,
    ) -> None:
        """Run a kernel over `grid` blocks of `threads`, after its record, if it reads one."""
        if record is None:
            function = compiled_kernel(source, name)
        else:
            built = module(source, self.here())
            built.get_global("record_words").copy_from_host_async(
                record.ctypes.data, record.nbytes, self.xp.cuda.get_current_stream()
            )
            function = built.get_function(name)
        if shared:
            function.max_dynamic_shared_size_bytes = shared
        function(grid, (threads,), (argument.argument(),), shared_mem=shared)


GPU = PresentGpu()
