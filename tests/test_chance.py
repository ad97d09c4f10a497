"""No test fails by chance: what is drawn afresh can be drawn again, no clock but a generous one decides, and nothing forks."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "bench" not in path.parts)
DRAWS = {"SeedSequence", "default_rng", "RandomState", "Random", "Philox", "PCG64"}  # given nothing, they draw a seed
ANYTIME = {"secrets", "uuid", "urandom", "SystemRandom", "time_ns", "getrandbits"}
CLOCKS = re.compile(r"seconds?\b|elapsed|\btook\b|perf_counter|monotonic|process_time")
LEGACY = {
    "seed",
    "rand",
    "randn",
    "randint",
    "choice",
    "shuffle",
    "permutation",
    "uniform",
    "normal",
    "random",
}  # one generator for all
SECONDS = 600


def unrepeatable(tree: ast.AST) -> Iterator[str]:
    """Seeds that nobody chose, and draws of a generator that other tests share."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
            yield from (f"line {node.lineno}: {name}" for name in names & ANYTIME)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.split(".")[-1]
            if (last in DRAWS and not node.args and not node.keywords) or last in ANYTIME:
                yield f"line {node.lineno}: {name}()"
            if name in {f"{module}.{x}" for module in ("np.random", "numpy.random", "random") for x in LEGACY}:
                yield f"line {node.lineno}: {name}"


def impatient(tree: ast.AST) -> Iterator[str]:
    """Limits of time that a slow machine passes; a wait that is expected to end so may be short."""
    short = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and "TimeoutError" in ast.unparse(node.items[0])
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in short:
            for keyword in node.keywords:
                given = keyword.value
                if keyword.arg == "timeout" and isinstance(given, ast.Constant) and given.value and given.value < SECONDS:
                    yield f"line {node.lineno}: timeout={given.value}"
        if (
            isinstance(node, ast.Assert)
            and isinstance(node.test, ast.Compare)
            and isinstance(node.test.ops[0], ast.Lt | ast.LtE)
        ):
            least, most = ast.unparse(node.test.left), node.test.comparators[-1]
            if CLOCKS.search(least) and isinstance(most, ast.Constant):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        later = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and ".monotonic()" in ast.unparse(node.left)
        if later and isinstance(node.right, ast.Constant) and node.right.value < SECONDS:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def forking(tree: ast.AST) -> Iterator[str]:
    """Forks of the tests' own process: with the threads that another test has left (JAX's, Dask's), they warn or hang."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            forks = ast.unparse(node.func).endswith("os.fork") or any(k.arg == "preexec_fn" for k in node.keywords)
            if forks or any(isinstance(x, ast.Constant) and x.value == "fork" for x in node.args):
                yield f"line {node.lineno}: {ast.unparse(node.func)}"


def chancy(tree: ast.AST) -> Iterator[str]:
    """Hypothesis with a deadline, or with draws that are not the same each time."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            ast.unparse(by).startswith(("given(", "hypothesis.given(")) for by in node.decorator_list
        ):
            said = " ".join(ast.unparse(by) for by in node.decorator_list)
            if "deadline=None" not in said or "derandomize=True" not in said:
                yield f"line {node.lineno}: {node.name}"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_left_to_chance(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = {rule.__name__: list(rule(tree)) for rule in (unrepeatable, impatient, forking, chancy)}
    if path == ROOT / "tests" / "support" / "fresh.py":
        assert found.pop("unrepeatable"), "the one place"
    assert not any(found.values()), found


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_draw_what_they_drew(path: Path) -> None:
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    for cell in cells:
        code = "".join(line for line in "".join(cell["source"]).splitlines(True) if not line.lstrip().startswith(("%", "!")))
        assert list(unrepeatable(ast.parse(code))) == []


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import secrets", unrepeatable),
        ("from uuid import uuid4", unrepeatable),
        ("np.random.default_rng()", unrepeatable),
        ("np.random.SeedSequence().entropy", unrepeatable),
        ("np.random.rand(3)", unrepeatable),
        ("os.urandom(4)", unrepeatable),
        ("run(x, timeout=60)", impatient),
        ("end = time.monotonic() + 5", impatient),
        ("assert found['audit seconds'] < 60", impatient),
        ("Popen(x, preexec_fn=f)", forking),
        ("get_context('fork')", forking),
        ("@given(x)\n@settings(deadline=None)\ndef test(): ...", chancy),
    ],
)
def test_each_is_found(code: str, rule: object) -> None:
    assert len(list(rule(ast.parse(code)))) == 1  # type: ignore[operator]


def test_a_failing_test_says_what_was_drawn(tmp_path: Path) -> None:
    """In each process, with the seed that was asked for or with one of its own."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        "from support.fresh import SEED\n\ndef test_it(fresh_seed): assert (SEED, fresh_seed) == (77, 0)\n"
    )
    paths = f"pythonpath={ROOT / 'tests'}"
    for more in ([], ["-n", "1"]):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", "-o", paths]
        done = subprocess.run(
            [*command, "--soak-seed", "77", *more], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 1, done.stdout + done.stderr
        assert "assert (77, 77) == (77, 0)" in done.stdout
        assert "--soak-seed 77 draws the same again" in done.stdout
