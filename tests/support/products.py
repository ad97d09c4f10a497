"""Products in numpy, to build schemes around: float32, a float32 chain of fused multiply-adds, INT8 with an INT32 accumulator."""

import numpy as np


def single(a, b, c=None):
    """A float32 product, exact on slices; any order of summation will do."""
    return a.astype(np.float32) @ b.astype(np.float32)


def chain(a, b, c=None):
    """A float32 chain of fused multiply-adds in ascending k, on words whose products are exact in float64."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32) if c is None else c.astype(np.float32)
    for h in range(a.shape[1]):
        total = (total.astype(np.float64) + np.outer(a[:, h].astype(np.float64), b[h].astype(np.float64))).astype(np.float32)
    return total


def int8(a, b, c=None):
    """An INT8 product with an INT32 accumulator that must not overflow."""
    assert a.dtype == b.dtype == np.int8
    total = a.astype(np.float64) @ b.astype(np.float64) + (0.0 if c is None else c)
    assert np.abs(total).max(initial=0) < 2.0**31
    return total.astype(np.int32)


def wrapping(a, b, c=None):
    """An INT8 product whose INT32 accumulator wraps."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(np.int32)
