"""emulate: a function's jaxpr run again, its dot_generals and convolutions on a unit, through jit, loops, branches and checkpoints."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from tcsim.jax.convolution import products
from tcsim.jax.dot import How, bind, evaluate_equations, how
from tcsim.schedule import Schedule

_PRODUCTS = {"dot_general", "conv_general_dilated"}
# Primitives that sum products and are not emulated; solvers and factorisations among them.
_CONTRACTIONS = {
    "ragged_dot", "ragged_dot_general", "scaled_matmul", "dot_product_attention", "cudnn_fmha", "pallas_call",
    "triangular_solve", "cholesky", "lu", "qr", "geqrf", "householder_product", "eigh", "eig", "svd", "schur", "hessenberg", "tridiagonal",
}  # fmt: skip


class NotEmulated(UserWarning):
    """A contraction ran on JAX's own arithmetic inside tcsim.jax.emulate."""


def emulate(
    f: Callable[..., Any],
    target: Any,
    *,
    schedule: Schedule | None = None,
    cast: str | None = None,
    seed: int = 0,
    strict: bool = False,
) -> Callable[..., Any]:
    """f with every dot_general and convolution computed as `target`'s units do, bit for bit; the rest is JAX's own.

    ``emulate(jax.grad(loss), "v100")`` emulates the gradient's products; ``jax.grad(emulate(loss, "v100"))`` does too, in
    reverse mode. Either may be jitted: products are callbacks to the host then. Where
    there is a GPU, and CuPy, products run on it.

    target
        A GPU's name, which chooses by dtype (float16, bfloat16 and fp8 on their units; float32 as tf32 where the GPU has it,
        as JAX's default precision lets XLA do, and as a chain of fused multiply-adds for precision "high" and "highest";
        float64 alike), a Unit, or a list of Units.
    schedule, seed
        As `tcsim.matmul` takes them.
    cast
        A format to which operands are rounded, to nearest-even, before each product; results keep their dtype.
    strict
        NotImplementedError for a contraction that is not emulated (factorisations, ragged products), where otherwise one
        warning names it.

    f is traced as jax.jit traces it, so its arguments are arrays or trees of them.
    """
    chosen = how(target, schedule, cast, seed)

    @functools.wraps(f)
    def run_emulated(*args: Any, **kwargs: Any) -> Any:
        closed, shape = jax.make_jaxpr(f, return_shape=True)(*args, **kwargs)
        flat = jax.tree_util.tree_leaves((args, kwargs))
        out = evaluate_jaxpr(chosen, closed.jaxpr, closed.consts, *flat, strict=strict)
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shape), out)

    return run_emulated


def evaluate_jaxpr(how: How, jaxpr: Any, consts: Any, *args: Any, strict: bool = False) -> list[Any]:
    """Evaluate a jaxpr with its products on `how`."""
    return evaluate_equations(jaxpr, consts, args, functools.partial(_equation, how, strict))


def _equation(how: How, strict: bool, equation: Any, given: list[Any]) -> list[Any]:
    name, p = equation.primitive.name, equation.params
    inner = functools.partial(_closed, how, strict=strict)
    found = products(how, equation, given)
    if found is not None:
        return found
    if _holds_products(equation):
        if name == "scan":
            return _scan(inner, given, equation)
        if name == "while":
            return _while(inner, given, p)
        if name == "cond":
            return list(lax.switch(given[0], [functools.partial(inner, b) for b in p["branches"]], *given[1:]))
        part = p.get("jaxpr", p.get("call_jaxpr", p.get("fun_jaxpr")))
        if name in ("remat2", "remat", "checkpoint"):
            kept = jax.checkpoint(
                functools.partial(inner, part), policy=p.get("policy"), prevent_cse=p.get("prevent_cse", True)
            )
            return list(kept(*given))
        if part is not None and name not in _CONTRACTIONS and len(_invars(part)) == len(given):
            return list(inner(part, *given))
    if name in _CONTRACTIONS or _holds_products(equation):
        _refuse(name, strict)
    return bind(equation, given)


def _closed(how: How, part: Any, *args: Any, strict: bool) -> list[Any]:
    """A jaxpr within an equation, closed over constants or not."""
    jaxpr, consts = (part.jaxpr, part.consts) if hasattr(part, "consts") else (part, ())
    return evaluate_jaxpr(how, jaxpr, consts, *args, strict=strict)


def _invars(part: Any) -> Any:
    return (part.jaxpr if hasattr(part, "consts") else part).invars


def _scan(inner: Any, given: list[Any], equation: Any) -> list[Any]:
    """A scan. What has one dimension more outside than in the body is walked along it: versions of JAX say in different ways how many are not."""
    p, part = equation.params, getattr(equation.params["jaxpr"], "jaxpr", equation.params["jaxpr"])
    walked = sum(np.ndim(x) > len(v.aval.shape) for x, v in zip(given, part.invars, strict=True))
    count = sum(len(v.aval.shape) == len(w.aval.shape) for v, w in zip(equation.outvars, part.outvars, strict=True))
    fixed = len(given) - walked - count
    of_all, carried, rest = given[:fixed], given[fixed : fixed + count], given[fixed + count :]

    def body(carry: Any, x: Any) -> Any:
        out = inner(p["jaxpr"], *of_all, *carry, *x)
        return out[:count], out[count:]

    carry, out = lax.scan(body, list(carried), list(rest), length=p["length"], reverse=p["reverse"], unroll=p["unroll"])
    return [*carry, *out]


def _while(inner: Any, given: list[Any], p: Any) -> list[Any]:
    a, b = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    of_cond, of_body, start = given[:a], given[a:b], given[b:]
    return list(
        lax.while_loop(
            lambda carry: inner(p["cond_jaxpr"], *of_cond, *carry)[0],
            lambda carry: inner(p["body_jaxpr"], *of_body, *carry),
            start,
        )
    )


def _holds_products(equation: Any) -> bool:
    """Whether a contraction stands in a jaxpr within an equation's parameters."""
    return any(
        e.primitive.name in _PRODUCTS or e.primitive.name in _CONTRACTIONS or _holds_products(e)
        for part in _jaxprs(equation.params.values())
        for e in part.eqns
    )


def _jaxprs(values: Any) -> Any:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _jaxprs(value)
        elif hasattr(value, "jaxpr"):
            yield value.jaxpr
        elif hasattr(value, "eqns"):
            yield value


def _refuse(name: str, strict: bool) -> None:
    text = f"{name} is a contraction that tcsim.jax.emulate does not emulate: write it as dot_general (jnp.matmul, jnp.einsum) or a convolution"
    if strict:
        raise NotImplementedError(text)
    warnings.warn(f"{text}. It runs on JAX's own arithmetic here (strict=True raises)", NotEmulated, stacklevel=2)
