"""import tcsim stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numba", "matplotlib", "cupy", "dask", "distributed", "xarray", "ml_dtypes", "scipy", "pandas", "h5py", "click")


def loaded_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_import_loads_nothing_heavy() -> None:
    assert not loaded_after("import tcsim") & set(HEAVY)


def test_looking_units_up_needs_no_compiler() -> None:
    code = "import tcsim; u = tcsim.unit('a100', 'float16'); u.explain(); tcsim.units(); tcsim.formats(); u.replace(rounding='rne')"
    assert not loaded_after(code) & set(HEAVY)


@pytest.mark.parametrize("name", ["matmul", "trace", "formats", "unit", "units", "gemm", "advise", "quantize"])
def test_names_shared_with_modules_are_functions(name: str) -> None:
    code = f"import tcsim, importlib; import tcsim.cli; import tcsim.matmul as _; assert callable(tcsim.{name}), tcsim.{name}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there() -> None:
    import tcsim

    for name in tcsim.__all__:
        assert getattr(tcsim, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'matmull'"):
        tcsim.matmull  # noqa: B018


def test_a_first_product_needs_no_linear_algebra() -> None:
    """SciPy stays out where nothing of it is used, and is there for Numba's functions that want it."""
    product = "import tcsim; tcsim.matmul([[1.0]], [[2.0]], unit='a100:float16')"
    looked = f"{product}\nimport sys, gc; assert gc.isenabled(); assert 'scipy.linalg' not in sys.modules"
    subprocess.run([sys.executable, "-c", looked], check=True)
    pytest.importorskip("scipy.linalg")
    dot = f"{product}\nimport numba, numpy as np\n@numba.njit\ndef f(x): return np.dot(x, x)\nassert f(np.eye(2))[1, 1] == 1"
    subprocess.run([sys.executable, "-c", dot], check=True)
