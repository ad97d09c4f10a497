"""The operators that are emulated, by their name in aten, and how one is called in each of its forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tcsim.torch import ops, scaled
from tcsim.torch.convolution import convolution, convolution_backward
from tcsim.torch.refuse import check_tensors

OPERATORS: dict[str, Callable[..., Any]] = {
    "mm": ops.mm,
    "bmm": ops.bmm,
    "addmm": ops.addmm,
    "baddbmm": ops.baddbmm,
    "addbmm": ops.addbmm,
    "mv": ops.mv,
    "addmv": ops.addmv,
    "dot": ops.dot,
    "vdot": ops.dot,
    "_addmm_activation": ops.addmm_activation,
    "_scaled_mm": scaled.scaled_mm,
    "_int_mm": scaled.int_mm,
    "_grouped_mm": scaled.grouped_mm,
    "convolution": convolution,
    "_convolution": convolution,
    "convolution_backward": convolution_backward,
}

_FOUND: dict[Any, Callable[..., Any] | None] = {}


def emulated(func: Any) -> Callable[..., Any] | None:
    """call(emulation, args, kwargs) for an operator that is emulated, in whichever form; None for any other."""
    if func not in _FOUND:
        _FOUND[func] = _find(func)
    return _FOUND[func]


def _find(func: Any) -> Callable[..., Any] | None:
    space, name = func._schema.name.split("::")
    plain = OPERATORS.get(name) or OPERATORS.get(name.removesuffix("_"))
    if space != "aten" or plain is None:
        return None
    outs = [a.name for a in func._schema.arguments if a.is_out]
    return _form(plain, name, name not in OPERATORS, outs)


def _form(plain: Callable[..., Any], name: str, in_place: bool, outs: list[str]) -> Callable[..., Any]:
    """The functional form, that in place (its result goes to the first argument), or that with out=."""

    full = f"aten.{name}"

    def returned(emulation: Any, args: Any, kwargs: Any) -> Any:
        check_tensors(full, args)
        return plain(emulation, *args, **kwargs)

    def call(emulation: Any, args: Any, kwargs: Any) -> Any:
        check_tensors(full, args)
        targets = [args[0]] if in_place else [kwargs[key] for key in outs]
        results = plain(emulation, *args, **{key: value for key, value in kwargs.items() if key not in outs})
        for target, result in zip(targets, results if isinstance(results, tuple) else (results,), strict=True):
            if outs and target.shape != result.shape:
                target.resize_(result.shape)
            target.copy_(result)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return call if in_place or outs else returned
