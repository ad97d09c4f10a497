"""Arrays in CuPy's place that numpy's functions take and that numpy does not read: what runs with them copies nothing to the host.

Their kernels are those of the GPU, run on the host.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.mixins import NDArrayOperatorsMixin
from tcsim_gpu import at_once, conversion, device, host, proofs, values

from tcsim.kernels import dispatch

_READ = ("dtype", "shape", "ndim", "size", "itemsize", "strides", "flags")
_METHODS = (
    "astype", "view", "reshape", "any", "all", "sum", "max", "min", "copy", "swapaxes", "transpose", "clip",
)  # fmt: skip


class _Device(nullcontext[None]):
    """The one device, which is present."""

    id = 0


HERE = _Device()


class Elsewhere(NDArrayOperatorsMixin):
    """An array that lies elsewhere."""

    __module__ = "cupy"

    def __init__(self, here: Any) -> None:
        self.here = np.asarray(here)

    def __getattr__(self, name: str) -> Any:
        if name in _READ:
            return getattr(self.here, name)
        if name in _METHODS:
            return lambda *args, **kwargs: wrapped(getattr(self.here, name)(*map(unwrapped, args), **kwargs))
        raise AttributeError(name)

    @property
    def T(self) -> Elsewhere:
        return Elsewhere(self.here.T)

    @property
    def device(self) -> Any:
        return HERE

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.here.ctypes.data)

    def get(self) -> Any:
        raise AssertionError("copied to the host")

    def tolist(self) -> Any:
        return self.here.tolist()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("implicit conversion to a numpy array")

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return wrapped(getattr(ufunc, method)(*map(strictly, args), **{k: strictly(v) for k, v in kwargs.items()}))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.asarray:  # with like=, which brings an array of numpy's here
            return Elsewhere(unwrapped(args[0]))
        return wrapped(function(*map(strictly, args), **{k: strictly(v) for k, v in kwargs.items()}))

    def __getitem__(self, at: Any) -> Any:
        return wrapped(self.here[unwrapped(at)])

    def __setitem__(self, at: Any, value: Any) -> None:
        self.here[unwrapped(at)] = strictly(value)

    def __len__(self) -> int:
        return len(self.here)

    def __bool__(self) -> bool:
        return bool(self.here)

    def __int__(self) -> int:
        return int(self.here)

    def __float__(self) -> float:
        return float(self.here)


def wrapped(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(wrapped, x))
    return Elsewhere(x) if isinstance(x, np.ndarray | np.generic) else x


def unwrapped(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return type(x)(map(unwrapped, x))
    return x.here if isinstance(x, Elsewhere) else x


def strictly(x: Any) -> Any:
    """The array within; TypeError for one of numpy beside it, as CuPy has it."""
    if isinstance(x, np.ndarray) and x.ndim:
        raise TypeError("Unsupported type numpy.ndarray")
    return type(x)(map(strictly, x)) if isinstance(x, tuple | list) else unwrapped(x)


class _LowBits(conversion.LowBits):
    def looked_for(self, codes: Any, *formats: Any) -> bool:
        return super().looked_for(unwrapped(codes), *formats)


def in_place_of_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make these arrays CuPy's, and the host the GPU on which they lie."""
    cupy = ModuleType("cupy")
    cupy.ndarray = Elsewhere  # type: ignore[attr-defined]
    cupy.asarray = lambda x: x if isinstance(x, Elsewhere) else Elsewhere(x)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(device, "cupy", lambda: cupy)
    machine, work, held = host.Host(), values.worked_values, conversion.codes_if_held

    def of_values(codes: Any, *args: Any, rounding: Any = None, **named: Any) -> Any:
        given = rounding and rounding._replace(random=unwrapped(rounding.random))
        return wrapped(work(unwrapped(codes), *args, rounding=given, **named, machine=machine))

    def of_problem(problem: Any) -> Any:
        here = {f: unwrapped(getattr(problem, f)) for f in ("c", "scale_a", "scale_b")}
        sides = {f: replace(side, codes=unwrapped(side.codes)) for f, side in (("a", problem.a), ("b", problem.b))}
        found = dispatch.multiply_cpu(replace(problem, **here, **sides))
        return wrapped(found) if isinstance(problem.a.codes, Elsewhere) else found

    monkeypatch.setattr(values, "worked_values", of_values)
    monkeypatch.setattr(conversion, "codes_if_held", lambda codes, *args: wrapped(held(unwrapped(codes), *args, machine)))
    monkeypatch.setattr(conversion, "LowBits", lambda *_: _LowBits(machine))
    monkeypatch.setattr(proofs, "multiply_cuda", of_problem)
    monkeypatch.setattr(at_once, "chain_for", lambda *_: None)  # the host has no tensor cores
