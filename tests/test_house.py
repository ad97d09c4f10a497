"""The house: imports run one way between its folders, in no circle, and modules stay small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "tcsim"

# From the ground up: a folder (or a module of the top folder) imports from its own line and the lines above it.
FLOORS = (
    ("errors", "arguments", "arrays", "files", "progress", "shown", "tasks"),
    ("codegen",),
    ("fp",),
    ("hardware", "schedule"),
    ("problem", "operands", "vector_files"),
    ("gates",),
    ("reference", "kernels"),
    ("composed",),
    ("matmul",),
    ("sparse", "quantize", "golden", "on_gpu"),
    ("analysis",),
    ("schemes",),
    ("probing",),
    ("torch", "jax"),
    ("studies",),
    ("study",),
    ("verbs",),
    ("doctor", "cli", "__main__"),
)
# The same within the oracle, whose doors (`probe`, `predict` …) stand above all of these.
PROBING = ("questions", "search", "answers")
LONGEST = 350


def _modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: path for name, path in found.items() if name not in ("", "public", "_cpfloat")}


MODULES = _modules()


def _imports(path: Path) -> set[str]:
    """Modules of the package that a file imports, late imports too, those for annotations alone excepted."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(n)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for n in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tcsim."):
            continue
        module = str(node.module).removeprefix("tcsim.")
        for alias in node.names:
            inner = f"{module}.{alias.name}"
            found.add(inner if inner in MODULES else module)
    return found


def _floor(module: str) -> int:
    return next(i for i, floor in enumerate(FLOORS) if module.split(".")[0] in floor)


def _inside_probing(module: str) -> int:
    room = module.split(".")[1]
    return PROBING.index(room) if room in PROBING else len(PROBING)


@pytest.mark.parametrize(
    "module", sorted(name for name in MODULES if name.startswith("probing.") and _inside_probing(name) < len(PROBING))
)
def test_questions_are_asked_before_records_are_searched_and_answers_read(module: str) -> None:
    for other in _imports(MODULES[module]):
        if other.startswith("probing.") and other not in ("probing.box", "probing"):
            assert _inside_probing(other) <= _inside_probing(module), f"{module} imports {other}, which stands above it"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_run_one_way(module: str) -> None:
    for other in _imports(MODULES[module]):
        assert _floor(other) <= _floor(module), f"{module} imports {other}, which stands above it"
        mine, theirs = module.split(".")[0], other.split(".")[0]
        assert mine == theirs or {mine, theirs} != {"reference", "kernels"}, (
            f"{module} and {other}: the definition shares nothing"
        )


def test_no_circle() -> None:
    graph = {name: {m for m in _imports(path) if m in MODULES and m != name} for name, path in MODULES.items()}
    while True:
        free = [name for name, needs in graph.items() if not needs & graph.keys()]
        if not free:
            break
        for name in free:
            del graph[name]
    assert not graph, f"modules in or above a circle: {sorted(graph)}"


ROOT = PACKAGE.parent
SOURCES = [path for folder in ("tcsim", "gpu", "tests") for kind in ("*.py", "*.cuh") for path in (ROOT / folder).rglob(kind)]


@pytest.mark.parametrize("path", sorted(SOURCES), ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


# The functions that every module of tcsim/studies has, by which `Study` records are made.
OF_A_STUDY = {"cells", "claims", "compute", "dataset", "figures", "table", "weight"}
# Names that several modules have on purpose, and why. A command of the command line is not counted: it is called as its verb.
SHARED = {
    "NotEmulated": "the warning of tcsim.torch and of tcsim.jax, public in both",
    "audit": "tcsim.audit of logs and tcsim.torch.audit of models",
    "compare": "tcsim.compare of units and tcsim.torch.compare of models",
    "emulate": "tcsim.torch.emulate and tcsim.jax.emulate",
    "fabsum": "a scheme's recipe, and its bound in tcsim.bounds, which is called as the scheme is",
    "gemm": "tcsim.gemm, and what each Ozaki scheme multiplies by: tcsim.ozaki.gemm, ozaki_int8.gemm, ozaki_crt.gemm",
    "main": "where a script begins",
    "round_to": "tcsim.round_to and the same by CPFloat, tcsim.cpfloat.round_to",
}


def _is_command(node: ast.stmt) -> bool:
    """Whether click calls a function as a verb."""
    made_by = [ast.unparse(x) for x in getattr(node, "decorator_list", ())]
    return any(x.endswith((".command", ".group")) or ".command(" in x or ".group(" in x for x in made_by)


def _defined() -> dict[str, list[str]]:
    """The modules that define each public function or class."""
    found: dict[str, list[str]] = {}
    for folder in (PACKAGE, ROOT / "gpu" / "tcsim_gpu"):
        for path in sorted(folder.rglob("*.py")):
            where = str(path.relative_to(ROOT))
            for node in ast.parse(path.read_text()).body:
                named = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
                if named and not _is_command(node) and not (node.name in OF_A_STUDY and where.startswith("tcsim/studies/")):
                    found.setdefault(node.name, []).append(where)
    return found


def test_no_two_things_of_one_name() -> None:
    twice = {name: where for name, where in _defined().items() if len(where) > 1}
    assert {name: where for name, where in twice.items() if name not in SHARED} == {}
    assert set(SHARED) <= set(twice), "listed, and shared no more"


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_marks_stand_on_tests(path: Path) -> None:
    """A mark that slips to the helper above its test marks nothing, and the test runs where it should not, or nowhere."""
    marked = [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("test_")
        if any(ast.unparse(by).startswith("pytest.mark.") for by in node.decorator_list)
    ]
    assert marked == []


@pytest.mark.xdist_group("one")
def test_a_group_of_tests_is_one_workers(request: pytest.FixtureRequest) -> None:
    """Tests of one study share its run: pytest-xdist must have put the group's name behind the test's."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("this run is not spread by groups (`--dist loadgroup`)")
    assert request.node.nodeid.endswith("@one")
