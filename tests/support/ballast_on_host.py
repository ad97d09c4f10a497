"""The kernels of ballast on the host, a warp's lanes side by side."""

import numpy as np
from tcsim_gpu import ballast, host

import tcsim
from tcsim.problem import Problem

CORES = {f: tcsim.unit("h200", f, instruction="mma") for f in ("float16", "bfloat16")}


def on_host(
    problem: Problem, limit: int = 1 << 20, shape: ballast.WarpShape = ballast.ALIKE
) -> tuple[np.ndarray, np.ndarray] | None:
    """The kernels' result (m, n), and which outputs they left over; None where they gave up."""
    machine, unit = host.Host(for_any=False), problem.unit
    by, order = ballast.shift(unit, CORES[str(unit.a)]), ballast.ballast_places(unit, problem.shape[3])
    assert by is not None
    codes = (problem.a.codes[0], problem.b.codes[0].T)
    moved = [np.ascontiguousarray(np.where(order < 0, 0, x[:, order]).astype(np.uint16)) for x in codes]
    (a, of_a), (b, of_b) = (ballast.survey_operands(unit, by, x, machine) for x in moved)
    _, m, n, k = problem.shape
    out, left = np.zeros((m, n), np.uint32), (np.zeros(2, np.uint64), np.zeros(m * n, np.int64))
    c = None if problem.c is None else np.ascontiguousarray(problem.c[0])
    ballast.multiply(unit, by, a, b, c, out, left, 0, k, ballast.products_sign(of_a, of_b), limit, machine, shape)
    if left[0][1]:
        return None
    without = np.zeros(m * n, bool)
    without[left[1][: int(left[0][0])]] = True
    return out, without.reshape(m, n)
