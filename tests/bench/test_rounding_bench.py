"""Elements a second of round_to and of its peers, one thread, 10^7 float32: pytest tests/bench --benchmark-enable."""

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest

from tcsim.fp import cpfloat
from tcsim.fp.cpfloat_library import Task, library, options_for
from tcsim.fp.formats import format_named
from tcsim.fp.round_to import round_to

SIZE = 10**7
FORMATS = ("float16", "bfloat16", "float8_e4m3fn")


@pytest.fixture(scope="module")
def normal():
    return np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)


@pytest.fixture(scope="module")
def hard():
    """Subnormals, overflows, zeros and infinities of every narrow format, and little else."""
    some = np.float32([3e-8, -1e-7, 1e-6, 0, 1e-3, 70000, -1e6, 1e38, np.inf, 3e-40, 500, 1e-39])
    return np.random.default_rng(0).choice(some, SIZE)


def rate(benchmark, function, size=SIZE):
    """Run, and note the best rate in Gelem/s."""
    benchmark.pedantic(function, rounds=9, warmup_rounds=1)
    benchmark.extra_info["Gelem/s"] = round(size / benchmark.stats.stats.min / 1e9, 3)


@pytest.mark.parametrize("data", ["normal", "hard"])
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("rounding", ["rne", "rz", "sr", "ro", "ru"])
def test_tcsim(benchmark, rounding, fmt, data, request):
    x = request.getfixturevalue(data)
    out = np.empty_like(x)
    rate(benchmark, lambda: round_to(x, fmt, rounding, out=out, threads=1))


@pytest.mark.skipif(not cpfloat.available(), reason="no libcpfloat: set CPFLOAT_LIBRARY")
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("rounding", ["rne", "rz", "sr"])
def test_cpfloat(benchmark, rounding, fmt, normal):
    """The library's own loop, without the checks that tcsim.cpfloat puts around it."""
    ffi, loaded = library()
    options, memory = options_for(ffi, Task(format_named(fmt), rounding))
    out = np.empty_like(normal)
    source, target = ffi.from_buffer("float[]", normal), ffi.from_buffer("float[]", out)
    rate(benchmark, lambda: loaded.cpfloatf(target, source, SIZE, options))
    assert memory


@pytest.mark.parametrize("fmt", FORMATS[1:])
def test_ml_dtypes(benchmark, fmt, normal):
    rate(benchmark, lambda: normal.astype(getattr(ml_dtypes, fmt)))


def test_numpy_float16(benchmark, normal):
    rate(benchmark, lambda: normal.astype(np.float16))


def test_gfloat(benchmark, normal):
    few = normal[: SIZE // 10]
    rate(benchmark, lambda: gfloat.round_ndarray(gfloat.formats.format_info_binary16, few), few.size)


def test_pychop(benchmark, normal):
    pychop = pytest.importorskip("pychop", reason="pychop is not installed")
    pychop.backend("numpy")
    few = normal[: SIZE // 10].astype(np.float64)
    pychop.backend("numpy")
    chop = pychop.Chop(5, 10, 1)
    rate(benchmark, lambda: chop(few), few.size)
