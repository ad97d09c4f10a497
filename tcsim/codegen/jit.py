"""The one owner of Numba: every option, the cache and its key."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config

from tcsim.codegen import notice
from tcsim.codegen.cache import KeyedCache, forget_unused
from tcsim.codegen.inner import Inner, InnerNoAlias, Whole

notice.install()

COMPILED = ("codegen", "fp", "kernels")  # the folders whose code is compiled in


def _source_hash() -> str:
    """A hash of every source that is compiled in: Numba's own cache does not notice an edit in a called function's file."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:2]}".encode())
    package = Path(__file__).parents[1]
    for path in sorted(p for folder in COMPILED for p in package.joinpath(folder).rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def cache_folder() -> Path:
    """Where compiled kernels lie: the user's cache folder, or a temporary one where that cannot be written."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tcsim"
    folder = base / _source_hash()
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            forget_unused(base)
        os.utime(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"tcsim-{os.getuid() if hasattr(os, 'getuid') else 0}" / _source_hash()
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def module_folder(module: str) -> Path | None:
    """Where the kernels of a module lie: of one that `cache_folder` hashes the same wherever it is installed."""
    if not module.startswith(tuple(f"tcsim.{folder}." for folder in COMPILED)):
        return None
    folder = cache_folder() / module
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def variant(*made_of: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Name a function that a factory makes after what it is made of.

    Numba's symbols hold a function's name, its types, and a number counted up in each process. Functions of one name that
    were compiled in different processes and meet in a third through the cache may so be one symbol, and one runs in place of
    the other: a name for each leaves no such pair. Under it the compiled function is kept as well, so it says all of what it is made of.
    """

    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        suffix = "_" + "_".join(str(part) for part in made_of)
        function.__name__, function.__qualname__ = function.__name__ + suffix, function.__qualname__ + suffix
        function.variant = made_of  # type: ignore[attr-defined]
        return function

    return named


_CACHE_DIR = (
    threading.Lock()
)  # two threads that make a kernel at once would each find the other's folder, and leave it to everybody
_COMMON = {"error_model": "numpy", "boundscheck": False, "no_cfunc_wrapper": True}


def _check_name(function: Callable[..., Any]) -> None:
    if function.__closure__ and not hasattr(function, "variant"):
        raise TypeError(f"{function.__qualname__} holds values of the function that made it: name it with @variant(...)")


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    _check_name(function)
    made = numba.njit(function, pipeline_class=Whole, **_COMMON, **options)
    with _CACHE_DIR:
        previous = config.CACHE_DIR
        config.CACHE_DIR = str(cache_folder())
        try:
            made._cache = KeyedCache(function, module_folder(function.__module__))
        finally:
            config.CACHE_DIR = previous
    return made


def kernel(function: Callable[..., Any]) -> Any:
    """An entry point called from Python: compiled at first call, cached on disk, runs without the GIL."""
    return _compiled(function, nogil=True, _nrt=True)


def kernel_uncounted(function: Callable[..., Any]) -> Any:
    """An entry point that returns no array and gives back those that it makes by `scratch.release`, whatever happens.

    Numba then counts no references, which a driver of many arrays does hundreds of times: half of the code that it emits.
    """
    return _compiled(function, nogil=True, _nrt=False)


# Kernels call the functions below, Python never does, and nothing takes a pointer to one.
_INNER = {**_COMMON, "no_cpython_wrapper": True}


def _inner(function: Callable[..., Any], **options: Any) -> Any:
    _check_name(function)
    return numba.njit(function, **_INNER, **{"pipeline_class": Inner, **options})


def inline(function: Callable[..., Any]) -> Any:
    """A helper called from kernels, inlined by LLVM."""
    return _inner(function, inline="never", forceinline=True, _nrt=True)


def inline_ir(function: Callable[..., Any]) -> Any:
    """A helper that becomes part of its caller before anything is compiled: what it emits is optimised only once."""
    return _inner(function, inline="always")


def routine(function: Callable[..., Any]) -> Any:
    """A larger part of a kernel, compiled once and called: inlining it everywhere only costs compile time.

    Arrays that it makes it gives back by `scratch.release`: Numba would count references to each that it is given, at every call.
    """
    return _inner(function, _nrt=False)


def no_refcount(function: Callable[..., Any]) -> Any:
    """An inlined helper that makes, keeps and returns no arrays: Numba then counts no references, which costs more than a block."""
    return _inner(function, inline="never", forceinline=True, _nrt=False)


def noalias(function: Callable[..., Any]) -> Any:
    """A routine that makes, keeps and returns no arrays, and whose arrays never overlap: LLVM makes vector code of its loops."""
    return _inner(function, _nrt=False, pipeline_class=InnerNoAlias)
