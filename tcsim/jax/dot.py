"""dot_general on a unit: transposed to one batch of GEMMs, k in the order in which its dimensions are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from math import prod
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from tcsim import arguments
from tcsim.fp.codes import encode
from tcsim.fp.formats import FORMATS, format_named
from tcsim.matmul import matmul
from tcsim.schedule import Schedule, Sequential
from tcsim.schemes.by_format import Target

_EXACT = ("HIGHEST", "HIGH")  # precisions that keep float32 products from tf32


@dataclass(frozen=True, eq=False)
class How:
    """What a product is run on."""

    target: Target
    schedule: Schedule
    cast: str | None
    seed: int


def how(target: Any, schedule: Schedule | None = None, cast: str | None = None, seed: int = 0) -> How:
    """A How from the arguments of `emulate`."""
    if schedule is not None and not hasattr(schedule, "plan"):
        raise TypeError(f"schedule must be Sequential(), SplitK(...) or Blocked(...); got {schedule!r}")
    cast = None if cast is None else format_named(cast).name
    return How(Target(target), schedule or Sequential(), cast, arguments.seed(seed))


def dot_general(
    target: Any, *, schedule: Schedule | None = None, cast: str | None = None, seed: int = 0
) -> Callable[..., jax.Array]:
    """A function of jax.lax.dot_general's arguments that multiplies as `target`'s units do: for Flax's ``dot_general=``.

    It differentiates in reverse (its gradients' products are emulated too), and runs under jit and vmap by a callback to the
    host. Where there is a GPU, and CuPy, products run on it. `target`, `schedule`, `cast` and `seed` are those of
    `tcsim.jax.emulate`.
    """
    return partial(emulated_dot, how(target, schedule, cast, seed))


def emulated_dot(
    how: How,
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    **other: Any,
) -> Any:
    """dot_general on `how`. ValueError for dtypes that nothing multiplies; the result's dtype is dot_general's own."""
    lhs, rhs = jax.numpy.asarray(lhs), jax.numpy.asarray(rhs)
    (ck, rk), (cb, rb) = dimension_numbers
    dimensions = ((tuple(ck), tuple(rk)), (tuple(cb), tuple(rb)))
    shape = jax.eval_shape(
        partial(lax.dot_general, dimension_numbers=dimensions, preferred_element_type=preferred_element_type), lhs, rhs
    )
    exact = any(p is not None and str(getattr(p, "name", p)).upper() in _EXACT for p in _pair(precision))
    _unit(how, lhs.dtype.name, rhs.dtype.name, exact)  # said while tracing, not from within a callback
    return _dot(lhs, rhs, (how, dimensions, exact, shape.shape, shape.dtype))


def _pair(precision: Any) -> tuple[Any, ...]:
    return tuple(precision) if isinstance(precision, tuple | list) else (precision,)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _dot(lhs: Any, rhs: Any, spec: Any) -> Any:
    *_, shape, dtype = spec
    if _on_gpu(lhs) and _on_gpu(rhs):
        return _multiplied(spec, lhs, rhs, jax.numpy)
    return jax.pure_callback(partial(_on_host, spec), jax.ShapeDtypeStruct(shape, dtype), lhs, rhs, vmap_method="sequential")


def _on_gpu(x: Any) -> bool:
    """Whether an array with values lies on a GPU that the cuda backend reaches."""
    known = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    return known and _has_gpu() and all(d.platform in ("gpu", "cuda") for d in x.devices())


def _forward(lhs: Any, rhs: Any, spec: Any) -> Any:
    return _dot(lhs, rhs, spec), (lhs, rhs)


def _backward(spec: Any, kept: Any, ct: Any) -> Any:
    how, dimensions, exact, _, dtype = spec
    precision = lax.Precision.HIGHEST if exact else None

    def pull(ct: Any, lhs: Any, rhs: Any) -> Any:
        plain = partial(lax.dot_general, dimension_numbers=dimensions, precision=precision, preferred_element_type=dtype)
        return jax.vjp(plain, lhs, rhs)[1](ct)

    closed = jax.make_jaxpr(pull)(ct, *kept)
    return tuple(evaluate_equations(closed.jaxpr, closed.consts, (ct, *kept), partial(_products, how)))


def _products(how: How, equation: Any, given: list[Any]) -> list[Any]:
    p = equation.params
    if equation.primitive.name != "dot_general":
        return bind(equation, given)
    return [emulated_dot(how, given[0], given[1], p["dimension_numbers"], p["precision"], p["preferred_element_type"])]


def evaluate_equations(jaxpr: Any, consts: Any, args: Any, compute: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """Evaluate a jaxpr, each equation's outputs by `compute(equation, inputs)`."""
    values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(v: Any) -> Any:
        return v.val if isinstance(v, core.Literal) else values[v]

    for equation in jaxpr.eqns:
        out = compute(equation, [read(v) for v in equation.invars])
        values.update(zip(equation.outvars, out, strict=True))
    return [read(v) for v in jaxpr.outvars]


def bind(equation: Any, given: list[Any]) -> list[Any]:
    """An equation's outputs by JAX itself."""
    found = equation.primitive.get_bind_params(equation.params)  # older versions keep functions apart
    functions, parameters = found if isinstance(found, tuple) else ((), found)
    out = equation.primitive.bind(*functions, *given, **parameters)
    return list(out) if equation.primitive.multiple_results else [out]


_dot.defvjp(_forward, _backward)


def _unit(how: How, a: str, b: str, exact: bool) -> Any:
    for name in (a, b):
        if name not in FORMATS or FORMATS[name].integer:
            raise ValueError(
                f"{name} products have no unit here: convert the operands to a floating-point format of tcsim.formats()"
            )
    fa, fb = (how.cast, how.cast) if how.cast else (a, b)
    found = how.target.find(fa, fb, tf32=not exact or how.cast is not None)
    if found is None:
        raise ValueError(how.target.lacks(fa, fb, "give it arrays that are (.astype(jax.numpy.{}))"))
    return found


def _on_host(spec: Any, lhs: Any, rhs: Any) -> Any:
    """A callback's product, on JAX's own GPU where it has one."""
    return _multiplied(spec, np.asarray(lhs), np.asarray(rhs), np, "cuda" if _has_gpu() else "cpu")


@cache
def _has_gpu() -> bool:
    """Whether JAX computes on a GPU that CuPy, of which the cuda backend is made, may reach too."""
    return jax.default_backend() == "gpu" and find_spec("cupy") is not None


def _multiplied(spec: Any, x: Any, y: Any, module: Any, backend: str = "cpu") -> Any:
    """The product of arrays of numpy or of jax.numpy."""
    how, ((ck, rk), (cb, rb)), exact, shape, dtype = spec
    unit = _unit(how, x.dtype.name, y.dtype.name, exact)
    left = [i for i in range(x.ndim) if i not in ck and i not in cb]
    right = [i for i in range(y.ndim) if i not in rk and i not in rb]
    k, batch = prod(x.shape[i] for i in ck), prod(x.shape[i] for i in cb)
    a = x.transpose(*cb, *left, *ck).reshape(batch, -1 if k and batch else prod(x.shape[i] for i in left), k)
    b = y.transpose(*rb, *rk, *right).reshape(batch, k, -1 if k and batch else prod(y.shape[i] for i in right))
    to_tf32 = unit.a_format.name == "tfloat32" and how.cast is None
    rounding = "rz" if to_tf32 else "rne" if how.cast else None  # a tf32 unit reads float32 without its 13 low bits
    acc = matmul(a, b, unit=unit, schedule=how.schedule, seed=how.seed, round=rounding, backend=backend)
    return stored(module.asarray(acc), np.dtype(dtype), module).reshape(shape)


def stored(acc: Any, dtype: Any, module: Any = np) -> Any:
    """Accumulators rounded once, to nearest-even, to the dtype of a result; arrays of numpy or of jax.numpy."""
    if acc.dtype == dtype:
        return acc
    if dtype.name in ("float32", "float64"):
        return acc.astype(dtype)
    fmt = FORMATS[dtype.name]
    codes = encode(acc, fmt, round="rne")
    if fmt.width == 16:
        codes = module.where(module.isnan(acc), codes.dtype.type(0x7FFF), codes)  # the NaN that a GPU's conversion makes
    return codes.view(dtype)
