"""tcsim: what GPU tensor cores compute, to the last bit, in software.

The public names. What needs a compiler or a plotting library is loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# These modules are light, and share a name with what they define: imported here, the name means the function.
from tcsim.advise import advise
from tcsim.formats import Format, formats
from tcsim.gemm import gemm, schemes
from tcsim.hardware import unit, units
from tcsim.matmul import matmul
from tcsim.quantize import dequantize, quantize
from tcsim.schedule import Blocked, Sequential, SplitK
from tcsim.trace import trace
from tcsim.units import Unit

__version__ = "0.1.0"

_LATER = {
    "encode": "bits",
    "decode": "bits",
    "round_to": "rounding",
}
_MODULES = ("bounds", "cpfloat", "exact", "inputs", "metrics", "multiword", "ozaki", "rounding", "sparse", "study")

if TYPE_CHECKING:
    from tcsim.bits import decode as decode
    from tcsim.bits import encode as encode
    from tcsim.rounding import round_to as round_to

__all__ = [
    "Blocked",
    "Format",
    "Sequential",
    "SplitK",
    "Unit",
    "advise",
    "dequantize",
    "formats",
    "gemm",
    "matmul",
    "quantize",
    "schemes",
    "trace",
    "unit",
    "units",
    *_LATER,
    *_MODULES,
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        value = getattr(import_module(f"tcsim.{_LATER[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"tcsim.{name}")
    else:
        raise AttributeError(f"module 'tcsim' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
