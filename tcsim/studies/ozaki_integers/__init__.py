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
    captions={
        "int8-slices": (
            "Error of the INT8 scheme against the number of slices, slices cut or rounded to nearest, by range φ of the "
            "inputs, under its two bounds: that from the norms of rows and columns (α·β, dotted), and that from the slices "
            "themselves (dash-dotted). Medians of the draws."
        ),
        "two-scale": (
            "Rows whose elements span 2ᵗ: where s slices cannot hold a small element, its error is 1 from t = 7s on (vertical"
            " lines). Crosses: the published points. Errors below 2⁻⁵⁴ are drawn there."
        ),
        "wide-range": (
            "Elements over many decades (φ = 8 and 13): largest relative error against k by slices, float64 in black. "
            "Crosses: published, of a single draw. Open markers lie under curves that coincide. Medians of the draws; bands "
            "from the least to the largest."
        ),
    },
    table=table,
    options=OPTIONS,
    weight=weight,
)
