"""PyTorch models on the arithmetic of another GPU's tensor cores: every contraction emulated, every bit.

``with tcsim.torch.emulate("v100"): loss = model(x); loss.backward()``. PyTorch is loaded when one of the names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcsim.torch.auditing import audit as audit
    from tcsim.torch.comparing import compare as compare
    from tcsim.torch.emulation import Call as Call
    from tcsim.torch.emulation import emulate as emulate
    from tcsim.torch.refuse import NotEmulated as NotEmulated

_LATER = {"Call": "emulation", "NotEmulated": "refuse", "audit": "auditing", "compare": "comparing", "emulate": "emulation"}

__all__ = ["Call", "NotEmulated", "audit", "compare", "emulate"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'tcsim.torch' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        module = import_module(f"tcsim.torch.{_LATER[name]}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"tcsim.torch.{name} needs PyTorch, which is not installed: pip install torch (a CPU wheel will do)", name="torch"
        ) from error
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
