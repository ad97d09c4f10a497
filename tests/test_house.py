"""The house: imports run one way between its folders, in no circle, and modules stay small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "tcsim"

# From the ground up: a folder (or a module of the top folder) imports from its own line and the lines above it.
FLOORS = (
    ("errors", "arguments"),
    ("codegen",),
    ("fp",),
    ("hardware", "schedule"),
    ("problem", "operands"),
    ("reference", "kernels"),
    ("matmul",),
    ("sparse", "quantize", "golden"),
    ("analysis",),
    ("schemes",),
    ("studies", "probing"),
    ("study",),
    ("doctor", "cli"),
)
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


@pytest.mark.parametrize("module", sorted(MODULES))
def test_modules_are_short(module: str) -> None:
    assert len(MODULES[module].read_text().splitlines()) <= LONGEST
