"""Mutants of a file's syntax tree: ±1 in a constant, another comparison, and for or, a dropped not, plus for minus, min for max."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy

from mutants.mutant import ROOT, Mutant

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.FloorDiv: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip


def automatic(file: str, only: set[int] | None = None) -> Iterator[Mutant]:
    """Every small change of a file's syntax tree that this tool knows, outside docstrings, annotations and messages; or `only` some."""
    tree = ast.parse((ROOT / file).read_text())
    for i in range(sum(1 for _ in places(tree))) if only is None else sorted(only):
        copy = deepcopy(tree)
        node, change, label = next(place for j, place in enumerate(places(copy)) if j == i)
        before = ast.unparse(node)
        change()
        yield Mutant(file, f"line {getattr(node, 'lineno', '?')}: {label}: {before} -> {ast.unparse(node)}", ast.unparse(copy))


def places(tree: ast.AST):  # type: ignore[no-untyped-def]
    """(node, a function that changes it, what the change is), in a fixed order."""
    for node in _walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, lambda n=node: setattr(n, "value", not n.value), "flag"
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield node, lambda n=node: setattr(n, "value", n.value + 1), "+1"
            yield node, lambda n=node: setattr(n, "value", n.value - 1), "-1"
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
            yield node, lambda n=node: n.ops.__setitem__(0, _COMPARE[type(n.ops[0])]()), "comparison"
        elif isinstance(node, ast.BoolOp):
            yield node, lambda n=node: setattr(n, "op", ast.Or() if isinstance(n.op, ast.And) else ast.And()), "and/or"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield (
                node,
                lambda n=node: setattr(n, "op", ast.UAdd() if isinstance(n.op, ast.USub) else ast.Not()) or _double(n),
                "sign/not",
            )
        elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            yield node, lambda n=node: setattr(n, "op", _BINARY[type(n.op)]()), "operator"
        elif isinstance(node, ast.Name) and node.id in ("min", "max", "any", "all"):
            other = {"min": "max", "max": "min", "any": "all", "all": "any"}[node.id]
            yield node, lambda n=node, o=other: setattr(n, "id", o), "function"


def _double(node: ast.UnaryOp) -> None:
    if isinstance(node.op, ast.Not):  # not x becomes not not x, which is x as a truth
        node.operand = ast.UnaryOp(ast.Not(), node.operand)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes whose change changes what is computed: no annotations, docstrings, messages of errors, asserts or imports."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return
    if isinstance(node, ast.FunctionDef) and any(isinstance(d, ast.Name) and d.id == "intrinsic" for d in node.decorator_list):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)
