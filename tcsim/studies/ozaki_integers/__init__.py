"""The INT8 Ozaki scheme and its error bounds.

Abdelfattah, Dongarra, Fasi, Mikaitis and Tisseur, with the variants of Ootomo et al. and Uchino et al.: the error by number of
slices and by range of the elements, the two-scale test in which fixed point breaks, elements over many decades, the bound with
α·β^T, the bound with κ_A and κ_B and the one from the slices themselves, and the float64 additions that grouping saves.
"""

from tcsim.studies.framework.base import Study
from tcsim.studies.ozaki_integers.cells import OPTIONS, cells, compute, dataset, weight
from tcsim.studies.ozaki_integers.claims import claims
from tcsim.studies.ozaki_integers.figures import figures, table

__all__ = ["STUDY"]

STUDY = Study(
    name="ozaki-integers",
    title="The Ozaki scheme on INT8 and its bounds",
    reproduces="Abdelfattah et al. 2025: slices, both error bounds, the two-scale test, elements over many decades (φ = 8 and 13)",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=OPTIONS,
    weight=weight,
)
