"""conv_general_dilated on a unit, as the GEMM that it is.

With lhs (n, c, …) and rhs (k, c, r, s) in whatever layout: y[n,p,q,k] = Σ x·w over (r, s, c), c fastest. Padding and the gaps of a
dilated lhs take part as zeros, groups are a batch. JAX writes gradients as convolutions too, and each is walked as it stands there: the
input's over (r, s, k), the weights' over (p, q, n).
"""

from __future__ import annotations

from functools import partial
from itertools import product
from math import prod
from typing import Any

import jax
from jax import lax

from tcsim.jax.dot import How, bind, emulated_dot, evaluate_equations

_FIELDS = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers", "feature_group_count",
           "batch_group_count", "precision", "preferred_element_type")  # fmt: skip


def emulated_convolution(how: How, lhs: Any, rhs: Any, parameters: Any) -> Any:
    """conv_general_dilated with its primitive's parameters, on `how`; differentiable in reverse."""
    return _conv(lhs, rhs, (how, tuple((name, _fixed(parameters[name])) for name in _FIELDS)))


def products(how: How, equation: Any, given: list[Any]) -> list[Any] | None:
    """The outputs of an equation that is a product; None for any other."""
    p = equation.params
    if equation.primitive.name == "dot_general":
        return [emulated_dot(how, given[0], given[1], p["dimension_numbers"], p["precision"], p["preferred_element_type"])]
    if equation.primitive.name == "conv_general_dilated":
        return [emulated_convolution(how, given[0], given[1], p)]
    return None


def _fixed(value: Any) -> Any:
    return tuple(map(_fixed, value)) if isinstance(value, list | tuple) and not hasattr(value, "_fields") else value


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _conv(lhs: Any, rhs: Any, spec: Any) -> Any:
    how, parameters = spec
    p = dict(parameters)
    numbers = p["dimension_numbers"]
    shape = jax.eval_shape(partial(lax.conv_general_dilated, **p), lhs, rhs)
    x, w = lhs.transpose(numbers.lhs_spec), rhs.transpose(numbers.rhs_spec)  # (n, c, …), (k, c / groups, …)
    edges = [(low, high, d - 1) for (low, high), d in zip(p["padding"], p["lhs_dilation"], strict=True)]
    x = lax.pad(x, jax.numpy.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *edges])
    sizes = tuple(shape.shape[i] for i in numbers.out_spec[2:])
    rows = _windows(x, sizes, w.shape[2:], p["window_strides"], p["rhs_dilation"])  # (taps, n, c, …)
    groups, batches = p["feature_group_count"], p["batch_group_count"]
    split = groups * batches  # one of them is 1
    n, c = x.shape[0] // batches, x.shape[1] // groups
    a = rows.reshape(rows.shape[0], batches, n, groups, c, prod(sizes)).transpose(1, 3, 2, 5, 0, 4)
    a = a.reshape(split, n * prod(sizes), -1)  # (group, n·p·q, r·s·c)
    b = w.reshape(split, w.shape[0] // split, c, -1).transpose(0, 3, 2, 1).reshape(split, -1, w.shape[0] // split)
    y = emulated_dot(how, a, b, (((2,), (1,)), ((0,), (0,))), p["precision"], shape.dtype)
    y = y.reshape(split, n, *sizes, -1)
    y = jax.numpy.moveaxis(jax.numpy.moveaxis(y, 0, -2).reshape(n, *sizes, -1), -1, 1)  # (n, k, …)
    return y.transpose(tuple(numbers.out_spec.index(i) for i in range(len(numbers.out_spec))))


def _windows(x: Any, sizes: tuple[int, ...], kernel: tuple[int, ...], strides: Any, dilation: Any) -> Any:
    """Every tap's places of the padded input: (taps, n, c, …)."""
    taps = []
    for tap in product(*map(range, kernel)):
        start = [0, 0, *(t * d for t, d in zip(tap, dilation, strict=True))]
        limit = [*x.shape[:2], *(f + (size - 1) * s + 1 for f, size, s in zip(start[2:], sizes, strides, strict=True))]
        taps.append(lax.slice(x, start, limit, (1, 1, *strides)))
    return jax.numpy.stack(taps)


def _forward(lhs: Any, rhs: Any, spec: Any) -> Any:
    return _conv(lhs, rhs, spec), (lhs, rhs)


def _backward(spec: Any, kept: Any, ct: Any) -> Any:
    how, parameters = spec

    def pull(ct: Any, lhs: Any, rhs: Any) -> Any:
        return jax.vjp(partial(lax.conv_general_dilated, **dict(parameters)), lhs, rhs)[1](ct)

    def compute(equation: Any, given: list[Any]) -> list[Any]:
        found = products(how, equation, given)
        return bind(equation, given) if found is None else found

    closed = jax.make_jaxpr(pull)(ct, *kept)
    return tuple(evaluate_equations(closed.jaxpr, closed.consts, (ct, *kept), compute))


_conv.defvjp(_forward, _backward)
