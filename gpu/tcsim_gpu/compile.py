"""Compiling CUDA source for a GPU that need not be here: nvcc or NVRTC, whichever is found."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

OPTIONS = ("-std=c++17",)


class CompileError(RuntimeError):
    """The compiler refused a kernel; the message is its log."""


@cache
def nvcc() -> str | None:
    """Path of nvcc, None where there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    candidates = [shutil.which("nvcc"), *([str(Path(home) / "bin" / "nvcc")] if home else []), "/usr/local/cuda/bin/nvcc"]
    return next((c for c in candidates if c and Path(c).exists()), None)


@cache
def nvrtc() -> ctypes.CDLL | None:
    """The NVRTC library of an nvidia-cuda-nvrtc wheel or of the loader's path, None where there is none."""
    names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    spec = find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    found = [str(p) for root in roots for p in sorted(root.glob("*/lib/libnvrtc.so.*"))]
    for candidate in [*found, *names]:
        try:
            for builtins in sorted(Path(candidate).parent.glob("libnvrtc-builtins.so.*")) if "/" in candidate else []:
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    return None


def compiler_available() -> bool:
    return nvcc() is not None or nvrtc() is not None


def architectures() -> list[str]:
    """The targets, such as "sm_90a", that the compiler found here can build for; empty where there is none."""
    command = nvcc()
    if command is not None:
        listed = subprocess.run([command, "--list-gpu-code"], capture_output=True, text=True, check=True).stdout.split()
        families = {f"{a}a" for a in listed if a in ("sm_90", "sm_100", "sm_120")}
        return sorted({*listed, *families})
    library = nvrtc()
    if library is None:
        return []
    count = ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    values = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(values)
    return sorted({f"sm_{v}" for v in values} | {f"sm_{v}a" for v in values if v in (90, 100, 120)})


def cubin(source: str, architecture: str) -> bytes:
    """Machine code of `source` for `architecture` ("sm_80", "sm_90a", …).

    CompileError carries the compiler's log; RuntimeError says that no compiler was found and how to get one.
    """
    if nvcc() is not None:
        return _with_nvcc(source, architecture)
    library = nvrtc()
    if library is None:
        raise RuntimeError("no CUDA compiler: install the CUDA toolkit (nvcc) or pip install nvidia-cuda-nvrtc")
    return _with_nvrtc(library, source, architecture)


def _with_nvcc(source: str, architecture: str) -> bytes:
    command = nvcc()
    assert command is not None
    virtual = architecture.replace("sm_", "compute_")
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "kernel.cu", Path(folder) / "kernel.cubin"
        path.write_text(source)
        target = f"-gencode=arch={virtual},code={architecture}"
        done = subprocess.run([command, *OPTIONS, "-cubin", target, "-o", str(out), str(path)], capture_output=True, text=True)
        if done.returncode:
            raise CompileError(done.stdout + done.stderr)
        return out.read_bytes()


def _with_nvrtc(library: ctypes.CDLL, source: str, architecture: str) -> bytes:
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        options = [o.encode() for o in (*OPTIONS, "--device-int128", f"-arch={architecture}")]
        status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if status:
            raise CompileError(_text(library, program, "ProgramLog"))
        size = ctypes.c_size_t()
        library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        library.nvrtcGetCUBIN(program, code)
        return code.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode(errors="replace")
