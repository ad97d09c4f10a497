"""Names that code asks for by text, `import_module("m").f` or a pair ("m", "f"), exist: neither the type checker nor a rename sees them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [*(ROOT / "tcsim").rglob("*.py"), *(ROOT / "gpu" / "tcsim_gpu").rglob("*.py")]


def _module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[parts[0] == "gpu" : -1 if parts[-1] == "__init__" else None])


MODULES = {_module_of(path): path for path in FILES}


def _top_level(module: str) -> set[str]:
    """What a module's own statements define or import."""
    found = {m.rpartition(".")[2] for m in MODULES if m.rpartition(".")[0] == module}
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return found


def _late_module(node: ast.AST) -> str | None:
    """The module that `import_module("…")` asks for, if the text is whole and the module is the project's."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args):
        return None
    text = node.args[0]
    return text.value if isinstance(text, ast.Constant) and text.value in MODULES else None


def late_names(source: str) -> Iterator[tuple[str, str]]:
    """(module, name) of every name asked for by text in a source."""
    if '"tcsim' not in source:
        return
    tree = ast.parse(source)
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        inside, kept = list(ast.walk(function)), {}
        for node in inside:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (module := _late_module(node.value)):
                kept[node.targets[0].id] = module
        for node in inside if kept else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in kept:
                yield kept[node.value.id], node.attr
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := _late_module(node.value)):
            yield module, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and (module := _late_module(node.args[0])):
            if isinstance(node.args[1], ast.Constant):
                yield module, str(node.args[1].value)
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2 and all(isinstance(e, ast.Constant) for e in node.elts):
            module, name = (getattr(e, "value", None) for e in node.elts)
            if isinstance(name, str) and name.isidentifier() and module in MODULES:
                yield str(module), name


ASKED = sorted({(_module_of(p), *pair) for p in FILES for pair in late_names(p.read_text())})


@pytest.mark.parametrize(("by", "module", "name"), ASKED, ids="-".join)
def test_a_name_asked_for_by_text_exists(by: str, module: str, name: str) -> None:
    assert name in _top_level(module), f"{by} asks {module} for {name}"


def test_what_is_asked_for_is_seen() -> None:
    source = """
def f():
    m = import_module("tcsim.matmul")
    m.first()
    import_module("tcsim.matmul").second()
    getattr(import_module("tcsim.matmul"), "third")
WAYS = {"cpu": ("tcsim.matmul", "fourth")}
"""
    assert {name for _, name in late_names(source)} == {"first", "second", "third", "fourth"}
    assert len(ASKED) > 10
