"""The emulator's kernels run on the host: the same source text, compiled by a C++ compiler, one thread after the other.

For tests where there is no GPU. `Host()` stands in for `launch.PresentGpu()`: ``multiply_emulated_on_device(problem, machine=Host())``.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tcsim_gpu.aligned import BlockTile
from tcsim_gpu.launch import Arguments, PresentGpu
from tcsim_gpu.source import kernel_text

HOST_TILE = BlockTile(bm=4, bn=8, tm=4, tn=8)  # one thread, for nobody else would fill its shared memory
SHARED_BYTES = 1 << 20
HOST_GROUP_TILE = BlockTile(bm=4, bn=4, tm=4, tn=4)
_ARGUMENTS = {
    "aligned": "Job", "pack": "Packing", "general": "Task", "grouped": "Grouped", "listed": "Grouped",
    "pack_groups": "PackGroups", "convert": "Conversion", "values": "ValuesJob", "beneath": "Beneath", "survey": "Survey", "ballast_gemm": "Ballast",
}  # fmt: skip
_TILED = ("aligned", "grouped", "listed", "survey", "ballast_gemm")
_SIDE_BY_SIDE = ("survey", "ballast_gemm")


def compiler() -> str | None:
    """A C++ compiler of this machine, None where there is none."""
    return shutil.which("g++") or shutil.which("clang++")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tcsim-host-")


@cache
def host_library(source: str, name: str) -> ctypes.CDLL:
    """A kernel's source as a library with `launch(argument, grid, threads)` and, where it reads a record, `use_record`."""
    command = compiler()
    if command is None:
        raise RuntimeError("no C++ compiler here (g++ or clang++)")
    text = source
    if name != "general":
        shared = f"alignas(128) unsigned char shared[{SHARED_BYTES}];\n" if name in _TILED else ""
        warps, run = (kernel_text("on_host_warps.cuh"), "run_blocks") if name in _SIDE_BY_SIDE else ("", "run_grid")
        head = "".join(itertools.takewhile(lambda line: line.startswith("#define"), source.splitlines(True)))
        text = head + kernel_text("on_host.cuh") + warps + shared + source
        text += (
            f'\nextern "C" void launch(const {_ARGUMENTS[name]} *argument, const unsigned *grid, unsigned threads) {{'
            f" {run}({name}, *argument, grid, threads); }}\n"
        )
    stem = Path(_folder().name) / f"{name}{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    stem.with_suffix(".cpp").write_text(text)
    built = stem.with_suffix(".so")
    options = ("-std=c++17", "-O1", "-w", "-frounding-math", "-ffp-contract=off", "-shared", "-fPIC")
    subprocess.run([command, *options, "-o", str(built), str(stem.with_suffix(".cpp"))], check=True)
    return ctypes.CDLL(str(built))


class Host(PresentGpu):
    """The host as a machine for the emulator. Chains, whose threads share their work, go to the other kernels."""

    chains = False
    tile = HOST_TILE
    group_tile = HOST_GROUP_TILE

    def __init__(self, for_any: bool = True) -> None:
        super().__init__(for_any)

    @property
    def xp(self) -> Any:
        return np

    def shared_bytes(self) -> int:
        return SHARED_BYTES

    def here(self) -> int:
        return 0

    def settle(self) -> None:
        """Nothing is queued."""

    def mark(self) -> Any:
        return None

    def numbers_after(self, mark: Any, array: Any) -> Any:
        return array

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
        built = host_library(source, name)
        if record is not None:
            built.use_record(ctypes.c_void_p(record.ctypes.data), len(record))
        if name == "general":
            built.general(ctypes.byref(argument))
            return
        sizes = (ctypes.c_uint * 3)(*grid, *(1,) * (3 - len(grid)))
        built.launch(ctypes.byref(argument), sizes, threads)
