"""dot_general under emulate against tcsim.matmul, bit for bit: forward, gradients, jit, loops, branches."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsim

jax = pytest.importorskip("jax", reason="JAX is not installed")
from jax import lax  # noqa: E402
from jax import numpy as jnp  # noqa: E402

RNG = np.random.default_rng(0)
A = RNG.standard_normal((6, 40)).astype(np.float16)
B = RNG.standard_normal((40, 5)).astype(np.float16)
UNIT = tcsim.unit("v100", "float16")


def same(x: Any, y: Any) -> bool:
    x, y = np.asarray(x), np.asarray(y)
    return x.shape == y.shape and x.dtype == y.dtype and np.array_equal(x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}"))


def half(acc: Any) -> Any:
    return tcsim.encode(acc, "float16", round="rne").view(np.float16)


def test_products() -> None:
    acc = tcsim.matmul(A, B, unit=UNIT)
    x = np.stack([A, 2 * A])
    for f, given, expected in (
        (jnp.matmul, (A, B), half(acc)),
        (lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.float32), (A, B), acc),
        (lambda a, b: jnp.einsum("bik,kj->jib", a, b), (x, B), np.stack([half(acc), half(tcsim.matmul(2 * A, B, unit=UNIT))]).transpose(2, 1, 0)),
        (lambda a, b: jnp.einsum("bik,bkj->bij", a, b), (x, np.stack([B, B])), half(tcsim.matmul(x, np.stack([B, B]), unit=UNIT))),
        (jnp.dot, (A[0], B[:, 0]), half(tcsim.matmul(A[:1], B[:, :1], unit=UNIT))[0, 0]),
    ):  # fmt: skip
        assert same(tcsim.jax.emulate(f, "v100")(*given), expected)
        assert same(jax.jit(tcsim.jax.emulate(f, UNIT))(*given), expected)
    bf = A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)
    expected = tcsim.encode(tcsim.matmul(*bf, unit=tcsim.unit("h200", "bfloat16")), "bfloat16", round="rne").view(
        ml_dtypes.bfloat16
    )
    assert same(tcsim.jax.emulate(jnp.matmul, "h200")(*bf), expected)


def test_several_dimensions_of_k_in_the_order_named() -> None:
    a = RNG.standard_normal((3, 4, 10)).astype(np.float16)
    b = RNG.standard_normal((10, 4, 2)).astype(np.float16)
    got = tcsim.jax.emulate(lambda a, b: lax.dot_general(a, b, (((2, 1), (0, 1)), ((), ()))), UNIT)(a, b)
    assert same(got, half(tcsim.matmul(a.transpose(0, 2, 1).reshape(3, 40), b.reshape(40, 2), unit=UNIT)))


def test_float32_by_precision() -> None:
    a, b = RNG.standard_normal((4, 33)).astype(np.float32), RNG.standard_normal((33, 3)).astype(np.float32)
    tf32 = tcsim.matmul(a, b, unit=tcsim.unit("a100", "tfloat32"), round="rz")
    chain = tcsim.matmul(a, b, unit=tcsim.unit("mi100", "float32"))
    f = tcsim.jax.emulate(jnp.matmul, "a100")
    assert same(f(a, b), tf32)
    assert same(tcsim.jax.emulate(lambda a, b: jnp.matmul(a, b, precision="highest"), "a100")(a, b), chain)
    assert same(tcsim.jax.emulate(jnp.matmul, "v100")(a, b), chain)
    cast = tcsim.matmul(a, b, unit=UNIT, round="rne")
    assert same(tcsim.jax.emulate(jnp.matmul, "v100", cast="float16")(a, b), cast)
    split = tcsim.SplitK(2, 16)
    assert same(
        tcsim.jax.emulate(jnp.matmul, UNIT, cast="float16", schedule=split)(a, b),
        tcsim.matmul(a, b, unit=UNIT, schedule=split, round="rne"),
    )


def test_gradients_both_ways() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.matmul(x, w, preferred_element_type=jnp.float32) * up)

    up = RNG.standard_normal((6, 5)).astype(np.float16).astype(np.float32)
    # the gradient's product meets float16 and float32 operands only after jax has made them of one dtype
    inside = tcsim.jax.emulate(jax.grad(loss, argnums=(0, 1)), "v100", cast="float16")(B, A)
    outside = jax.grad(tcsim.jax.emulate(loss, "v100", cast="float16"), argnums=(0, 1))(B, A)
    jitted = jax.jit(jax.grad(tcsim.jax.emulate(loss, "v100", cast="float16"), argnums=(0, 1)))(B, A)
    of_w = half(tcsim.matmul(A.T, up.astype(np.float16), unit=UNIT))
    of_x = half(tcsim.matmul(up.astype(np.float16), B.T, unit=UNIT))
    for got in (inside, outside, jitted):
        assert same(got[0], of_w)
        assert same(got[1], of_x)


def test_control_flow() -> None:
    w = RNG.standard_normal((3, 5, 5)).astype(np.float16)
    x = RNG.standard_normal((2, 5)).astype(np.float16)
    steps = [x]
    for m in w:
        steps.append(half(tcsim.matmul(steps[-1], m, unit=UNIT)))

    def scan(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, m: (c @ m, c), x, w)

    def loop(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: c @ w[i], x)

    def repeat(x: Any, w: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] @ w[s[0]]), (0, x))[1]

    def branch(x: Any, w: Any) -> Any:
        return lax.cond(x[0, 0] < 100, lambda x: x @ w[0], lambda x: x, x)

    for wrap in (lambda f: f, jax.jit):
        carry, kept = wrap(tcsim.jax.emulate(scan, UNIT))(x, w)
        assert same(carry, steps[3])
        assert same(kept, np.stack(steps[:3]))
        assert same(wrap(tcsim.jax.emulate(loop, UNIT))(x, w), steps[3])
        assert same(wrap(tcsim.jax.emulate(repeat, UNIT))(x, w), steps[3])
        assert same(wrap(tcsim.jax.emulate(branch, UNIT))(x, w), steps[1])
        assert same(tcsim.jax.emulate(wrap(jax.checkpoint(loop)), UNIT)(x, w), steps[3])
    batched = jax.vmap(tcsim.jax.emulate(lambda m: x @ m, UNIT))(w)
    assert same(batched, np.stack([half(tcsim.matmul(x, m, unit=UNIT)) for m in w]))


def test_trees_and_custom_derivatives() -> None:
    def f(p: Any, x: Any, *, scale: Any) -> Any:
        h = jax.nn.relu(x @ p["w"]) * scale
        return {"h": h, "p": jax.nn.softmax(h)}

    got = tcsim.jax.emulate(f, UNIT)({"w": B}, A, scale=jnp.float16(2))
    h = np.maximum(half(tcsim.matmul(A, B, unit=UNIT)), 0) * np.float16(2)
    assert same(got["h"], h)
    assert same(got["p"], jax.nn.softmax(jnp.asarray(h)))


def test_a_dot_general_for_layers() -> None:
    mine = tcsim.jax.dot_general("v100")
    got = mine(jnp.asarray(A), jnp.asarray(B), (((1,), (0,)), ((), ())), precision=None)
    assert same(got, half(tcsim.matmul(A, B, unit=UNIT)))
    jax.jit(jax.grad(lambda w: mine(jnp.asarray(A), w, (((1,), (0,)), ((), ()))).sum()))(jnp.asarray(B))


def test_flax_layers() -> None:
    """Dense layers with `dot_general=` are a plain model under emulate, and the products by hand; gradients too, under jit."""
    nn = pytest.importorskip("flax.linen", reason="Flax is not installed")

    def model(**more: Any) -> Any:
        layers = [nn.Dense(n, dtype=jnp.float16, param_dtype=jnp.float16, use_bias=False, **more) for n in (32, 4)]
        return nn.Sequential([layers[0], nn.relu, layers[1]])

    mine, plain = model(dot_general=tcsim.jax.dot_general("v100")), model()
    x = RNG.standard_normal((8, 200)).astype(np.float16)
    weights = plain.init(jax.random.key(0), x)

    def loss(of: Any, weights: Any) -> Any:
        return (of.apply(weights, x).astype(jnp.float32) ** 2).sum()

    kernels = [np.asarray(weights["params"][f"layers_{i}"]["kernel"]) for i in (0, 2)]
    hidden = np.maximum(half(tcsim.matmul(x, kernels[0], unit=UNIT)), 0)
    y = jax.jit(mine.apply)(weights, x)
    assert same(y, half(tcsim.matmul(hidden, kernels[1], unit=UNIT)))
    assert same(y, tcsim.jax.emulate(plain.apply, "v100")(weights, x))
    one = jax.jit(jax.grad(lambda w: loss(mine, w)))(weights)
    two = tcsim.jax.emulate(jax.grad(lambda w: loss(plain, w)), "v100")(weights)
    assert all(same(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True))


def test_wrong_inputs() -> None:
    with pytest.raises(ValueError, match=r"float32 operands under v100 float16.*cast='float16'"):
        tcsim.jax.emulate(jnp.matmul, UNIT)(A.astype(np.float32), B.astype(np.float32))
    with pytest.raises(ValueError, match="int32 products have no unit"):
        tcsim.jax.emulate(jnp.matmul, "v100")(np.ones((2, 2), np.int32), np.ones((2, 2), np.int32))
    with pytest.raises(ValueError, match="nearest: 'v100'"):
        tcsim.jax.emulate(jnp.matmul, "v10")
    matrix = np.eye(4, dtype=np.float32)
    with pytest.raises(NotImplementedError, match="cholesky"):
        tcsim.jax.emulate(jax.jit(jnp.linalg.cholesky), "v100", strict=True)(matrix)
    with pytest.warns(tcsim.jax.NotEmulated, match="cholesky"):
        tcsim.jax.emulate(jnp.linalg.cholesky, "v100")(matrix)
