"""What multiplies inside a scheme: products asked for together are those asked for one by one, and are counted alike."""

from __future__ import annotations

import numpy as np
import pytest
from support.fresh import seeds

import tcsim
from tcsim.schedule import Blocked
from tcsim.schemes import multiplier as module
from tcsim.schemes.multiplier import Multiplier, double, exact

SEEDS = seeds(20261123)
SOURCES = {
    "double": double,
    "exact": exact,
    "a callable": lambda a, b: a @ b,
    "int8": tcsim.unit("a100", "int8"),
    "fp16": tcsim.unit("v100", "float16"),
    "stochastic": tcsim.unit("h200", "float16").replace(rounding="sr"),
}


@pytest.mark.parametrize("at_once", [0, 1 << 20], ids=["large", "small"])
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize("name", SOURCES)
def test_each_of_many_is_as_one_by_one(name: str, seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", at_once)
    rng = np.random.default_rng([seed, list(SOURCES).index(name)])
    m, n, k, count = (int(x) for x in rng.integers((1, 1, 1, 0), (5, 5, 40, 7)))
    dtype = np.int8 if name == "int8" else np.float16 if "c" in name or "fp" in name else np.float64
    pairs = [(rng.integers(-9, 9, (m, k)).astype(dtype), rng.integers(-9, 9, (k, n)).astype(dtype)) for _ in range(count)]
    schedule = None if name == "int8" else Blocked(16, sum="float32")
    together, alone = (Multiplier(SOURCES[name], schedule=schedule, seed=seed % 1000) for _ in range(2))
    made, expected = list(together.each(pairs)), [alone(a, b) for a, b in pairs]
    assert len(made) == count
    assert all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(made, expected, strict=True))
    assert (together.calls, together.gemms, together.macs) == (alone.calls, alone.gemms, alone.macs)
