"""Compiled kernels on disk: what one process saves, no other loads in place of its own."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import pytest
from numba.core.registry import cpu_target

from tcsim.codegen import jit
from tcsim.codegen.cache import KeyedCache, KeyedFiles


def test_processes_that_save_at_once_keep_their_own(tmp_path: Path) -> None:
    """Interleaved as two processes may: both look, both save, both load."""
    first, second = KeyedFiles(tmp_path, "f"), KeyedFiles(tmp_path, "f")
    assert (first.load("float64"), second.load("int64")) == (None, None)
    first.save("float64", "code of float64")
    second.save("int64", "code of int64")
    for files in (first, second, KeyedFiles(tmp_path, "f")):
        assert (files.load("float64"), files.load("int64")) == ("code of float64", "code of int64")


def test_a_file_says_what_it_holds(tmp_path: Path) -> None:
    """A file under another key's name, or one that was cut short, is compiled again."""
    files = KeyedFiles(tmp_path, "f")
    files.save("float64", "code")
    files.path("float64").rename(files.path("int64"))
    assert files.load("int64") is None
    files.save("float64", "code")
    files.path("float64").write_bytes(files.path("float64").read_bytes()[:-4])
    assert files.load("float64") is None


def test_flush_forgets_its_own(tmp_path: Path) -> None:
    mine, other = KeyedFiles(tmp_path, "f"), KeyedFiles(tmp_path, "g")
    mine.save("float64", 1)
    other.save("float64", 2)
    mine.flush()
    assert (mine.load("float64"), other.load("float64")) == (None, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="there every process compiles for itself")
def test_one_compiles_and_the_others_wait(tmp_path: Path) -> None:
    """Of two that want a kernel, the second gets what the first saves; a first that gave up leaves the turn to the next."""
    first, second = KeyedFiles(tmp_path, "f"), KeyedFiles(tmp_path, "f")
    assert first.load("float64") is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.load, "float64")
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
        first.save("float64", "code")
        assert waiting.result(timeout=900) == "code"
        assert first.load("int64") is None
        waiting = pool.submit(second.load, "int64")
        assert first.load("int8") is None  # its compile of the other failed
        assert waiting.result(timeout=900) is None


def test_kernels_of_a_version_that_is_gone_are_removed(tmp_path: Path) -> None:
    """With the first kernels of a new version, those that nobody has used for three months; nothing else that lies there."""
    base = tmp_path / "tcsim"
    ages = {"0123456789abcdef": 91, "123456789abcdef0": 89, "notes": 400, "0123456789abcdef0": 400}
    for name, days in ages.items():
        (base / name / "tcsim.fp").mkdir(parents=True)
        os.utime(base / name, (time.time() - 86400 * days,) * 2)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    code = "from tcsim.codegen import jit; print(jit.cache_folder().name)"
    for _ in range(2):
        told = subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=900
        )
        mine = base / told.stdout.strip()
        assert {path.name for path in base.iterdir()} == {mine.name, *ages} - {"0123456789abcdef"}
        assert time.time() - mine.stat().st_mtime < 86400  # by the second start, too, which adds nothing to it
        os.utime(mine, (time.time() - 86400 * 400,) * 2)


_SIZES = """
import sys
import numpy as np
from tcsim.codegen import jit

def item_size(x):
    return x.itemsize

function = jit.kernel(item_size)
for kind in sys.argv[1:]:
    assert function(np.zeros(1, kind)) == np.dtype(kind).itemsize, kind
"""


def _item_size(x):  # type: ignore[no-untyped-def]
    return x.itemsize


def _factories(tree: ast.Module) -> list[tuple[ast.FunctionDef, ast.Call]]:
    """The functions of a module that make a kernel, and the call of `variant` that names it, `kernel(variant(...)(function))`."""
    found = []
    for made in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for call in (node for node in ast.walk(made) if isinstance(node, ast.Call)):
            inner = [a.func for a in call.args if isinstance(a, ast.Call) and isinstance(a.func, ast.Call)]
            if isinstance(call.func, ast.Name) and call.func.id.startswith("kernel"):
                found += [(made, named) for named in inner if isinstance(named, ast.Call)]
    return found


def test_the_name_of_a_kernel_says_all_that_it_is_made_of() -> None:
    """It is kept under that name: two that a factory makes of other values would be loaded in place of each other."""
    found = {
        (path.name, made.name): ({a.arg for a in made.args.args}, {n.id for n in ast.walk(named) if isinstance(n, ast.Name)})
        for path in Path(jit.__file__).parents[1].rglob("*.py")
        for made, named in _factories(ast.parse(path.read_text()))
    }
    assert len(found) >= 9
    assert {where: given - said for where, (given, said) in found.items() if given - said} == {}


def test_types_compiled_at_once(tmp_path: Path) -> None:
    """Processes started together compile a function for a type each; one more then loads them all."""
    script, kinds = tmp_path / "sizes.py", ["int8", "int16", "float32", "float64"]
    script.write_text(_SIZES)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    started = [subprocess.Popen([sys.executable, str(script), kind], env=environment) for kind in kinds]
    assert [process.wait(timeout=900) for process in started] == [0, 0, 0, 0]
    assert len(list(tmp_path.rglob("*.nbc"))) == len(kinds)
    subprocess.run([sys.executable, str(script), *kinds], env=environment, check=True, timeout=900)
    assert len(list(tmp_path.rglob("*.nbc"))) == len(kinds)


def test_kernels_are_cached_this_way() -> None:
    """Numba's own attribute, which a later version might rename: then this fails before anything else does."""
    made = jit.kernel(_item_size)
    assert isinstance(made._cache, KeyedCache)
    assert isinstance(made._cache._cache_file, KeyedFiles)
    assert numba.extending.is_jitted(made)


def test_a_kernel_has_one_key() -> None:
    """Made again, with other compiled functions inside, it is found where the first lies; one of another name is not."""
    codegen = cpu_target.target_context.codegen()

    def key(name: str) -> tuple[object, ...]:
        inner = jit.inline(jit.variant(name)(lambda x: x + 1))
        made: tuple[object, ...] = jit.kernel(jit.variant(name)(lambda x: inner(x)))._cache._index_key((), codegen)
        return made

    assert key("one") == key("one")
    assert key("one") != key("another")


_PRODUCTS = """
import sys
import numpy as np
import tcsim
a = np.random.default_rng(0).random((2, 24)).astype(np.float16)
for gpu in sys.argv[1:]:
    unit = tcsim.unit(gpu, "float16")
    unit = unit.replace(rounding="ru") if gpu == "mi250" else unit
    ours, told = (tcsim.matmul(a, a.T, unit=unit, backend=b).view(np.uint32) for b in ("cpu", "reference"))
    assert np.array_equal(ours, told), gpu
"""


def test_kernels_of_different_processes_meet(tmp_path: Path) -> None:
    """Two kinds of the general kernel, compiled and saved by a process each, both loaded by a third: each its own."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    for gpus in (["mi300x"], ["mi250"], ["mi300x", "mi250"]):
        subprocess.run([sys.executable, "-c", _PRODUCTS, *gpus], env=environment, check=True, timeout=900)


_TWICE = """
import hashlib
import sys
import numba
import numpy as np
from numba.core import event
from numba.core.registry import cpu_target
from support.random_problems import draw_problem
from support.whatifs import distinct, whatifs
from tcsim.kernels import dispatch

rng = np.random.default_rng(int(sys.argv[1]))
some = [unit for unit in whatifs() if rng.random() < 1 / 9]
results = hashlib.sha256()
with event.install_recorder("numba:compile") as compiled:
    for unit in [*(unit for unit in distinct() if rng.random() < 1 / 3), *some]:
        for _ in range(2):
            results.update(dispatch.multiply_cpu(draw_problem(rng, unit), 1).tobytes())
    print(results.hexdigest(), len(cpu_target.typing_context._registries))
    numba.njit(lambda x: x)(1)
for _, happened in compiled.buffer:
    print(happened.data["dispatcher"].py_func.__qualname__)
"""


def test_a_second_process_compiles_nothing(fresh_seed: int) -> None:
    """A third of the table's units and a ninth of a grid of what-ifs, two drawn problems each: what one process compiled, the next loads.

    It gives the same results, and Numba never gathers there what it knows to compile with.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", _TWICE, str(fresh_seed)],
            env=environment,
            check=True,
            timeout=900,
            capture_output=True,
            text=True,
        ).stdout.split()
        for _ in range(2)
    )
    assert second[:2] == [first[0], "0"]
    assert set(second[2:]) == {"<lambda>"}, f"what is kept nowhere, and compiled again: {second[2:]}"


_ROUND = """
import numpy as np
import tcsim
from numba.core import event
with event.install_recorder("numba:compile") as compiled:
    assert tcsim.round_to(np.float32([1 + 2.0**-11]), "float16")[0] == 1
print(tcsim.__file__, len(compiled.buffer))
"""


def test_a_package_at_another_place_compiles_nothing(tmp_path: Path) -> None:
    """The same sources installed twice, as in two virtual environments or beside a checkout, have their kernels in common."""
    package = Path(jit.__file__).parents[1]
    shutil.copytree(package, tmp_path / "elsewhere" / "tcsim", ignore=shutil.ignore_patterns("__pycache__"))
    compiled = {}
    for place in (package.parent, tmp_path / "elsewhere"):
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(place)}
        told = subprocess.run(
            [sys.executable, "-c", _ROUND],
            env=environment,
            cwd=tmp_path,
            check=True,
            timeout=900,
            capture_output=True,
            text=True,
        )
        path, number = told.stdout.split()
        assert Path(path).is_relative_to(place)
        compiled[place] = int(number)
    assert list(map(bool, compiled.values())) == [True, False]


def test_what_a_factory_makes_needs_a_name() -> None:
    """Two functions of one name and one signature would be one symbol to the linker."""

    def made(number: int) -> object:
        def add(x):  # type: ignore[no-untyped-def]
            return x + number

        return add

    for decorator in (jit.kernel, jit.inline, jit.inline_ir, jit.routine, jit.no_refcount, jit.noalias):
        with pytest.raises(TypeError, match="name it with @variant"):
            decorator(made(1))
    names = {jit.routine(jit.variant(n)(made(n))).py_func.__qualname__ for n in (1, 2)}
    assert len(names) == 2
