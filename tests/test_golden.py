"""Golden vectors captured on hardware, replayed by the CPU backend whole and by the definition in samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tcsim_gpu.table import instructions_of
from tcsim_gpu.unit_of_instruction import computed_by, named

from tcsim import reference
from tcsim.fp.formats import format_named
from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

FILES = sorted((Path(__file__).parent / "golden").glob("*.npz"))
SAMPLE = 24


def metadata(path: Path) -> dict[str, Any]:
    with np.load(path) as stored:
        return dict(json.loads(str(stored["meta"])))


CASES = [(path, name) for path in FILES for name in metadata(path)["instructions"]]


def unit_behind(gpu: str, name: str) -> Unit:
    row = named(name)
    return next(computed_by(row, u) for u in UNITS if u.gpu == gpu and row in instructions_of(u))


@pytest.mark.parametrize(("path", "name"), CASES, ids=[f"{p.stem}-{n}" for p, n in CASES])
def test_hardware_is_reproduced(path: Path, name: str) -> None:
    gpu = metadata(path)["table_gpu"]
    unit, row = unit_behind(gpu, name), named(name)
    rng = np.random.default_rng(0)
    with np.load(path) as stored:
        distributions = sorted({key.split("/")[1] for key in stored.files if key.startswith(f"{name}/")})
        assert len(distributions) >= 9 or distributions in (["nan"], ["subnormal-factors", "zero-factors"])
        for distribution in distributions:
            a, b, c, d = (stored[f"{name}/{distribution}/{x}"] for x in "abcd")
            assert d.size >= 2000
            full = np.ascontiguousarray(np.broadcast_to(c, d.shape))[None]
            formats = format_named(row.a), format_named(row.b)
            problem = Problem(
                unit, Sequential().plan(a.shape[1]), Operand(a[None], formats[0]), Operand(b[None], formats[1]), full
            )
            np.testing.assert_array_equal(cpu.multiply_cpu(problem)[0], d, err_msg=distribution)
            i, j = rng.integers(0, d.shape[0], 2), rng.integers(0, d.shape[1], SAMPLE // 2)
            small = Problem(
                unit,
                problem.plan,
                Operand(a[None, i], formats[0]),
                Operand(b[None][:, :, j], formats[1]),
                full[:, i][:, :, j],
            )
            np.testing.assert_array_equal(reference.multiply_reference(small)[0], d[np.ix_(i, j)], err_msg=distribution)


def test_the_files_say_where_they_come_from() -> None:
    assert FILES
    for path in FILES:
        assert {"gpu", "driver", "cuda_driver", "date", "seed", "instructions"} <= set(metadata(path))
