"""Data that a study did not measure: one variable at a time scaled, tilted, turned round, or put in the place of another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np

FACTORS = (1e-9, 1e-3, 0.3, 0.9, 1.2, 3.0, 1e3, 1e9)


def attacks(data: Any) -> Iterator[tuple[str, Any]]:
    """Changed copies of a dataset with what was done to each, the coarse ones first."""
    names = [str(n) for n in data.data_vars if np.issubdtype(data[n].dtype, np.number)]
    for n, f in product(names, FACTORS):
        yield f"{n} x {f:g}", data.assign({n: data[n] * f})
    for n, level in product(names, (0.0, 1.0, 7.0)):
        yield f"{n} = {level:g}", data.assign({n: data[n] * 0 + level})
    for n, other in permutations(names, 2):
        if set(data[other].dims) <= set(data[n].dims):
            copied = data[other] + data[n] * 0
            yield f"{n} = {other}", data.assign({n: copied.transpose(*data[n].dims)})
    for n in names:
        for d in data[n].dims:
            values = data[n].transpose(d, ...)
            yield (
                f"{n} turned round along {d}",
                data.assign({n: (d_ := values).copy(data=d_.values[::-1]).transpose(*data[n].dims)}),
            )
            if np.issubdtype(data[d].dtype, np.number) and data[d].size > 1:
                place = (data[d] - data[d].min() + 1.0) / 1.0
                for p in (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0):
                    yield f"{n} x {d}^{p:g}", data.assign({n: (data[n] * place**p).transpose(*data[n].dims)})
    for n in names:
        for d in data[n].dims:
            if d == "seed":
                continue
            for i, j in permutations(range(data[d].size), 2) if data[d].size <= 12 else ():
                changed = data[n].copy(deep=True)
                changed[{d: i}] = data[n].isel({d: j})
                yield f"{n}, {d} {i} = {j}", data.assign({n: changed})
            for i, f in product(range(data[d].size), FACTORS):
                changed = data[n].copy(deep=True)
                changed[{d: i}] = data[n].isel({d: i}) * f
                yield f"{n}, {d} {i} x {f:g}", data.assign({n: changed})
