"""The public modules under their short names: `tcsim.exact` is `tcsim.analysis.exact`, however it is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MODULES = {
    "bounds": "tcsim.schemes.bounds",
    "cpfloat": "tcsim.fp.cpfloat",
    "exact": "tcsim.analysis.exact",
    "inputs": "tcsim.analysis.inputs",
    "metrics": "tcsim.analysis.metrics",
    "multiword": "tcsim.schemes.multiword",
    "ozaki": "tcsim.schemes.ozaki",
    "rounding": "tcsim.fp.rounding",
}


class ShortNames(MetaPathFinder, Loader):
    """Finds the module behind a short name, so that both names are one module."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, short = name.partition(".")
        return ModuleSpec(name, self) if package == "tcsim" and short in MODULES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(MODULES[spec.name.removeprefix("tcsim.")])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run already; it keeps the specification of its own name."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install_short_names() -> None:
    """Let the import system know the short names, once."""
    if not any(isinstance(finder, ShortNames) for finder in sys.meta_path):
        sys.meta_path.append(ShortNames())
