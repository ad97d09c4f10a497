"""Error bounds: those that hold on a unit, those that the papers state, and the drift of truncation.

`scheme` and `unit_product` are rigorous for any finite input: an array for given matrices, or the reason why there is none.
The papers' factors hold for the papers' arithmetic; `STATEMENTS` says which unit, inputs and order each is proved for.
"""

from __future__ import annotations

from tcsim.schemes.bounds_drift import drift, drift_constant, signed_drift
from tcsim.schemes.bounds_integers import ozaki_int8, scheme
from tcsim.schemes.bounds_papers import (
    STATEMENTS,
    dominant,
    elementwise,
    fabsum,
    gamma,
    kappa,
    multiword,
    multiword_all,
    multiword_full,
    multiword_probable,
    ozaki_crt,
    ozaki_relative,
    ozaki_uchino,
    recipe,
    roundoff,
)
from tcsim.schemes.bounds_units import Bound, Growth, Statement, scheduled_growth, unit_growth, unit_product

__all__ = [
    "STATEMENTS",
    "Bound",
    "Growth",
    "Statement",
    "drift",
    "drift_constant",
    "dominant",
    "elementwise",
    "fabsum",
    "gamma",
    "kappa",
    "multiword",
    "multiword_all",
    "multiword_full",
    "multiword_probable",
    "ozaki_crt",
    "ozaki_int8",
    "ozaki_relative",
    "ozaki_uchino",
    "recipe",
    "roundoff",
    "scheduled_growth",
    "scheme",
    "signed_drift",
    "unit_growth",
    "unit_product",
]


def __dir__() -> list[str]:
    return sorted(__all__)
