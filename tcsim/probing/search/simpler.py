"""A candidate with fewer numbers where those explain as much: what chance could have set is left out."""

from __future__ import annotations

from tcsim.hardware.choices import ROUNDINGS
from tcsim.probing.box import Batch
from tcsim.probing.search.candidates import Parts
from tcsim.probing.search.elimination import ALL, Found, Judge

PLAIN: Parts = {"subnormals": "keep", "operand_format": None, "min_exponent": None, "out_precision": None}


def with_exact_sums(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """A candidate that explains everything, with exact sums where those do as well."""
    if found.parts["arithmetic"] != "aligned" or found.parts["align_rounding"] == "exact":
        return found
    parts = {**found.parts, **PLAIN, "align_rounding": "exact", "fraction_bits": None}
    parts["out_precision"] = found.parts["out_precision"]
    tried = ({**parts, "rounding": r} for r in ROUNDINGS)
    return next((Found(x, 1.0) for x in tried if judge.score(x, batches, ALL) == 1.0), found)


def without_scaled(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """Numbers of scaled products without each of which every output is explained."""
    for name in ("out_precision", "min_exponent") if judge.known.scale is not None else ():
        plain = {**found.parts, name: None}
        found = Found(plain, 1.0) if judge.score(plain, batches) == 1.0 else found
    return found
