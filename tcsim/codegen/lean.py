"""Numba's front end without the part of its work that nobody reads, while it compiles a kernel.

Most of a first call is Numba's own Python, not LLVM: it looks at every function's variables after each of its passes, times the passes and
tells listeners of them, looks up what `+` of two integers is wherever one stands, compares all options wherever it looks one up, copies a
function twice before it inlines it, and makes machine code of `max` before that becomes part of a kernel. What is compiled is the same; the
compiler's lock is held meanwhile, so nobody else finds Numba otherwise than it was. Versions of Numba whose front end was not read for this
do all of their work.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numba
from numba.core import compiler_machinery, event, ir, postproc, transforms, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.inline_closurecall import InlineWorker
from numba.core.targetconfig import TargetConfig
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import _OverloadFunctionTemplate as Overload

FIRST_READ, LAST_READ = (0, 62), (0, 68)  # the functions below are word for word the same in these versions

_numba_compile, _numba_post_process, _numba_decorator = (
    Dispatcher.compile,
    postproc.PostProcessor.run,
    Overload._get_jit_decorator,
)
_numba_call_type = BaseFunction.get_call_type
_numba_start, _numba_end = event.start_event, event.end_event


def _compile(self: Any, signature: Any) -> Any:
    """Of types that are compiled already, what was found: every call of a function asks."""
    found = self.overloads.get(signature) if isinstance(signature, tuple) else None
    return _numba_compile(self, signature) if found is None else found.entry_point


_OPERATORS = frozenset(filter(callable, vars(operator).values()))
_OPERATIONS: dict[tuple[Any, ...], tuple[Any, Any]] = {}  # what was found, for as long as a kernel is compiled


def _call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """Of operators on numbers, what was found for these types: each use would ask the rules of arrays, strings and dates anew."""
    numbers = self.typing_key in _OPERATORS and not kws and all(isinstance(x, types.Number | types.Boolean) for x in args)
    if not numbers:
        return _numba_call_type(self, context, args, kws)
    asked = self, tuple(args)
    if asked not in _OPERATIONS:
        signature = _numba_call_type(self, context, args, kws)
        _OPERATIONS[asked] = signature, self.get_impl_key(signature)
    signature, self._impl_keys[signature.args] = _OPERATIONS[asked]
    return signature


def _post_process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Without the variables that are alive where a block starts, which generators and Python objects need."""
    if self.func_ir.is_generator:
        _numba_post_process(self, emit_dels, extend_lifetimes)
        return
    self.func_ir.blocks = transforms.canonicalize_cfg(self.func_ir.blocks)
    self.func_ir.variable_lifetime = postproc.VariableLifetime(self.func_ir.blocks)
    self.func_ir.generator_info = None
    if emit_dels:
        self._insert_var_dels(extend_lifetimes=extend_lifetimes)


def _run_pass(self: Any, index: int, step: Any, state: Any) -> None:
    """A pass without events, times and checks of what Numba's own passes leave."""
    step.analysis = self._analysis
    changed = [run(state) for run in (step.run_initialization, step.run_pass, step.run_finalizer)]
    if compiler_machinery._pass_registry.get(step.__class__).mutates_CFG:
        if any(changed):
            postproc.PostProcessor(state.func_ir).run()
        else:
            state.func_ir.blocks = transforms.canonicalize_cfg(state.func_ir.blocks)


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {name: option.default for name, option in kind.options.items()}


def _values(self: Any) -> dict[str, Any]:
    """All options, in one order."""
    kind: Any = type(self)
    return {**_defaults(kind), **self._values}


def _variables(self: Any, value: Any) -> list[Any]:
    """The variables of an instruction's parts, without asking numbers, names and places whether they have some."""
    if isinstance(value, ir.Var):
        return [value]
    if isinstance(value, ir.Inst):
        return value.list_vars()  # type: ignore[no-any-return]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    found = []
    for part in value:
        kind = part.__class__
        if kind is ir.Var:
            found.append(part)
        elif kind not in _PLAIN:
            found += _variables(self, part)
    return found


_PLAIN = frozenset((str, int, bool, float, type(None), ir.Loc))


def _same(self: Any, memo: dict[int, Any]) -> Any:
    """A place in the source, which nobody changes, is its own copy."""
    return self


def _told_by_others(tell: Callable[..., None]) -> Callable[..., None]:
    """No event of the thread that compiles: of every call of LLVM every function that is being compiled would be told, how long it took.

    Another thread, which waits for the compiler's lock or has just left it, tells of that as ever: whoever hears a start hears the end.
    """
    ours = global_compiler_lock.is_locked

    def told(*args: Any, **kwargs: Any) -> None:
        if not ours():
            tell(*args, **kwargs)

    return told


def _inline_function(self: Any, caller_ir: Any, block: Any, i: int, function: Any, arg_typs: Any = None) -> Any:
    """A function read for this call alone is not copied first, twice and each block with all variables of the function."""
    callee = self.run_untyped_passes(function)
    ir.Block.__deepcopy__ = _same
    try:
        return self.inline_ir(caller_ir, block, i, callee, function.__code__.co_freevars, arg_typs=arg_typs)
    finally:
        del ir.Block.__deepcopy__


def _swaps(overloads: type[Any]) -> tuple[tuple[Any, str, Any], ...]:
    """What is replaced: where, its name, and by what. Numba's own overloads are compiled by `overloads`, as functions that only kernels call."""

    def decorator(self: Any) -> Callable[..., Any]:
        found = _numba_decorator(self)
        return lambda **options: found(**{"pipeline_class": overloads, **options})

    return (
        (Dispatcher, "compile", _compile),
        (BaseFunction, "get_call_type", _call_type),
        (postproc.PostProcessor, "run", _post_process),
        (compiler_machinery.PassManager, "_runPass", _run_pass),
        (TargetConfig, "values", _values),
        (ir.Inst, "_rec_list_vars", _variables),
        (ir.Loc, "__deepcopy__", _same),
        (event, "start_event", _told_by_others(_numba_start)),
        (event, "end_event", _told_by_others(_numba_end)),
        (InlineWorker, "inline_function", _inline_function),
        (Overload, "_get_jit_decorator", decorator),
    )


_DEPTH = [0]


def was_read() -> bool:
    """Whether what is replaced here, and relied on elsewhere, is what was read in this version of Numba."""
    return FIRST_READ <= tuple(int(part) for part in numba.__version__.split(".")[:2]) <= LAST_READ


@contextmanager
def lean(overloads: type[Any]) -> Iterator[None]:
    """Inside, Numba works so; entered once more there, nothing changes."""
    _DEPTH[0] += 1
    swaps = _swaps(overloads) if _DEPTH[0] == 1 and was_read() else ()
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in swaps]
    try:
        for owner, name, new in swaps:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in before:
            if old is None:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        _DEPTH[0] -= 1
        if _DEPTH[0] == 0:
            _OPERATIONS.clear()
