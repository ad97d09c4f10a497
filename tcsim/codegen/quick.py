"""Parts of Numba that take time and say nothing of kernels, in forms that give the same answers sooner: a tenth of a first call.

Each is put in place of Numba's own where that is what it was written for; where it is not, Numba is left as it is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def _list_variables_sooner() -> None:
    """The variables of an instruction: most of what it holds are names, numbers and operators, told by their classes."""
    ir: Any = import_module("numba.core.ir")
    found = ir.Inst._rec_list_vars
    holders, bare = (ir.Var, ir.Inst, list, tuple, dict), {str, int, bool, float, type(None)}

    def variables(self: Any, held: Any) -> list[Any]:
        kind = type(held)
        if kind is ir.Var:
            return [held]
        if kind in bare:
            return []
        if kind is list or kind is tuple:
            together: list[Any] = []
            for one in held:
                together += variables(self, one)
            return together
        if not issubclass(kind, holders):
            bare.add(kind)
            return []
        return found(self, held)  # type: ignore[no-any-return]

    ir.Inst._rec_list_vars = variables


def _compare_options_sooner() -> None:
    """Numba looks compiled functions up by the options of their callers: equal sets of those that were set are equal options."""
    options: Any = import_module("numba.core.targetconfig").TargetConfig
    equal, hashes, hashed = options.__eq__, {}, options.__hash__

    def same(self: Any, other: Any) -> Any:
        if type(self) is type(other) and self._values == other._values:
            return True
        return equal(self, other)

    def number(self: Any) -> int:
        """Numba's, which is of the options' names alone."""
        kind = type(self)
        if kind not in hashes:
            hashes[kind] = hashed(self)
        return hashes[kind]  # type: ignore[no-any-return]

    options.__eq__, options.__hash__ = same, number


def _type_scalars_sooner() -> None:
    """Operators of arrays refuse numbers, after they have asked NumPy which loop would take them."""
    types: Any = import_module("numba.core.types")
    operators: Any = import_module("numba.core.typing.npydecl").NumpyRulesArrayOperator
    found, numbers = operators.generic, (types.Number, types.Boolean)

    def generic(self: Any, args: Any, kws: Any) -> Any:
        if all(isinstance(arg, numbers) for arg in args):
            return None
        return found(self, args, kws)

    operators.generic = generic


def quicken() -> None:
    """All of it, where this Numba has the parts."""
    for change in (_list_variables_sooner, _compare_options_sooner, _type_scalars_sooner):
        try:
            change()
        except (AttributeError, ImportError):
            continue
