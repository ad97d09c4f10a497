"""tcsim: what GPU tensor cores compute, to the last bit, in software.

The public names. What needs a compiler or a plotting library is loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tcsim.fp.formats import Format, formats
from tcsim.hardware import unit, units
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.public import MODULES, install_short_names
from tcsim.quantize import dequantize, quantize
from tcsim.schedule import Blocked, Hybrid, Lanes, Sequential, SplitK, Tiled

# These modules are light, and share a name with what they define: imported here, the name means the function.
from tcsim.schemes.advise import advise
from tcsim.schemes.gemm import gemm, schemes
from tcsim.verbs.tracing import trace

__version__ = "0.1.0"

_LATER = {
    "check": "verbs.check",
    "compare": "verbs.compare",
    "vectors": "verbs.vectors",
    "what_if": "verbs.what_if",
    "encode": "fp.codes",
    "decode": "fp.codes",
    "round_to": "fp.round_to",
    "predict": "probing.predict",
    "probe": "probing.probe",
    "explain_diff": "probing.explain_diff",
    "audit": "probing.audit",
}
_MODULES = (*MODULES, "files", "sparse", "study", "torch", "jax")

install_short_names()

if TYPE_CHECKING:
    from tcsim.fp.codes import decode as decode
    from tcsim.fp.codes import encode as encode
    from tcsim.fp.round_to import round_to as round_to
    from tcsim.probing.audit import audit as audit
    from tcsim.probing.explain_diff import explain_diff as explain_diff
    from tcsim.probing.predict import predict as predict
    from tcsim.probing.probe import probe as probe
    from tcsim.verbs.check import check as check
    from tcsim.verbs.compare import compare as compare
    from tcsim.verbs.vectors import vectors as vectors
    from tcsim.verbs.what_if import what_if as what_if

__all__ = [
    "Blocked",
    "Format",
    "Hybrid",
    "Lanes",
    "Sequential",
    "SplitK",
    "Tiled",
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
        value = import_module(MODULES.get(name, f"tcsim.{name}"))
    else:
        raise AttributeError(f"module 'tcsim' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
