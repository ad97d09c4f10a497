"""JAX functions on the arithmetic of another GPU's tensor cores: every dot_general emulated, every bit.

``tcsim.jax.emulate(jax.grad(loss), "v100")(parameters, batch)``. JAX is loaded when one of the names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcsim.jax.dot import dot_general as dot_general
    from tcsim.jax.interpret import NotEmulated as NotEmulated
    from tcsim.jax.interpret import emulate as emulate

_LATER = {"NotEmulated": "interpret", "dot_general": "dot", "emulate": "interpret"}

__all__ = ["NotEmulated", "dot_general", "emulate"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'tcsim.jax' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        module = import_module(f"tcsim.jax.{_LATER[name]}")
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ModuleNotFoundError(f"tcsim.jax.{name} needs JAX, which is not installed: pip install jax", name="jax") from error
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
